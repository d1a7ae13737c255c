"""A training whose loss or weights are no numbers ends, and leaves no model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_pretraining import METHODS, tiny_arguments, tiny_options
from transformers import AutoTokenizer, TrainerCallback

from hf_dense.errors import InputError
from hf_dense.pretraining import pretrain as pretrain_module
from hf_dense.pretraining.pretrain import pretrain
from hf_dense.pretraining.soundness import STEP_FILE, Soundness
from hf_dense.pretraining.trainer import PreTrainer

ACCUMULATING = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
DROPPING = {"dataloader_drop_last": True}


class Broken(PreTrainer):
    """Gives a loss that is no number."""

    at_step = 5

    def compute_loss(self, *given: Any, **named: Any) -> Any:
        loss = super().compute_loss(*given, **named)
        return loss * (float("nan") if self.state.global_step + 1 == self.at_step else 1)


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_that_is_no_number_ends_the_training_and_names_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    options, out = tiny_options(tmp_path, method), tmp_path / "out"
    saving = {"save_strategy": "steps", "save_steps": 3, "logging_steps": 100}
    with monkeypatch.context() as patched:
        patched.setattr(pretrain_module, "PreTrainer", Broken)
        with pytest.raises(InputError, match=r"no number at step 5; lower learning_rate.* is in .*not_a_number\.json"):
            pretrain(options, tiny_arguments(out, **saving))
    assert not (out / "model.safetensors").exists()
    assert [path.name for path in out.glob("checkpoint-*")] == ["checkpoint-3"]
    found = json.loads((out / STEP_FILE).read_text())
    assert found["step"] == 5
    assert 0 < len(found["read"]) <= 8
    assert all(row["text"] for row in found["read"])
    pretrain(options, tiny_arguments(out, **saving))
    assert (out / "model.safetensors").exists(), "the directory is not lost to later runs"
    assert not (out / STEP_FILE).exists(), "which says nothing of this run"


@pytest.mark.parametrize("cut", [ACCUMULATING, DROPPING])
def test_the_rows_named_are_those_that_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: dict[str, Any]
) -> None:
    lengths: list[list[int]] = []

    class Seen(Broken):
        at_step = 9  # of the second epoch, where the rows left over are not dropped

        def get_batch_samples(self, *given: Any) -> Any:
            batches, counts = super().get_batch_samples(*given)
            lengths.append([int(row.sum()) for batch in batches for row in batch["views"]["encoder"]["attention_mask"]])
            return batches, counts

    monkeypatch.setattr(pretrain_module, "PreTrainer", Seen)
    training = tiny_arguments(tmp_path / "out", **cut)
    with pytest.raises(InputError, match="no number at step 9"):
        pretrain(tiny_options(tmp_path, "retromae"), training)
    found = json.loads((tmp_path / "out" / STEP_FILE).read_text())
    assert found["epoch"] == 2
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    texts = [tokenizer(row["text"], truncation=True, max_length=32)["input_ids"] for row in found["read"]]
    assert [len(ids) for ids in texts] == lengths[8]
    assert len(set(lengths[8])) > 1


def test_weights_that_are_no_numbers_are_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Spoil(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step == state.max_steps:
                with torch.no_grad():
                    model.head.bias[0] = float("inf")

    class Spoiled(PreTrainer):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.add_callback(Spoil())

    monkeypatch.setattr(pretrain_module, "PreTrainer", Spoiled)
    with pytest.raises(InputError, match=r"The weights head\..* are no numbers after step \d+; lower learning_rate"):
        pretrain(tiny_options(tmp_path, "retromae", held_out=0), tiny_arguments(tmp_path / "out"))
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_the_first_step_is_kept() -> None:
    soundness = Soundness(torch.device("cpu"))
    for step, loss in enumerate([1.0, 2.0, float("inf"), 3.0, float("nan")], start=1):
        soundness.watch(torch.tensor(loss), step)
        assert soundness.first_step == (3 if step >= 3 else 0)
