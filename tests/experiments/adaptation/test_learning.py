from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hf_dense.experiments.adaptation.learning import DEPTH, DISTILLED, Learning
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments
from hf_dense.finetuning.lists import Entry


@pytest.mark.parametrize(("teacher", "weight"), [("bm25", 4.0), ("someone/cross-encoder", None)])
def test_labels_weigh_more_beside_words(teacher: str, weight: float | None, tmp_path: Path) -> None:
    learning = Learning.of(ready=True, length=64, queries=100)
    more = learning.distillation(teacher)
    arguments = learning.finetuning(tmp_path, 8, 0, **more)
    assert isinstance(arguments, BiencoderTrainingArguments)
    assert (arguments.distillation, arguments.contrast_weight) == ("kl", weight)
    assert 4 * arguments.per_device_train_batch_size == learning.queries * (1 + learning.negatives)


def test_made_queries_teach_a_retriever_at_a_lower_rate(tmp_path: Path) -> None:
    judged, made = (Learning.of(True, 64, 100, gently=gently) for gently in (False, True))
    rates = [learning.finetuning(tmp_path, 8, 0).learning_rate for learning in (judged, made)]
    assert rates == [1e-4, 2e-5]
    assert replace(made, finetuning_rate=judged.finetuning_rate) == judged


def test_a_cross_encoder_scores_what_the_steps_of_distillation_read_and_no_more() -> None:
    learning = Learning(queries=10, negatives=3, texts=16, finetuning_rate=5e-5, pretraining_rate=1e-4, length=128)
    assert learning.distilled == 10
    entries = [Entry(str(number), "q", ("p",), ()) for number in range(100)]
    queries, depth = learning.scored(entries, 3, seed=0)
    assert (len(queries), depth) == (30, DISTILLED)
    assert learning.scored(entries, 3, seed=0)[0] == queries != learning.scored(entries, 3, seed=1)[0]
    assert learning.scored(entries, 25, seed=0) == ({entry.id for entry in entries}, 3 * DISTILLED), "in three epochs"
    assert learning.scored(entries, 1000, seed=0)[1] == DEPTH
