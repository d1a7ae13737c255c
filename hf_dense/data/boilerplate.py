"""What nearly all pages of a site say, outside of its marked navigation: licences, notices, lists of links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from hf_dense.data.readers.page import PATH_MARK, Section, as_sentence

_PAGES: Final = 40  # that are looked at
_FEWEST: Final = 10  # of which something may be said
_SHARE: Final = 0.75  # of them, on which it stands
_LABELS: Final = (":", "：")  # noqa: RUF001 (of what follows: Parameters:)

Item = TypeVar("Item")


def drawn_evenly(pages: Sequence[Item]) -> list[Item]:
    """The pages that are looked at; none where there are too few."""
    number = min(len(pages), _PAGES)
    return [] if number < _FEWEST else [pages[at * len(pages) // number] for at in range(number)]


class Boilerplate:
    """Paragraphs that three quarters of some pages have, but for headings and labels; the first of each stays.

    Args:
        pages: their sections.

    >>> pages = [(Section("", f"Page {number}.\\n\\nAll rights reserved."),) for number in range(10)]
    >>> found = Boilerplate(pages)
    >>> found.removed_from(pages[0])[0].text, found.removed_from(pages[1])[0].text
    ('Page 0.\\n\\nAll rights reserved.', 'Page 1.')
    """

    def __init__(self, pages: Iterable[Sequence[Section]]) -> None:
        found = [{text for section in page for text in _paragraphs(section)} for page in pages]
        counts = Counter(text for texts in found for text in texts)
        self._repeated = {text for text, number in counts.items() if number >= _SHARE * len(found)}
        self._said: set[str] = set()
        self.number = 0  # of those that were left out

    def removed_from(self, sections: Sequence[Section]) -> tuple[Section, ...]:
        """Sections without what an earlier page said; what is empty then goes."""
        kept = (replace(section, text="\n\n".join(self._own(section))) for section in sections)
        return tuple(section for section in kept if section.text)

    def _own(self, section: Section) -> Iterator[str]:
        repeated = self._repeated.intersection(_paragraphs(section))
        for text in section.text.split("\n\n"):
            if text in repeated and text in self._said:
                self.number += 1
            else:
                yield text
        self._said |= repeated


def _paragraphs(section: Section) -> set[str]:
    """The paragraphs of a section that are neither its headings nor labels."""
    headings = set(map(as_sentence, section.path.split(PATH_MARK)))
    return {text for text in section.text.split("\n\n") if text not in headings and not text.endswith(_LABELS)}
