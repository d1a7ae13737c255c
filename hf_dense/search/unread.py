"""What a model does not read of the texts that it encodes: those that are longer than it takes are cut."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
from numpy.typing import NDArray

_LEAST: Final = 0.1  # share of all tokens, from which on it is said: a title makes most full passages a little too long

logger = logging.getLogger(__name__)


@contextmanager
def said_before() -> Iterator[None]:
    """Keep from saying it again of texts that are only read again, to see how long that takes."""
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


class Unread:
    """Counts tokens that are cut off.

    Args:
        longest: tokens that the model reads of a text; None where that has no limit, or is not known.
    """

    def __init__(self, longest: int | None) -> None:
        self.longest = longest
        self._texts = self._cut = self._tokens = self._left_out = 0

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Count texts: (texts,) tokens of each, whole."""
        if self.longest is None:
            return
        over = np.maximum(lengths - self.longest, 0)
        self._texts += len(lengths)
        self._cut += int((over > 0).sum())
        self._tokens += int(lengths.sum())
        self._left_out += int(over.sum())

    def warn(self, what: str, advice: str) -> None:
        """Say how much it was, where it was a tenth or more of all.

        Args:
            what: the texts are.
            advice: a sentence that says what to do.
        """
        if self._tokens and self._left_out >= _LEAST * self._tokens:
            logger.warning(
                "The model reads %s tokens of a text, and %s of %s %s are longer: %.0f %% of all tokens are not "
                "read. %s",
                *(f"{number:,}" for number in (self.longest or 0, self._cut, self._texts)),
                what,
                100 * self._left_out / self._tokens,
                advice,
            )
