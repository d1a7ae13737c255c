"""Which reader reads which file."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from hf_dense.data.readers.docx import read_docx
from hf_dense.data.readers.html import read_html
from hf_dense.data.readers.markdown import read_markdown
from hf_dense.data.readers.notebook import read_notebook
from hf_dense.data.readers.page import CodeOption, Page, Section, UnreadableError
from hf_dense.data.readers.pandoc import pandoc_formats, read_packed, read_text
from hf_dense.data.readers.pdf import read_pdf
from hf_dense.data.readers.rst import read_rst

_EXTRA: Final = "pip install 'hf_dense[documents]'"
_HEAD: Final = 1024  # bytes of a page in which it may declare its encoding
_CHARSET: Final = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w:.-]+)", re.IGNORECASE)
_AS_BROWSERS: Final = {
    "iso-8859-1": "cp1252",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
}  # read by what has more letters


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Args:
        read: the page of a text.
        read_file: the page of a file that is no text.
        modules: that it takes, each with the name of the package that has it.
        pandoc: the format by which pandoc knows it, where it takes pandoc.
    """

    read: Callable[[str, CodeOption], Page] | None = None
    read_file: Callable[[Path, CodeOption], Page] | None = None
    modules: tuple[tuple[str, str], ...] = ()
    pandoc: str = ""

    def lacks(self) -> str:
        """What it takes that is not installed, and how that is; "" where nothing is lacking."""
        for module, package in self.modules:
            if find_spec(module) is None:
                return f"{package}: {_EXTRA}"
        return f"a pandoc that reads {self.pandoc}" if self.pandoc and self.pandoc not in pandoc_formats() else ""


_SOUP: Final = (("bs4", "beautifulsoup4"), ("lxml", "lxml"))
_MARKDOWN: Final = (("markdown_it", "markdown-it-py"), *_SOUP)

KINDS: Final = {
    ".txt": Kind(lambda content, code: Page("", (Section("", content),))),
    ".md": Kind(read_markdown, modules=_MARKDOWN),
    ".markdown": Kind(read_markdown, modules=_MARKDOWN),
    ".mdx": Kind(partial(read_markdown, mdx=True), modules=_MARKDOWN),
    ".html": Kind(read_html, modules=_SOUP),
    ".htm": Kind(read_html, modules=_SOUP),
    ".rst": Kind(read_rst, modules=(("docutils", "docutils"),)),
    ".ipynb": Kind(read_notebook, modules=(*_MARKDOWN, ("nbformat", "nbformat"))),
    ".docx": Kind(read_file=read_docx, modules=(("docx", "python-docx"),)),
    ".pdf": Kind(read_file=lambda path, code: read_pdf(path), modules=(("pypdfium2", "pypdfium2"),)),
    **{
        suffix: Kind(partial(read_text, name=name), modules=_SOUP, pandoc=name)
        for suffix, name in {".adoc": "asciidoc", ".tex": "latex", ".org": "org", ".rtf": "rtf"}.items()
    },
    **{
        suffix: Kind(read_file=partial(read_packed, name=name), modules=_SOUP, pandoc=name)
        for suffix, name in {".odt": "odt", ".epub": "epub", ".pptx": "pptx"}.items()
    },
}


def read_page(path: Path, code: CodeOption = "keep") -> Page:
    """What a file of one of the `KINDS` holds.

    Raises:
        UnicodeDecodeError: it is a text in another encoding than UTF-8, UTF-16 with its mark, or what a page declares.
        UnreadableError: it is not what its name says.
    """
    kind = KINDS[path.suffix.lower()]
    content = "" if kind.read is None else _read_text(path)
    if "\0" in content:
        raise UnreadableError
    try:
        if kind.read is not None:
            return kind.read(content, code)
        assert kind.read_file is not None
        return kind.read_file(path, code)
    except Exception as error:  # whatever a library raises at a file that is broken, encrypted or of another make
        raise UnreadableError from error


def _read_text(path: Path) -> str:
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return path.read_text(encoding="utf-16")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        declared = _CHARSET.search(head) if path.suffix.lower() in (".html", ".htm") else None
        if declared is None:
            raise
        name = declared[1].decode().lower()
        try:
            return path.read_text(encoding=_AS_BROWSERS.get(name, name))
        except (LookupError, ValueError):  # no encoding, or not that one
            raise error from None
