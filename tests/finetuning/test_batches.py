"""Which rows come together in a batch."""

from __future__ import annotations

import logging
import random
from itertools import chain
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from tiny_retriever import write_retriever

from hf_dense.finetuning.batches import PairSampler, Waiting
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune


def pairs(count: int, popular: float) -> Dataset:
    """Pairs of which so many have one passage, and some a query or a passage twice."""
    generator = random.Random(count)
    queries = [f"query {generator.randrange(count)}" for _ in range(count)]
    passages = [f"text {0 if generator.random() < popular else generator.randrange(count)}" for _ in range(count)]
    return Dataset.from_dict({"query": queries, "passage": passages})


@pytest.mark.parametrize("popular", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_of_pairs_are_those_of_sentence_transformers(popular: float, drop_last: bool) -> None:
    for count in (3, 64, 200):
        both = [
            kind(pairs(count, popular), 8, drop_last, generator=torch.Generator(), seed=3)
            for kind in (NoDuplicatesBatchSampler, PairSampler)
        ]
        for epoch in (0, 1):
            for sampler in both:
                sampler.set_epoch(epoch)
            theirs, ours = (list(sampler) for sampler in both)
            assert ours == theirs
            assert len(both[0]) == len(both[1])


def test_what_waits_is_not_looked_at_for_every_batch() -> None:
    looked: list[int] = []

    def names(row: int) -> tuple[str, str]:
        looked.append(row)
        return f"query {row}", "popular" if row % 2 else f"text {row}"

    waiting, steps = Waiting(range(2_000), names), list[list[int]]()
    while waiting:
        steps.append(waiting.apart(10))
    assert sorted(chain(*steps)) == list(range(2_000))
    assert all(sum(row % 2 for row in step) <= 1 for step in steps)
    assert len(looked) <= 4_000, "each when it is met first, and when it is taken"


def test_rows_that_wait_come_in_their_order_where_they_are_wanted_whatever_they_share() -> None:
    waiting = Waiting([4, 1, 3, 0, 2], lambda row: ("a",) if row < 3 else ("b",))
    assert waiting.apart(5) == [4, 1]
    assert waiting.first(2) == [3, 0]
    assert waiting.apart(2) == [2]
    assert not waiting
    assert waiting.first(1) == []


def test_pairs_that_share_a_passage_are_drawn_for_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("rows are looked at once for every batch")

    monkeypatch.setattr(NoDuplicatesBatchSampler, "__iter__", refuse)
    arguments = BiencoderTrainingArguments(
        output_dir=str(tmp_path / "run"), max_steps=3, per_device_train_batch_size=8, use_cpu=True, report_to="none"
    )
    with caplog.at_level(logging.WARNING):
        finetune(write_retriever(tmp_path / "retriever"), pairs(40, 0.6), arguments)
    assert "Many pairs share a text, and a batch has none twice: the pairs fill" in caplog.text
