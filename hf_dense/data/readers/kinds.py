"""Which reader reads which file."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from hf_dense.data.encodings import windows_text
from hf_dense.data.readers.docx import read_docx
from hf_dense.data.readers.epub import read_epub
from hf_dense.data.readers.html import read_html
from hf_dense.data.readers.mail import read_mail
from hf_dense.data.readers.markdown import read_markdown
from hf_dense.data.readers.notebook import read_notebook
from hf_dense.data.readers.page import CodeOption, Page, Section, UnreadableError
from hf_dense.data.readers.pandoc import pandoc_formats, read_packed, read_text
from hf_dense.data.readers.pdf import read_pdf
from hf_dense.data.readers.rst import read_rst
from hf_dense.data.readers.slides import read_slides

_EXTRA: Final = "pip install 'hf_dense[documents]'"
_PAGES: Final = (".html", ".htm", ".xhtml")
_HEAD: Final = 1024  # bytes of a page in which it may declare its encoding
_CHARSET: Final = re.compile(rb"<(?:meta[^>]+charset|\?xml[^>]+encoding)\s*=\s*[\"']?\s*([\w:.-]+)", re.IGNORECASE)
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

_WRITTEN: Final = {".adoc": "asciidoc", ".asciidoc": "asciidoc", ".tex": "latex", ".org": "org", ".rtf": "rtf"}

KINDS: Final = {
    **dict.fromkeys((".txt", ".text"), Kind(lambda content, code: Page("", (Section("", content),)))),
    ".md": Kind(read_markdown, modules=_MARKDOWN),
    ".markdown": Kind(read_markdown, modules=_MARKDOWN),
    ".mdx": Kind(partial(read_markdown, mdx=True), modules=_MARKDOWN),
    ".html": Kind(read_html, modules=_SOUP),
    ".htm": Kind(read_html, modules=_SOUP),
    ".xhtml": Kind(read_html, modules=_SOUP),
    ".rst": Kind(read_rst, modules=(("docutils", "docutils"),)),
    ".ipynb": Kind(read_notebook, modules=(*_MARKDOWN, ("nbformat", "nbformat"))),
    ".docx": Kind(read_file=read_docx, modules=(("docx", "python-docx"),)),
    ".pptx": Kind(read_file=lambda path, code: read_slides(path), modules=(("lxml", "lxml"),)),
    ".epub": Kind(read_file=read_epub, modules=_SOUP),
    ".eml": Kind(read_file=read_mail, modules=_SOUP),
    ".pdf": Kind(read_file=lambda path, code: read_pdf(path), modules=(("pypdfium2", "pypdfium2"),)),
    **{suffix: Kind(partial(read_text, name=name), modules=_SOUP, pandoc=name) for suffix, name in _WRITTEN.items()},
    ".odt": Kind(read_file=partial(read_packed, name="odt"), modules=_SOUP, pandoc="odt"),
}


def read_page(path: Path, code: CodeOption = "keep") -> Page:
    """What a file of one of the `KINDS` holds.

    Raises:
        UnicodeDecodeError: it is a text in another encoding than UTF-8, UTF-16 with its mark, what a page declares, or
            Windows-1252 (see `windows_text`).
        UnreadableError: it is not what its name says.
    """
    kind = KINDS[path.suffix.lower()]
    content, is_windows = ("", False) if kind.read is None else _read_text(path)
    if "\0" in content:
        raise UnreadableError
    try:
        if kind.read is not None:
            return replace(kind.read(content, code), is_windows=is_windows)
        assert kind.read_file is not None
        return kind.read_file(path, code)
    except Exception as error:  # whatever a library raises at a file that is broken, encrypted or of another make
        raise UnreadableError from error


def _read_text(path: Path) -> tuple[str, bool]:
    """A text, and whether its encoding was guessed."""
    content = path.read_bytes()
    head = content[:_HEAD]
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _decoded(content, "utf-16"), False
    try:
        return _decoded(content, "utf-8-sig"), False
    except UnicodeDecodeError as error:
        if path.suffix.lower() in _PAGES and (declared := _CHARSET.search(head)):
            name = declared[1].decode().lower()
            with suppress(LookupError, ValueError):  # no encoding, or not that one
                return _decoded(content, _AS_BROWSERS.get(name, name)), False
        elif (text := windows_text(content)) is not None:
            return _with_ends(text), True
        raise error


def _decoded(content: bytes, encoding: str) -> str:
    return _with_ends(content.decode(encoding))


def _with_ends(text: str) -> str:
    """A text with the ends of lines that Python has, as `open` reads it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
