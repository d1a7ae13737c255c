"""Word documents (.docx), by python-docx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zipfile import BadZipFile, ZipFile

from hf_dense.data.readers.page import (
    Block,
    Code,
    CodeOption,
    Heading,
    Page,
    UnreadableError,
    build_page,
    row_sentence,
)

if TYPE_CHECKING:
    from docx.document import Document
    from docx.table import Table

_MOST: Final = 200_000_000  # bytes of a document when it is unpacked
_HEADING: Final = re.compile(r"heading (\d)", re.IGNORECASE)
_CODE: Final = re.compile(r"code|preformatted|verbatim", re.IGNORECASE)


def read_docx(path: Path, code: CodeOption) -> Page:
    """The page of a Word document: headings are known by their styles.

    Raises:
        UnreadableError: it is none.
    """
    import docx

    try:
        with ZipFile(path) as parts:
            if sum(part.file_size for part in parts.infolist()) > _MOST:
                raise UnreadableError
        document = docx.Document(str(path))
        page = build_page(_blocks(document), code=code)
        return page if page.title else Page(document.core_properties.title.strip(), page.sections)
    except (BadZipFile, SyntaxError) as error:  # the latter of broken XML
        raise UnreadableError from error


def _blocks(document: Document) -> Iterator[Block]:
    from docx.table import Table

    for part in document.iter_inner_content():
        if isinstance(part, Table):
            yield from _rows(part)
            continue
        style = str(part.style.name) if part.style is not None else ""
        if found := _HEADING.match(style):
            yield Heading(int(found[1]), part.text)
        elif style == "Title":
            yield Heading(0, part.text)
        else:
            yield Code(part.text) if _CODE.search(style) else part.text


def _rows(table: Table) -> Iterator[str]:
    rows: list[list[str]] = [[cell.text for cell in row.cells] for row in table.rows]
    for row in rows[1:]:
        yield row_sentence(rows[0], row)
    if len(rows) == 1:
        yield row_sentence([], rows[0])
