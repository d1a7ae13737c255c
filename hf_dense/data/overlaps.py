"""Texts found in a corpus by the words that they share with its passages, however either was cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hf_dense.data.duplicates import word_runs

_LEAST: Final = 4  # runs of five words: eight words in a row
_COMMON: Final = 100  # texts; what stands in more of them tells none from another


class Overlaps:
    """Passages that hold half of a text, or of which a text holds half.

    Compared are runs of five words, by hashes of 64 bits; neither case, spaces nor punctuation make a difference.
    Shared are at least four runs, so that a text of less than eight words is never found. Runs of more than 100 of the
    texts do not count.

    Args:
        texts: by name; at least one.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.names = list(texts)
        flat, starts = word_runs(list(texts.values()))
        pairs = np.unique(np.stack([flat, _owners(starts, len(flat))], axis=1), axis=0)  # sorted by the run
        self.sizes = np.bincount(pairs[:, 1].astype(np.int64), minlength=len(self.names))
        self.runs, self.first, self.counts = np.unique(pairs[:, 0], return_index=True, return_counts=True)
        self.owners = pairs[:, 1].astype(np.int64)
        self.counts[self.counts > _COMMON] = 0

    def find(self, passages: Sequence[str]) -> Iterator[tuple[str, int, NDArray[np.int32]]]:
        """The name of each text that is found, the row of the passage, and the runs that they share (numbers, each
        once); in the order of the passages.
        """
        flat, starts = word_runs(passages)
        rows, sizes = _owners(starts, len(flat)), np.diff(starts, append=len(flat))
        places = np.minimum(np.searchsorted(self.runs, flat), len(self.runs) - 1)
        known = (self.runs[places] == flat) & (self.counts[places] > 0)
        met = np.unique(np.stack([rows[known].astype(np.int64), places[known]], axis=1), axis=0)
        counts = self.counts[met[:, 1]]
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        owners = self.owners[np.repeat(self.first[met[:, 1]], counts) + within]
        order = np.lexsort((owners, np.repeat(met[:, 0], counts)))
        met = np.repeat(met, counts, axis=0)[order]
        both = np.stack([met[:, 0], owners[order]], axis=1)
        pairs, begins, shared = np.unique(both, axis=0, return_index=True, return_counts=True)
        smaller = np.minimum(sizes[pairs[:, 0]], self.sizes[pairs[:, 1]])
        for at in np.flatnonzero((shared >= _LEAST) & (2 * shared >= smaller)):
            row, text = pairs[at]
            yield self.names[text], int(row), met[begins[at] : begins[at] + shared[at], 1].astype(np.int32)


def nearest(shared: Sequence[NDArray[np.int32]]) -> list[int]:
    """Of the passages that share runs with a text those that it stands in.

    One that shares fewer runs than others, at least half of which are not among theirs, holds another part of the text;
    else it is only like them.

    Args:
        shared: the runs of each passage.

    >>> nearest([np.arange(9), np.arange(6), np.arange(20, 26), np.arange(1, 10)])
    [0, 2, 3]
    """
    runs, kept, covered = [set(found.tolist()) for found in shared], list[int](), set[int]()
    for size, alike in groupby(sorted(range(len(runs)), key=lambda at: -len(runs[at])), lambda at: len(runs[at])):
        new = [at for at in alike if 2 * len(runs[at] - covered) >= size]
        covered.update(*(runs[at] for at in new))
        kept += new
    return sorted(kept)


def _owners(starts: np.ndarray, total: int) -> np.ndarray:
    """The number of the text of each run."""
    return np.repeat(np.arange(len(starts), dtype=np.uint64), np.diff(starts, append=total))
