"""Books (EPUB): chapters in HTML, in the order that the book has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

from hf_dense.data.readers.html import html_blocks
from hf_dense.data.readers.packed import check_size, parsed
from hf_dense.data.readers.page import Block, CodeOption, Page, build_page


def read_epub(path: Path, code: CodeOption) -> Page:
    """The page of a book.

    Raises:
        UnreadableError: it is none.
        Exception: of its parts, which are lacking or encrypted.
    """
    check_size(path)
    with ZipFile(path) as parts:
        place = parsed(parts, "META-INF/container.xml").find(".//{*}rootfile").get("full-path")
        package = parsed(parts, place)
        title = package.findtext("{*}metadata/{*}title")
        return build_page(_blocks(parts, package, dirname(place)), title or "", code)


def _blocks(parts: ZipFile, package: Any, folder: str) -> Iterator[Block]:
    files = {item.get("id"): item.get("href") for item in package.iterfind("{*}manifest/{*}item")}
    for chapter in package.iterfind("{*}spine/{*}itemref"):
        name = normpath(join(folder, unquote(files[chapter.get("idref")])))
        yield from html_blocks(parts.read(name).decode("utf-8-sig"))
