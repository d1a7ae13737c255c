"""HTML with the ends that it leaves out: those of rows, cells, items and paragraphs need not be written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from html.parser import HTMLParser
from itertools import accumulate
from typing import Final

_CELLS: Final = frozenset({"td", "th"})
_PARTS: Final = frozenset({"thead", "tbody", "tfoot", "caption"})
_LISTS: Final = frozenset({"ul", "ol", "menu", "dl", "table"})
# What the start of an element ends: those of these names that are open, and no further out than one of the others.
_ENDS: Final[dict[str, tuple[Set[str], Set[str]]]] = {
    **dict.fromkeys(_CELLS, (_CELLS, {"tr", "table"})),
    "tr": (_CELLS | {"tr", "caption"}, {"table"}),
    **dict.fromkeys(_PARTS, (_CELLS | {"tr"} | _PARTS, {"table"})),
    "li": ({"li"}, _LISTS),
    **dict.fromkeys(("dt", "dd"), ({"dt", "dd"}, _LISTS)),
}
_END_OF_PARAGRAPH: Final = ({"p"}, _LISTS | _CELLS | {"li", "dt", "dd", "caption", "button"})
_ENDING_PARAGRAPHS: Final = (
    *("p", "ul", "ol", "dl", "table", "pre", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "details"),
    *("address", "article", "aside", "div", "fieldset", "figure", "footer", "form", "header", "main", "nav"),
    *("section", *_ENDS),
)
_VOID: Final = (
    *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"),
)


def write_ends(content: str) -> str:
    """An HTML text with those ends that a parser has to know of.

    >>> write_ends("<table><tr><td>a<td>b<tr><td>c</table><p>d<p>e")
    '<table><tr><td>a</td><td>b</td></tr><tr><td>c</table><p>d</p><p>e'

    Raises:
        AssertionError: it cannot be parsed.
    """
    found = _Ends()
    found.feed(content)
    found.close()
    lines = [0, *accumulate(len(line) + 1 for line in content.split("\n"))]
    parts, at = [], 0
    for line, column, ends in found.missing:
        place = lines[line - 1] + column
        parts += [content[at:place], ends]
        at = place
    return "".join([*parts, content[at:]])


class _Ends(HTMLParser):
    """Finds the ends that are missing.

    Attributes:
        missing: the line (from 1) and the column before which they belong, and the ends.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.missing: list[tuple[int, int, str]] = []
        self._open: list[str] = []
        self._counts = Counter[str]()  # of what is open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        ends = self._end(*_END_OF_PARAGRAPH) if tag in _ENDING_PARAGRAPHS else ""
        if tag in _ENDS:
            ends += self._end(*_ENDS[tag])
        if ends:
            self.missing.append((*self.getpos(), ends))
        if tag not in _VOID:
            self._open.append(tag)
            self._counts[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if self._counts[tag]:
            while self._close() != tag:
                pass

    def _end(self, names: Set[str], within: Set[str]) -> str:
        """Close what is open of these names, and all in it; the ends, the innermost first."""
        ends, place, last = "", len(self._open), len(self._open)
        left = sum(self._counts[name] for name in names)
        while left and self._open[place - 1] not in within:
            place -= 1
            if self._open[place] in names:
                ends, last, left = f"{ends}</{self._open[place]}>", place, left - 1
        while len(self._open) > last:
            self._close()
        return ends

    def _close(self) -> str:
        tag = self._open.pop()
        self._counts[tag] -= 1
        return tag
