"""AsciiDoc, by pandoc where a version is installed that reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from typing import Final

from hf_dense.data.readers.html import read_html
from hf_dense.data.readers.page import CodeOption, Page, UnreadableError

_INCLUDE: Final = re.compile(r"^include::.*$", re.MULTILINE)
_SECONDS: Final = 60  # that a document may take
_UNTITLED: Final = "-"  # pandoc's title of a document that has none


@cache
def reads_asciidoc() -> bool:
    """Whether there is a pandoc that does (Debian 12's is too old)."""
    if not shutil.which("pandoc"):
        return False
    done = subprocess.run(["pandoc", "--list-input-formats"], capture_output=True, text=True, check=False)
    return "asciidoc" in done.stdout.split()


def read_asciidoc(content: str, code: CodeOption) -> Page:
    """The page of an AsciiDoc text; nothing is included from other files.

    Raises:
        UnreadableError: pandoc does not understand it.
    """
    command = ["pandoc", "--from", "asciidoc", "--to", "html", "--standalone", "--sandbox", "--quiet"]
    try:
        done = subprocess.run(
            command,
            input=_INCLUDE.sub("", content),
            capture_output=True,
            encoding="utf-8",
            timeout=_SECONDS,
            check=True,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise UnreadableError from error
    page = read_html(done.stdout, code)
    return page if page.title != _UNTITLED else Page("", page.sections)
