"""Kinds of document that pandoc reads, where a version is installed that does: AsciiDoc, LaTeX, OpenDocument, ..."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from hf_dense.data.readers.html import read_html
from hf_dense.data.readers.packed import check_size
from hf_dense.data.readers.page import CodeOption, Page, UnreadableError

_INCLUDE: Final = re.compile(r"^include::.*$", re.MULTILINE)
_SECONDS: Final = 60  # that a document may take
_UNTITLED: Final = "-"  # pandoc's title of a document that has none


@cache
def pandoc_formats() -> frozenset[str]:
    """The formats that the pandoc here reads (Debian 12's knows of no AsciiDoc); none where there is no pandoc."""
    if not shutil.which("pandoc"):
        return frozenset()
    done = subprocess.run(["pandoc", "--list-input-formats"], capture_output=True, text=True, check=False)
    return frozenset(done.stdout.split())


def read_text(content: str, code: CodeOption, name: str) -> Page:
    """The page of a text in a format; nothing is included from other files.

    Raises:
        UnreadableError: pandoc does not understand it.
    """
    return _read(_INCLUDE.sub("", content).encode(), code, name)


def read_packed(path: Path, code: CodeOption, name: str) -> Page:
    """The page of a packed file in a format.

    Raises:
        UnreadableError: it is none, or pandoc does not understand it.
    """
    check_size(path)
    return _read(path.read_bytes(), code, name)


def _read(content: bytes, code: CodeOption, name: str) -> Page:
    command = ["pandoc", "--from", name, "--to", "html", "--standalone", "--sandbox", "--quiet"]
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=_SECONDS, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        raise UnreadableError from error
    page = read_html(done.stdout.decode(), code)
    return page if page.title != _UNTITLED else Page("", page.sections)
