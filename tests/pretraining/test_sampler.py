"""Every row once per visit, batches of similar lengths, an order that a resumed run finds again."""

from __future__ import annotations

import numpy as np
import pytest

from hf_dense.pretraining.sampler import LengthGroupedSampler

LENGTHS = np.random.default_rng(0).integers(4, 64, size=2003)


def padding(order: list[int], batch: int) -> float:
    """Share of a batch that is padding, over all batches."""
    batches = [LENGTHS[order[start : start + batch]] for start in range(0, len(order), batch)]
    return 1 - LENGTHS.sum() / sum(int(rows.max()) * len(rows) for rows in batches)


@pytest.mark.parametrize("count", [1, 7, 8, 100, 2003])
def test_every_row_is_read_once(count: int) -> None:
    sampler = LengthGroupedSampler(LENGTHS[:count], 8, 0)
    assert len(sampler) == count
    assert sorted(sampler) == list(range(count))


def test_batches_hold_texts_of_similar_length() -> None:
    sampler = LengthGroupedSampler(LENGTHS, 8, 0)
    shuffled = np.random.default_rng(1).permutation(len(LENGTHS)).tolist()
    assert padding(shuffled, 8) > 0.3
    assert padding(list(sampler), 8) < 0.1


def test_batches_are_not_sorted_by_length() -> None:
    order = list(LengthGroupedSampler(LENGTHS, 8, 0))
    means = [LENGTHS[order[start : start + 8]].mean() for start in range(0, 2000, 8)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    sampler, again, other = (LengthGroupedSampler(LENGTHS, 8, seed) for seed in (0, 0, 1))
    first = list(sampler)
    assert list(sampler) == first == list(again)
    assert list(other) != first
    sampler.set_epoch(1)
    second = list(sampler)
    assert second != first
    again.set_epoch(1)
    assert list(again) == second
    sampler.set_epoch(0)
    assert list(sampler) == first
