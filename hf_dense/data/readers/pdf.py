"""PDF files, by pypdfium2: lines of print put together to paragraphs, with the headings that the outline names.

A PDF knows where letters stand, not what they are: headings that no outline names are told by their larger letters,
headers, footers and page numbers by standing first or last on page after page, a table of contents by its dots.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import regex  # type: ignore[import-untyped]

from hf_dense.data.passages import UNSPACED
from hf_dense.data.readers.page import Block, Heading, Page, UnreadableError, as_item, build_page

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

_HYPHEN: Final = "\2"  # pypdfium2's sign for one at the end of a line, with which the next is joined
_BROKEN_WORD: Final = re.compile(rf"{_HYPHEN}(?=[^\W\d_])(?![A-Z])|(?<=\w)-\n(?=[a-z])")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CLOSE: Final = rf"[{UNSPACED}、。，！？：；]"  # noqa: RUF001 (no space stands beside it)
_LINE_END: Final = regex.compile(rf"(?<={_CLOSE})\n(?={_CLOSE})")
_SENTENCE_END: Final = regex.compile(r"[\p{SB=ST}\p{SB=AT}…][\p{SB=CL}]*$")
_ITEM: Final = re.compile(r"[•◦▪‣●○■–*·]\s+")  # noqa: RUF001
_ENTRY: Final = re.compile(r"(\s?[.·…]){4,40}\s*[\divxlc]{1,8}$")  # of a table of contents
_AT_START: Final = re.compile(r"[\W_]*(?:page\s+)?(\d{1,4})\b", re.IGNORECASE)
_AT_END: Final = re.compile(r"\b(\d{1,4})(?:\s*(?:/|of)\s*\d{1,4})?[\W_]*$")
_ROMAN: Final = re.compile(r"(?=.)x{0,3}(?:ix|iv|v?i{0,3})")  # page numbers before the first chapter
_NUMBER: Final = re.compile(r"(chapter|section|appendix|part)?[a-z]?[\divx]*")  # of a heading, in plain letters
_SEVERAL: Final = 3  # pages
_NEAR: Final = 2  # pages to the one before, as headers of left and right pages differ
_DEEPEST: Final = 3  # lines of a header
_LONGEST: Final = 3  # lines of a heading
_LARGER: Final = 1.07  # times the usual size of letters
_RARE: Final = 0.2  # share of the lines that headings in larger letters are at most; else these are no headings
_FILE_NAME: Final = re.compile(r"\S+\.(docx?|odt|pptx?|xlsx?|pdf|tex|dvi|indd|qxd|fm)|untitled", re.IGNORECASE)
_PRINTED_BY: Final = re.compile(r"Microsoft (Word|PowerPoint|Excel) - ")


def read_pdf(path: Path) -> Page:
    """The page of a PDF file.

    Raises:
        UnreadableError: it is none, or asks for a password.
    """
    from pypdfium2 import PdfDocument, PdfiumError

    try:
        with PdfDocument(path) as document:
            _print_fields(document)
            title = _title(_readable(lambda: document.get_metadata_value("Title")))
            pages = [_lines(document, number) for number in range(len(document))]
            headings = {number: found[: len(pages[number])] for number, found in _outline(document).items()}
            _leave_out_running(pages, headings)
            large = {} if title and headings else _in_large_print(document, pages)
    except PdfiumError as error:
        raise UnreadableError from error
    return build_page(_blocks(pages, headings or large), title or _largest(large))


def _print_fields(document: PdfDocument) -> None:
    """Make what is filled into a form a part of its pages, behind their own text."""
    if document.get_formtype():
        document.init_forms()
        for number in range(len(document)):
            page = document[number]
            page.flatten()
            page.close()


def _readable(read: Callable[[], str]) -> str:
    """A text beside the pages; "" where it is no Unicode, as it says that it is."""
    try:
        return read()
    except UnicodeDecodeError:
        return ""


def _title(written: str) -> str:
    """A title, without what only a printing program says."""
    title = _PRINTED_BY.sub("", written).strip()
    return "" if _FILE_NAME.fullmatch(title) else title


def _largest(headings: Mapping[int, Sequence[Heading]]) -> str:
    """The one in the largest print, where it stands on the first page that has any: a title; else ""."""
    found = [heading for page in headings.values() for heading in page]
    highest = min((heading.level for heading in found), default=0)
    top = [heading for heading in found if heading.level == highest]
    return top[0].text if len(top) == 1 and top[0] in next(iter(headings.values())) else ""


def _outline(document: PdfDocument) -> dict[int, list[Heading]]:
    """The headings of each page, in their order."""
    found: dict[int, list[Heading]] = {}
    for entry in document.get_toc():
        target = entry.get_dest()
        page = None if target is None else target.get_index()
        if page is not None and (title := _clean(_readable(entry.get_title))):
            found.setdefault(page, []).append(Heading(entry.level + 1, title))
    return found


def _lines(document: PdfDocument, number: int) -> list[str]:
    """The lines of a page, but for entries of a table of contents."""
    page = document[number]
    text = _BROKEN_WORD.sub("", page.get_textpage().get_text_bounded().replace("\r\n", "\n"))
    page.close()
    lines = (_clean(line) for line in text.split("\n"))
    return [line for line in lines if line and not _ENTRY.search(line)]


def _clean(line: str) -> str:
    return " ".join(_CONTROL.sub(" ", _BROKEN_WORD.sub("", line).replace(_HYPHEN, "-")).split())


def _in_large_print(document: PdfDocument, pages: Sequence[Sequence[str]]) -> dict[int, list[Heading]]:
    """The headings of each page of a document without an outline: a few lines in larger letters than most of it has."""
    sizes = [_sizes(document, number) for number in range(len(pages))]
    letters: Counter[float] = Counter()
    for page, size in zip(pages, sizes, strict=True):
        for line in page:
            letters[size.get(line, 0)] += len(line)
    usual = max(letters, key=lambda size: letters[size], default=0)
    large = sorted((size for size in letters if size > _LARGER * usual), reverse=True)
    found: dict[int, list[Heading]] = {}
    for number, (page, size) in enumerate(zip(pages, sizes, strict=True)):
        for of, run in groupby(page, lambda line: size.get(line, 0)):  # noqa: B023 (called at once)
            lines = [*run]
            if of in large and len(lines) <= _LONGEST and any(map(str.isalpha, "".join(lines))):
                found.setdefault(number, []).append(Heading(large.index(of) + 1, " ".join(lines)))
    return found if sum(map(len, found.values())) <= _RARE * sum(map(len, pages)) else {}


def _sizes(document: PdfDocument, number: int) -> dict[str, float]:
    """The size of most upright letters of each line of a page, in half points; 0 of a line that goes up the margin."""
    from pypdfium2.raw import FPDFText_GetCharAngle, FPDFText_GetFontSize, FPDFText_GetUnicode

    page = document[number]
    text = page.get_textpage()
    found, letters, sizes = dict[str, float](), list[str](), Counter[float]()
    for at in range(text.count_chars() + 1):
        code = FPDFText_GetUnicode(text.raw, at)  # 0 behind the last
        if code in (0, 10, 13):
            if line := _clean("".join(letters)):
                found.setdefault(line, sizes.most_common(1)[0][0] if sizes else 0)
            letters, sizes = [], Counter()
            continue
        letters.append(chr(code))
        if not letters[-1].isspace() and not FPDFText_GetCharAngle(text.raw, at):
            sizes[round(2 * FPDFText_GetFontSize(text.raw, at)) / 2] += 1
    page.close()
    return found


def _leave_out_running(pages: Sequence[list[str]], headings: Mapping[int, Sequence[Heading]]) -> None:
    """Take out lines that stand first or last on page after page, all but the first, and those with page numbers."""
    first = None
    for _ in range(_DEEPEST):
        first = _first_number(pages) if first is None else first  # it may stand below other lines of a header
        for edge in (0, -1):
            counts, seen = Counter(page[edge] for page in pages if page), dict[str, int]()
            for number, page in enumerate(pages):
                if not page or any(_says(page[edge], heading.text) for heading in headings.get(number, ())):
                    continue
                line = page[edge]
                is_number = first is not None and first + number in _numbers(line)
                is_repeated = counts[line] >= _SEVERAL and number - seen.get(line, -_SEVERAL) <= _NEAR
                if is_number or is_repeated or _ROMAN.fullmatch(line):
                    del page[edge]
                seen[line] = number


def _first_number(pages: Sequence[Sequence[str]]) -> int | None:
    """The number that the first page has, or would have; None where pages have none."""
    found: Counter[int] = Counter()
    for at, page in enumerate(pages):
        found.update({number - at for line in {*page[:1], *page[-1:]} for number in _numbers(line)})
    [(first, times)] = found.most_common(1) or [(0, 0)]
    return first if times >= max(_SEVERAL, sum(map(bool, pages)) / 2) else None


def _numbers(line: str) -> set[int]:
    """The numbers with which a line begins and ends that is no sentence, as the last of a note is."""
    if _SENTENCE_END.search(line):
        return set()
    return {int(found[1]) for found in (_AT_START.match(line), _AT_END.search(line)) if found}


def _blocks(pages: Sequence[Sequence[str]], headings: Mapping[int, Sequence[Heading]]) -> Iterator[Block]:
    """The headings that are found on their pages, and paragraphs, items of lists among them."""
    text: list[str] = []  # lines of the paragraph that has begun
    for number, page in enumerate(pages):
        for part in _with_headings(page, headings.get(number, ())):
            if isinstance(part, Heading):
                yield _paragraph(text)
                yield part
                text = []
                continue
            if _ITEM.match(part):
                yield _paragraph(text)
                text = []
            text.append(part)
        if text and _SENTENCE_END.search(text[-1]):
            yield _paragraph(text)
            text = []
    yield _paragraph(text)


def _with_headings(lines: Sequence[str], headings: Iterable[Heading]) -> Iterator[str | Heading]:
    """Lines, with headings in the place of those that say the same."""
    start = 0
    for heading in headings:
        places = ((at, to) for at in range(start, len(lines)) for to in range(at + 1, at + 1 + _LONGEST))
        place = next((place for place in places if _says(" ".join(lines[slice(*place)]), heading.text)), None)
        if place is not None:
            yield from lines[start : place[0]]
            yield heading
            start = place[1]
    yield from lines[start:]


def _says(line: str, heading: str) -> bool:
    """Whether a line is a heading, with its number or without."""
    wanted, found = _letters(heading), _letters(line)
    return bool(wanted) and found.endswith(wanted) and _NUMBER.fullmatch(found.removesuffix(wanted)) is not None


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _paragraph(lines: Sequence[str]) -> str:
    """Lines of print as one; words that were broken at the end of a page are joined, too."""
    text: str = _LINE_END.sub("", _BROKEN_WORD.sub("", "\n".join(lines))).replace("\n", " ")
    item = _ITEM.match(text)
    return as_item(text[item.end() :]) if item else text
