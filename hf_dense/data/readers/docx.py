"""Word documents (.docx), opened by python-docx.

Its own texts leave out what was inserted while changes are tracked, what stands in fields to fill in, and tables in
tables, so texts are read from the XML (ECMA-376, part 1, chapter 17): what a reader sees who accepts all changes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zipfile import BadZipFile

from hf_dense.data.readers.packed import check_size
from hf_dense.data.readers.page import (
    RAISED,
    Block,
    Code,
    CodeOption,
    Heading,
    Page,
    UnreadableError,
    as_item,
    build_page,
    spell_raised,
    table_sentences,
)

if TYPE_CHECKING:
    from docx.document import Document
    from docx.styles.style import BaseStyle

_HEADING: Final = re.compile(r"heading (\d)", re.IGNORECASE)
_CODE: Final = re.compile(r"code|preformatted|verbatim", re.IGNORECASE)

_WORD: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"  # the same again
_PARAGRAPH, _TABLE, _ROW, _CELL = (_WORD + name for name in ("p", "tbl", "tr", "tc"))
_OUTLINE: Final = f"{_WORD}pPr/{_WORD}outlineLvl"
_LOWEST: Final = 9  # level of a heading; Word has one more, for text
_BASES: Final = 20  # styles that each is based on the next; in a damaged document they may go in a circle
_HIDDEN: Final = f"{_WORD}rPr/{_WORD}vanish"
_FIRST_ROW: Final = f"{_WORD}tblStylePr[@{_WORD}type='firstRow']"
_MATH: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_LINK: Final = _WORD + "hyperlink"
_NOTES: Final = (_WORD + "footnoteReference", _WORD + "endnoteReference")  # before a mark of the writer's own
_BOX: Final = _WORD + "txbxContent"  # text beside a paragraph
_AROUND: Final = {_WORD + name for name in ("sdt", "sdtContent", "ins", "moveTo", "customXml")}
_GONE: Final = {*(_WORD + name for name in ("del", "moveFrom", "pPr", "rPr", "rt")), _FALLBACK, _BOX}
_LETTERS: Final = {
    _WORD + name: text
    for name, text in {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}.items()
}

_IN_FORMULAS: Final = {_MATH + "sup": "^", _MATH + "den": "/"}


def read_docx(path: Path, code: CodeOption) -> Page:
    """The page of a Word document: headings are known by their styles and outline levels.

    Raises:
        UnreadableError: it is none.
    """
    import docx

    check_size(path)
    try:
        document = docx.Document(str(path))
        page = build_page(_blocks(document), code=code)
        return page if page.title else Page(document.core_properties.title.strip(), page.sections)
    except (BadZipFile, SyntaxError) as error:  # the latter of broken XML
        raise UnreadableError from error


def _blocks(document: Document) -> Iterator[Block]:
    from docx.text.paragraph import Paragraph

    headed = {style.style_id for style in document.styles if style.element.find(_FIRST_ROW) is not None}
    for part in _inside(document.element.body, _PARAGRAPH, _TABLE):
        if part.tag == _TABLE:
            yield from _rows(part, headed)
            continue
        text = _text(part)
        found = Paragraph(part, document).style
        style = str(found.name) if found is not None else ""
        if style == "Title":
            yield Heading(0, text)
        elif level := _level(part, found):
            yield Heading(level, text)
        else:
            is_item = style.startswith("List") or part.find(f"{_WORD}pPr/{_WORD}numPr") is not None
            yield Code(text) if _CODE.search(style) else as_item(text) if is_item else text
        for box in _boxes(part):
            yield from (_text(inner) for inner in _inside(box, _PARAGRAPH))


def _level(paragraph: Any, style: BaseStyle | None) -> int:
    """The level of a heading, as the paragraph, its style or what that is based on has it; 0 of other text."""
    outline = paragraph.find(_OUTLINE)
    for _ in range(_BASES):
        if outline is not None or style is None:
            break
        if named := _HEADING.match(str(style.name)):
            return int(named[1])
        outline, style = style.element.find(_OUTLINE), getattr(style, "base_style", None)
    level = 0 if outline is None else int(outline.get(_WORD + "val", _LOWEST)) + 1
    return level if level <= _LOWEST else 0


def _inside(element: Any, *tags: str) -> Iterator[Any]:
    """The parts of an element with some tags, also those in what is only put around them."""
    for part in element:
        if part.tag in tags:
            yield part
        elif part.tag in _AROUND and not _is_filled_in(part):
            yield from _inside(part, *tags)


def _text(element: Any) -> str:
    """The text of a paragraph."""
    return spell_raised("".join(_pieces(element)))


def _pieces(element: Any) -> Iterator[str]:
    for part in element:
        if part.tag in (_WORD + "t", _MATH + "t"):
            yield part.text or ""
        elif part.tag in _LETTERS:
            yield _LETTERS[part.tag]
        elif part.tag not in _GONE and not _is_filled_in(part) and not _is_hidden(part):
            yield _IN_FORMULAS.get(part.tag, "")
            if _is_raised(part) and not _is_raised(part.getprevious()):
                is_note = element.tag == _LINK or any(part.find(mark) is not None for mark in _NOTES)
                yield " " if is_note else RAISED
            yield from _pieces(part)


def _is_hidden(part: Any) -> bool:
    """Whether a part is a run of text that is not shown."""
    return _is_on(part.find(_HIDDEN))


def _is_on(switch: Any) -> bool:
    return switch is not None and switch.get(_WORD + "val") not in ("0", "false", "off")


def _is_raised(part: Any) -> bool:
    """Whether a part is a run of text that is written above the line."""
    if part is None or part.find(_WORD + "t") is None:
        return False
    place = part.find(f"{_WORD}rPr/{_WORD}vertAlign")
    return place is not None and place.get(_WORD + "val") == "superscript"


def _is_filled_in(part: Any) -> bool:
    """Whether Word itself has written what a field holds: a table of contents, or what asks for a text."""
    settings = part.find(_WORD + "sdtPr")
    if settings is None:
        return False
    gallery = settings.find(f"{_WORD}docPartObj/{_WORD}docPartGallery")
    made = gallery is not None and gallery.get(_WORD + "val") == "Table of Contents"
    return made or settings.find(_WORD + "showingPlcHdr") is not None


def _boxes(paragraph: Any) -> Iterator[Any]:
    """The boxes of text that are anchored in a paragraph."""
    for box in paragraph.iter(_BOX):
        if not any(outer.tag == _FALLBACK for outer in box.iterancestors()):
            yield box


def _rows(table: Any, headed: Collection[str]) -> Iterator[str]:
    """The rows of a table as sentences; `headed` are the styles of tables whose first row looks like no other."""
    rows: list[list[str]] = []
    for row in _inside(table, _ROW):
        rows.append([*_cells(row, rows[-1] if rows else [], headed)])
    yield from table_sentences(rows, _is_headed(table, headed))


def _is_headed(table: Any, headed: Collection[str]) -> bool:
    """Whether the first row looks like headings: by what is said of it, by the table's style, or in bold."""
    row = next(_inside(table, _ROW), None)
    if row is None or row.find(f"{_WORD}trPr/{_WORD}tblHeader") is not None:
        return True
    style, look = (table.find(f"{_WORD}tblPr/{_WORD}{name}") for name in ("tblStyle", "tblLook"))
    if style is not None and style.get(_WORD + "val") in headed:
        return look is None or look.get(_WORD + "firstRow") != "0"
    runs = [run for run in row.iter(_WORD + "r") if run.find(_WORD + "t") is not None]
    return bool(runs) and all(_is_on(run.find(f"{_WORD}rPr/{_WORD}b")) for run in runs)


def _cells(row: Any, above: list[str], headed: Collection[str]) -> Iterator[str]:
    """The texts of a row's cells, one for each column: a cell that is several wide or high is in all of its places."""
    column = 0
    for cell in _inside(row, _CELL):
        wide = cell.find(f"{_WORD}tcPr/{_WORD}gridSpan")
        high = cell.find(f"{_WORD}tcPr/{_WORD}vMerge")
        goes_on = high is not None and high.get(_WORD + "val") != "restart" and column < len(above)
        text = above[column] if goes_on else _cell_text(cell, headed)
        for _ in range(1 if wide is None else int(wide.get(_WORD + "val", 1))):
            yield text
            column += 1


def _cell_text(cell: Any, headed: Collection[str]) -> str:
    parts = _inside(cell, _PARAGRAPH, _TABLE)
    return "\n".join(" ".join(_rows(part, headed)) if part.tag == _TABLE else _text(part) for part in parts)
