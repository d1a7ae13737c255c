from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from test_trainer import logged, make_trainer

from hf_dense.pretraining import throughput
from hf_dense.pretraining.throughput import PASSAGES, TOKENS, Throughput

VIEW = {"input_ids": torch.ones(2, 4, dtype=torch.int64), "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])}


class Alone:
    """One process."""

    def reduce(self, tensor: torch.Tensor, _how: str) -> torch.Tensor:
        return tensor


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(throughput, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
    return now


def test_rates_are_of_tokens_without_padding_and_of_the_time_of_steps(clock: SimpleNamespace) -> None:
    counter = Throughput(["encoder", "half"], torch.device("cpu"))
    counter.on_train_begin()
    for pause in (0.0, 100.0):
        counter.read({"encoder": VIEW, "half": VIEW, "decoder": VIEW})
        clock.seconds += 2.0
        counter.on_step_end()
        clock.seconds += pause  # a checkpoint, and what else is no training
        counter.on_save()
    assert counter.rates(Alone()) == {TOKENS: 24 / 4, PASSAGES: 1.0}  # type: ignore[arg-type]
    counter.read({"encoder": VIEW, "half": VIEW})
    clock.seconds += 4.0
    counter.on_step_end()
    assert counter.rates(Alone()) == {TOKENS: 3.0, PASSAGES: 0.5}, "of what came after the last ones"  # type: ignore[arg-type]


def test_every_log_of_a_training_has_its_rates(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, "cotmae", max_steps=4, logging_steps=2)
    trainer.train()
    assert len(logged(trainer, TOKENS)) == len(logged(trainer, PASSAGES)) == len(logged(trainer, "loss")) == 2
    assert min(logged(trainer, TOKENS)) > max(logged(trainer, PASSAGES)) > 0
