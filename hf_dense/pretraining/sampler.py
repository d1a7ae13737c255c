"""Batches of texts of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler


class LengthGroupedSampler(Sampler[int]):
    """A random order of rows in which the rows of a batch have similar lengths.

    Rows are shuffled, cut into pools of 64 batches, sorted by length in each pool, and the batches shuffled. The order
    is a function of (seed, epoch), so a resumed run reads what an uninterrupted one would have.

    Args:
        lengths: length of each row, in tokens.
        batch: rows per step, over all processes and accumulated batches: a step reads the same rows however it is cut.
        seed: seed of the order.
    """

    def __init__(self, lengths: Sequence[int], batch: int, seed: int) -> None:
        self.lengths = np.asarray(lengths)
        self.batch = batch
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.lengths)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of visit number `epoch`."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self.seed, self.epoch])
        order = rng.permutation(len(self.lengths))
        pool = 64 * self.batch
        for start in range(0, len(order), pool):
            part = order[start : start + pool]
            order[start : start + pool] = part[np.argsort(self.lengths[part], kind="stable")]
        full = len(order) // self.batch * self.batch
        batches = rng.permutation(order[:full].reshape(-1, self.batch), axis=0)
        yield from batches.reshape(-1).tolist()
        yield from order[full:].tolist()
