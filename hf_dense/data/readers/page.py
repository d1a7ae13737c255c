"""A page: its title and its sections, built from the headings, paragraphs and code that a reader finds in a file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import regex  # type: ignore[import-untyped]

CodeOption = Literal["keep", "drop", "fence"]  # its words as a paragraph, nothing, or the paragraph between ```

PATH_MARK: Final = " > "  # between the headings of a path
RAISED: Final = "\4"  # while a text is put together: before what is written above the line
_WORD_ABOVE: Final = re.compile(rf"(?<=[\w)\]]){RAISED}(?=[^\W\d_]{{2}})")
_ABOVE: Final = re.compile(rf"(?<=[\w)\]]){RAISED}(?=[-+−(]?\w)")  # noqa: RUF001
_LONGEST_HEADING: Final = 200  # characters; what is longer is a paragraph in bold
_ENDED: Final = regex.compile(r"[\p{SB=ST}\p{SB=AT}…]$")
_GOES_ON: Final = (":", ";", ",", "：", "；", "，", "、", "،", "؛")  # noqa: RUF001
_TRAILING: Final = " ".join(("", *_GOES_ON))  # of a heading
_SOFT_HYPHEN: Final = "\u00ad"  # where a line may end in a word, which is two words with it


class UnreadableError(Exception):
    """A file that is not what its name says."""


@dataclass(frozen=True)
class Heading:
    """A heading: `level` is the smaller, the higher it stands."""

    level: int
    text: str


@dataclass(frozen=True)
class Code:
    """A block of code."""

    text: str


Block = Heading | Code | str  # a string is a paragraph


@dataclass(frozen=True)
class Section:
    """What stands between two headings.

    Args:
        path: the headings above it, from the highest to its own, below the document's title: "Install > Windows".
        text: its headings that stand directly before it, as sentences, and its paragraphs, divided by empty lines.
    """

    path: str
    text: str


@dataclass(frozen=True)
class Page:
    """What a file holds.

    Args:
        title: "" if there is none.
        sections: in their order.
        is_windows: whether its bytes are no UTF-8, and were taken for Windows-1252.
    """

    title: str
    sections: tuple[Section, ...]
    is_windows: bool = field(default=False, repr=False)


def build_page(blocks: Iterable[Block], title: str = "", code: CodeOption = "keep") -> Page:
    """Blocks in reading order, as a page.

    The first heading is the document's title where no other stands as high, if it stands above all, says what the given
    title says, or is of level 1 where none is given. It is in no path then, and in the text only where a title is given
    that says something else.

    Args:
        blocks: what was found in a file.
        title: what the file says of itself, elsewhere.
        code: what becomes of code.

    >>> page = build_page([Heading(1, "Guide"), "Hello.", Heading(2, "Install"), Heading(3, "Linux"), "Run it."])
    >>> page.title, page.sections[0]
    ('Guide', Section(path='', text='Hello.'))
    >>> page.sections[1]
    Section(path='Install > Linux', text='Install.\\n\\nLinux.\\n\\nRun it.')
    """
    cleaned = [block for block in map(_clean, blocks) if block != ""]
    title = _spaced(title)
    top = _title_heading(cleaned, title)
    builder = _Builder(code)
    for block in cleaned:
        if block is top and not title:
            title = top.text
        elif block is top:
            builder.add_sentence("" if _says(title, top.text) else top.text)
        else:
            builder.add(block)
    return Page(title, tuple(Section(path, "\n\n".join(texts)) for path, texts in builder.sections))


def as_sentence(text: str) -> str:
    """A heading, or a row, with a stop at its end.

    >>> as_sentence("Install:"), as_sentence("Why?")
    ('Install.', 'Why?')
    """
    return text if _ENDED.search(text) else f"{text.rstrip(_TRAILING)}."


def spell_raised(text: str) -> str:
    """A text in which `RAISED` is a sign: a power must not run into its number, as an ordinal does.

    >>> spell_raised(f"10{RAISED}-6"), spell_raised(f"2{RAISED}nd"), spell_raised(f"said{RAISED}[1]")
    ('10^-6', '2nd', 'said [1]')
    """
    return _ABOVE.sub("^", _WORD_ABOVE.sub("", text)).replace(RAISED, " ")


def as_item(text: str) -> str:
    """An item of a list, with a stop at its end where no mark stands there, so that it does not run into the next.

    >>> as_item("unpack it"), as_item("either:"), as_item("")
    ('unpack it.', 'either:', '')
    """
    text = text.rstrip()
    return text if not text or _ENDED.search(text) or text.endswith(_GOES_ON) else f"{text}."


def row_sentence(header: Sequence[str], row: Sequence[str]) -> str:
    """A row of a table as a sentence: every value after the heading of its column.

    >>> row_sentence(["Option", "Default", ""], ["--code", "keep", "see below", ""])
    'Option: --code; Default: keep; see below.'
    """
    names = [*header, *[""] * len(row)]
    cells = [(" ".join(name.split()), " ".join(value.split())) for name, value in zip(names, row, strict=False)]
    found = [f"{name.rstrip(':')}: {value}" if name else value for name, value in cells if value]
    return as_sentence("; ".join(found)) if found else ""


def table_sentences(rows: Sequence[Sequence[str]], is_headed: bool = True) -> Iterator[str]:
    """The rows of a table as sentences; a table of two columns without a row of headings has them in the first one.

    >>> list(table_sentences([["Voltage", "230 V"], ["Weight", "12 kg"]], is_headed=False))
    ['Voltage: 230 V.', 'Weight: 12 kg.']
    """
    if not is_headed and len(rows) > 1 and all(len(row) == 2 for row in rows):
        yield from (row_sentence([name], [value]) or row_sentence([], [name]) for name, value in rows)
    else:
        head, values = (rows[0], rows[1:]) if len(rows) > 1 else ([], rows)
        yield from (row_sentence(head, row) for row in values)


def _clean(block: Block) -> Block:
    """The same with single spaces, and words in one; "" where nothing is left."""
    text = _spaced(block if isinstance(block, str) else block.text)
    if isinstance(block, Heading) and text and len(text) <= _LONGEST_HEADING:
        return Heading(block.level, text)
    return Code(text) if isinstance(block, Code) and text else text


def _spaced(text: str) -> str:
    return " ".join(text.replace(_SOFT_HYPHEN, "").split())


def _title_heading(blocks: Sequence[Block], title: str) -> Heading | None:
    """The heading that is the document's title."""
    headings = [block for block in blocks if isinstance(block, Heading)]
    if not headings:
        return None
    first, levels = headings[0], Counter(heading.level for heading in headings)
    alone = first.level == min(levels) and levels[first.level] == 1
    likely = blocks[0] is first or (_says(title, first.text) if title else first.level <= 1)
    return first if alone and likely else None


def _says(title: str, heading: str) -> bool:
    return heading.casefold() in title.casefold()


class _Builder:
    """Sections as they come about: a text opens one where a heading stands before it."""

    def __init__(self, code: CodeOption) -> None:
        self.code = code
        self.sections: list[tuple[str, list[str]]] = []
        self._path: list[Heading] = []
        self._before: list[str] = []  # sentences of headings that no text has followed yet

    def add(self, block: Block) -> None:
        """Add what comes next."""
        if isinstance(block, Heading):
            while self._path and self._path[-1].level >= block.level:
                self._path.pop()
            self._path.append(block)
            self.add_sentence(block.text)
        elif isinstance(block, str):
            self._add_text(block)
        elif self.code != "drop":
            self._add_text(f"``` {block.text} ```" if self.code == "fence" else block.text)

    def add_sentence(self, heading: str) -> None:
        """Let a heading stand before the next text."""
        if heading:
            self._before.append(as_sentence(heading))

    def _add_text(self, text: str) -> None:
        path = PATH_MARK.join(heading.text for heading in self._path)
        if not self.sections or self.sections[-1][0] != path or self._before:
            self.sections.append((path, []))
        self.sections[-1][1].extend([*self._before, text])
        self._before = []
