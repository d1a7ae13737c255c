from __future__ import annotations

from pathlib import Path

import pytest

from hf_dense.experiments.adaptation.learning import Learning
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments


@pytest.mark.parametrize(("teacher", "weight"), [("bm25", 4.0), ("someone/cross-encoder", None)])
def test_labels_weigh_more_beside_words(teacher: str, weight: float | None, tmp_path: Path) -> None:
    learning = Learning.of(ready=True, length=64, queries=100)
    more = learning.distillation(teacher)
    arguments = learning.finetuning(tmp_path, 8, 0, **more)
    assert isinstance(arguments, BiencoderTrainingArguments)
    assert (arguments.distillation, arguments.contrast_weight) == ("kl", weight)
    assert 4 * arguments.per_device_train_batch_size == learning.queries * (1 + learning.negatives)
