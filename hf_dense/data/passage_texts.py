"""The texts of a corpus as models read them, without all of them in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, overload

from datasets import Dataset

_ROWS: Final = 1_000  # read at once


class PassageTexts(Sequence[str]):
    """What is searched of each passage, title + " " + text, read from the corpus when it is asked for.

    Args:
        corpus: columns `text` and, where there are titles, `title`.
    """

    def __init__(self, corpus: Dataset) -> None:
        self.corpus = corpus

    def __len__(self) -> int:
        """The number of passages."""
        return len(self.corpus)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        """One text, or a list of them."""
        if isinstance(place, int):
            return self[place : place + 1 or None][0]
        rows = self.corpus[place]
        titles = rows.get("title", [""] * len(rows["text"]))
        return [f"{title} {text}".strip() for title, text in zip(titles, rows["text"], strict=True)]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _ROWS):
            yield from self[start : start + _ROWS]
