"""Slides (.pptx): the title of each is a heading; read from the XML (ECMA-376, part 1, chapters 19 and 21)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from posixpath import join, normpath
from typing import Any, Final
from zipfile import ZipFile

from hf_dense.data.readers.packed import check_size, parsed
from hf_dense.data.readers.page import Block, Heading, Page, as_item, build_page, table_sentences

_RELATION: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_TITLES: Final = {"ctrTitle": 0, "title": 1}  # levels: the former is that of all slides
_FILLED_IN: Final = ("sldNum", "dt", "ftr", "hdr")  # numbers, dates and footers


def read_slides(path: Path) -> Page:
    """The page of slides, in the order that they are shown in; notes and hidden slides are not read.

    Raises:
        UnreadableError: there are none.
        Exception: of its parts, which are lacking or broken.
    """
    check_size(path)
    with ZipFile(path) as parts:
        relations = parsed(parts, "ppt/_rels/presentation.xml.rels")
        targets = {relation.get("Id"): relation.get("Target") for relation in relations}
        shown = parsed(parts, "ppt/presentation.xml").iterfind("{*}sldIdLst/{*}sldId")
        slides = [parsed(parts, normpath(join("ppt", targets[slide.get(_RELATION)])).lstrip("/")) for slide in shown]
    return build_page(block for slide in slides if slide.get("show") != "0" for block in _blocks(slide))


def _blocks(slide: Any) -> Iterator[Block]:
    for part in slide.iterfind(".//{*}Fallback"):  # the same again, for programs that are older
        part.clear()
    for shape in slide.iter("{*}sp", "{*}tbl"):
        if shape.tag.endswith("}tbl"):
            rows = [[_text(cell) for cell in row.iterfind("{*}tc")] for row in shape.iterfind("{*}tr")]
            settings = shape.find("{*}tblPr")
            yield from table_sentences(rows, settings is not None and settings.get("firstRow") in ("1", "true"))
            continue
        place = shape.find("{*}nvSpPr/{*}nvPr/{*}ph")
        kind = "" if place is None else place.get("type", "")
        if kind in _TITLES:
            yield Heading(_TITLES[kind], _text(shape))
        elif kind not in _FILLED_IN:
            yield from (as_item(_text(paragraph)) for paragraph in shape.iterfind("{*}txBody/{*}p"))


def _text(part: Any) -> str:
    """The text of a paragraph, or of several, which are divided by spaces."""
    paragraphs = part.iter("{*}p")
    return " ".join("".join(_pieces(paragraph)) for paragraph in paragraphs)


def _pieces(paragraph: Any) -> Iterator[str]:
    for piece in paragraph.iter("{*}t", "{*}br"):
        yield " " if piece.tag.endswith("}br") else piece.text or ""
