"""The texts of a corpus as models read them: title + " " + text, without all of them in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, overload

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

_ROWS: Final = 1_000  # read at once


def passage_text(title: str | None, text: str | None) -> str:
    """What is read of a passage: its title and its text, those that it has, with a space between.

    >>> passage_text("Title", "text"), passage_text("", "text")
    ('Title text', 'text')
    >>> passage_text(None, None)
    ''
    """
    return f"{title or ''} {text or ''}".strip()


class PassageTexts(Sequence[str]):
    """What is read of each passage, from the corpus when it is asked for.

    Args:
        corpus: columns `text` and, where there are titles, `title`.
    """

    def __init__(self, corpus: Dataset) -> None:
        self.corpus = corpus

    def __len__(self) -> int:
        """The number of passages."""
        return len(self.corpus)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | NDArray[np.int64]) -> list[str]: ...
    def __getitem__(self, index: int | slice | Sequence[int] | NDArray[np.int64]) -> str | list[str]:
        """One text, or a list of them."""
        if isinstance(index, int | np.integer):
            return self[index : index + 1 or None][0]
        rows = self.corpus[index]
        titles = rows.get("title", [""] * len(rows["text"]))
        return list(map(passage_text, titles, rows["text"]))

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _ROWS):
            yield from self[start : start + _ROWS]
