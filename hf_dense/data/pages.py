"""Title and paragraphs of a text, Markdown, HTML or PDF file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from hf_dense.errors import InputError

PAGES: Final = (".txt", ".md", ".html", ".htm", ".pdf")

_BLOCKS: Final = (
    *("p", "li", "h1", "h2", "h3", "h4", "h5", "h6", "dt", "dd", "blockquote", "td", "th", "caption"),
    *("div", "section", "article", "main", "ul", "ol", "dl", "table", "tr", "br", "hr", "figure", "figcaption"),
)
_BREAK: Final = "\0"  # between paragraphs, while a page is taken apart
_SILENT: Final = ("script", "style", "noscript", "template", "nav", "header", "footer", "aside", "form", "svg", "pre")


class UnreadableError(Exception):
    """A file that is not what its name says."""


def read_page(path: Path) -> tuple[str, str]:
    """Title ("" if there is none) and text of a file; paragraphs are divided by empty lines.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
        UnreadableError: it is not what its name says.
        InputError: the library that reads this kind of file is not installed.
    """
    if path.suffix == ".pdf":
        return _read_pdf(path)
    content = path.read_text(encoding="utf-8-sig")
    if "\0" in content:
        raise UnreadableError
    if path.suffix == ".md":
        return read_markdown(content)
    if path.suffix in (".html", ".htm"):
        return read_html(content)
    return "", content


def read_markdown(content: str) -> tuple[str, str]:
    """First heading and prose of a Markdown text; code, tables and markup are left out.

    >>> read_markdown("# Title\\n\\nSome *text*\\nwith a [link](http://a).\\n\\n```\\ncode\\n```\\n")
    ('Title', 'Some text with a link.')
    """
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise _missing("markdown-it-py", ".md") from error
    title, paragraphs, heading = "", [], False
    content = re.sub(r"\A---\n.*?\n---\n", "", content, flags=re.DOTALL)  # front matter
    for token in MarkdownIt("commonmark").parse(content):
        heading = token.type == "heading_open" or (heading and token.type != "heading_close")
        if token.type != "inline":
            continue
        parts = [" " if child.type in ("softbreak", "hardbreak") else child.content for child in token.children or []]
        kinds = [child.type in ("text", "code_inline", "softbreak", "hardbreak") for child in token.children or []]
        text = "".join(part for part, kept in zip(parts, kinds, strict=True) if kept).strip()
        if heading and not title:
            title = text
        elif text:
            paragraphs.append(text)
    return title, "\n\n".join(paragraphs)


def read_html(content: str) -> tuple[str, str]:
    """Title and paragraphs of a page; scripts, navigation and code blocks are left out.

    >>> read_html("<title>A</title><nav><p>menu</p></nav><h1>B</h1><p>Some <b>text</b>.<script>x</script></p>")
    ('A', 'B\\n\\nSome text.')

    Raises:
        UnreadableError: it cannot be parsed, or holds no markup at all.
    """
    try:
        from bs4 import BeautifulSoup
        from bs4.exceptions import ParserRejectedMarkup
    except ImportError as error:
        raise _missing("beautifulsoup4", ".html") from error
    try:
        page = BeautifulSoup(content, "html.parser")
    except (ParserRejectedMarkup, RecursionError) as error:
        raise UnreadableError from error
    if page.find() is None:
        raise UnreadableError
    title = " ".join(page.title.get_text().split()) if page.title else ""
    for part in page.find_all(["title", *_SILENT]):
        part.decompose()
    for block in page.find_all(list(_BLOCKS)):
        block.insert_before(_BREAK)
        block.insert_after(_BREAK)
    texts = [" ".join(text.split()) for text in page.get_text().split(_BREAK)]
    return title, "\n\n".join(text for text in texts if text)


def _read_pdf(path: Path) -> tuple[str, str]:
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError as error:
        raise _missing("pypdf", ".pdf") from error
    try:
        reader = PdfReader(path)
        title = str((reader.metadata and reader.metadata.title) or "")
        pages = [page.extract_text() for page in reader.pages]
    except (PyPdfError, ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise UnreadableError from error
    # Lines of a page are lines of print: words broken over two are joined, and so are lines of a paragraph.
    text = re.sub(r"(?<=\w)-\n(?=[a-z])", "", "\n\n".join(pages))
    return title.strip(), re.sub(r"(?<!\n)\n(?!\n)", " ", text)


def _missing(package: str, suffix: str) -> InputError:
    return InputError(f"Reading {suffix} files needs the package {package}: pip install 'hf_dense[documents]'.")
