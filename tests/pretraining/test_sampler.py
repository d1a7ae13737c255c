"""Every row once per epoch, batches of similar lengths, an order that a resumed run finds again."""

from __future__ import annotations

import numpy as np
import pytest

from hf_dense.pretraining.sampler import PassageSampler, SiblingSampler

LENGTHS = np.random.default_rng(0).integers(4, 64, size=2003)


def padding(order: list[int], batch: int) -> float:
    """Share of a batch that is padding, over all batches."""
    batches = [LENGTHS[order[start : start + batch]] for start in range(0, len(order), batch)]
    return 1 - LENGTHS.sum() / sum(int(rows.max()) * len(rows) for rows in batches)


@pytest.mark.parametrize("count", [1, 7, 8, 100, 2003])
def test_every_row_is_read_once(count: int) -> None:
    sampler = PassageSampler(LENGTHS[:count], 8, 0)
    assert len(sampler) == count
    assert sorted(sampler) == list(range(count))


def test_batches_hold_texts_of_similar_length() -> None:
    sampler = PassageSampler(LENGTHS, 8, 0)
    shuffled = np.random.default_rng(1).permutation(len(LENGTHS)).tolist()
    assert padding(shuffled, 8) > 0.3
    assert padding(list(sampler), 8) < 0.1


def test_without_groups_an_order_is_random_whatever_the_lengths() -> None:
    order = list(PassageSampler(LENGTHS, 8, 0, group_by_length=False))
    assert sorted(order) == list(range(len(LENGTHS)))
    assert padding(order, 8) > 0.3
    assert order == list(PassageSampler(LENGTHS[::-1], 8, 0, group_by_length=False))
    assert order != list(PassageSampler(LENGTHS, 8, 1, group_by_length=False))


def test_batches_are_not_sorted_by_length() -> None:
    order = list(PassageSampler(LENGTHS, 8, 0))
    means = [LENGTHS[order[start : start + 8]].mean() for start in range(0, 2000, 8)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    sampler, again, other = (PassageSampler(LENGTHS, 8, seed) for seed in (0, 0, 1))
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


DOCUMENTS = np.random.default_rng(1).integers(0, 400, size=len(LENGTHS))
DOCUMENTS[:5] = np.arange(1000, 1005)  # five documents of a single row


def pairs_of(sampler: SiblingSampler) -> list[tuple[int, int]]:
    order = list(sampler)
    return list(zip(order[::2], order[1::2], strict=True))


def test_siblings_are_two_different_rows_of_one_document_once_an_epoch() -> None:
    sampler = SiblingSampler(LENGTHS, DOCUMENTS.tolist(), 8, 0)
    pairs = pairs_of(sampler)
    several = int((np.unique(DOCUMENTS, return_counts=True)[1] > 1).sum())
    assert len(sampler) == 2 * len(pairs) == 2 * several // 8 * 8
    assert all(first != second and DOCUMENTS[first] == DOCUMENTS[second] for first, second in pairs)
    assert len({DOCUMENTS[first] for first, _ in pairs}) == len(pairs)
    assert not {row for pair in pairs for row in pair} & set(range(5))


def test_siblings_are_drawn_uniformly_and_anew_in_each_epoch() -> None:
    sampler = SiblingSampler([4, 5, 6], [7, 7, 7], 2, 0)
    drawn = []
    for epoch in range(600):
        sampler.set_epoch(epoch)
        drawn += pairs_of(sampler)
    counts = [drawn.count((first, second)) for first in range(3) for second in range(3) if first != second]
    assert sum(counts) == 600
    assert min(counts) > 70  # 100 expected


def test_batches_of_siblings_hold_pairs_of_similar_length() -> None:
    order = list(SiblingSampler(LENGTHS, DOCUMENTS.tolist(), 8, 0))
    totals = LENGTHS[np.array(order)].reshape(-1, 4, 2).sum(axis=2)
    assert (totals.max(axis=1) - totals.min(axis=1)).mean() < 0.1 * totals.mean()


def test_siblings_without_groups_are_the_same_pairs_in_a_random_order() -> None:
    grouped, mixed = (SiblingSampler(LENGTHS, DOCUMENTS.tolist(), 2, 0, groups) for groups in (True, False))
    assert {frozenset(pair) for pair in pairs_of(grouped)} == {frozenset(pair) for pair in pairs_of(mixed)}
    order = list(SiblingSampler(LENGTHS, DOCUMENTS.tolist(), 8, 0, group_by_length=False))
    totals = LENGTHS[np.array(order)].reshape(-1, 4, 2).sum(axis=2)
    assert (totals.max(axis=1) - totals.min(axis=1)).mean() > 0.5 * totals.mean()


def test_documents_of_one_row_give_no_siblings() -> None:
    assert list(SiblingSampler([4, 5, 6], [0, 1, 2], 2, 0)) == []
