"""Random orders of texts, in which the texts of a batch may have similar lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler


class PassageSampler(Sampler[int]):
    """A random order of rows, in which the rows of a batch may have similar lengths.

    Rows are shuffled; to be grouped they are cut into pools of 64 batches, sorted by length in each pool, and the
    batches shuffled. The order is a function of (seed, epoch), so a resumed run reads what an uninterrupted one would
    have.

    Args:
        lengths: length of each row, in tokens.
        batch: rows per step, over all processes and accumulated batches: a step reads the same rows however it is cut.
        seed: seed of the order.
        group_by_length: whether the rows of a batch have similar lengths.
    """

    def __init__(self, lengths: Sequence[int], batch: int, seed: int, group_by_length: bool = True) -> None:
        self.lengths = np.asarray(lengths)
        self.batch = batch
        self.seed = seed
        self.group_by_length = group_by_length
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.lengths)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        yield from self.order(self.epoch)

    def order(self, epoch: int) -> list[int]:
        """The rows of an epoch as they are read."""
        rows: list[int] = self._mixed(self.lengths, self.batch, np.random.default_rng([self.seed, epoch])).tolist()
        return rows

    def _mixed(self, lengths: NDArray[np.int64], batch: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return grouped(lengths, batch, rng) if self.group_by_length else rng.permutation(len(lengths))


class SiblingSampler(PassageSampler):
    """Two passages of every document in each epoch, drawn anew, one after the other (coCondenser).

    Every batch holds whole pairs; a batch that would be cut short is left out, as a smaller one has fewer negatives.

    Args:
        lengths: length of each row, in tokens.
        documents: number of the document of each row; those with a single row are passed over.
        batch: rows per step, even.
        seed: seed of the order and of the draws.
        group_by_length: whether the pairs of a batch have similar lengths.
    """

    def __init__(
        self, lengths: Sequence[int], documents: Sequence[int], batch: int, seed: int, group_by_length: bool = True
    ) -> None:
        super().__init__(lengths, batch, seed, group_by_length)
        rows = np.argsort(np.asarray(documents), kind="stable")
        _, self.counts = np.unique(np.asarray(documents), return_counts=True)
        starts = np.cumsum(self.counts) - self.counts
        several = self.counts > 1
        self.rows, self.starts, self.counts = rows, starts[several], self.counts[several]

    def __len__(self) -> int:
        return 2 * len(self.starts) // self.batch * self.batch

    def order(self, epoch: int) -> list[int]:
        """The rows of an epoch as they are read, pairs together."""
        rng = np.random.default_rng([self.seed, epoch])
        first = rng.integers(self.counts)
        second = (first + rng.integers(1, self.counts)) % self.counts
        pairs = np.stack([self.rows[self.starts + first], self.rows[self.starts + second]], axis=1)
        order = self._mixed(self.lengths[pairs].sum(axis=1), self.batch // 2, rng)
        rows: list[int] = pairs[order].reshape(-1)[: len(self)].tolist()
        return rows


def grouped(lengths: NDArray[np.int64], batch: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A random order in which the items of a batch have similar lengths; an incomplete batch comes last."""
    order = rng.permutation(len(lengths))
    pool = 64 * batch
    for start in range(0, len(order), pool):
        part = order[start : start + pool]
        order[start : start + pool] = part[np.argsort(lengths[part], kind="stable")]
    full = len(order) // batch * batch
    batches = rng.permutation(order[:full].reshape(-1, batch), axis=0)
    return np.concatenate([batches.reshape(-1), order[full:]])
