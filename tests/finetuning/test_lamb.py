"""LAMB: its steps are those of the paper's algorithm, and a training by it goes on where it was killed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from test_biencoder import arguments, killed_after
from tiny_retriever import random_words, write_retriever

from hf_dense.errors import InputError
from hf_dense.finetuning.biencoder import finetune
from hf_dense.finetuning.lamb import lamb
from hf_dense.storage.checkpoints import load_history

OPTIONS = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-6}


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("size", [1.0, 40.0])  # of a weight: from a norm of 10 on the ratio grows no more
def test_steps_are_those_of_algorithm_2(decay: float, size: float) -> None:
    torch.manual_seed(0)
    start = size * torch.randn(3, 4, dtype=torch.float64) / 3
    weight = torch.nn.Parameter(start.clone())
    kind, options = lamb({**OPTIONS, "fused": True, "optimizer_dict": [{"params": [weight], "weight_decay": decay}]})
    optimizer = kind(options.pop("optimizer_dict"), **options)
    first, second, expected = torch.zeros_like(start), torch.zeros_like(start), start.clone()
    for step in range(4):
        gradient = torch.sin(start + step)
        weight.grad = gradient.clone()
        optimizer.step()
        first = 0.9 * first + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient**2
        update = first / (second.sqrt() + 1e-6) + decay * expected
        expected = expected - 0.1 * expected.norm().clamp(max=10) / (update.norm() + 1e-6) * update
    torch.testing.assert_close(weight.detach(), expected, rtol=1e-9, atol=1e-12)


def test_a_training_learns_and_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    words = random_words(96)
    pairs = Dataset.from_dict({"query": words, "passage": [f"{word} {word[:2]}" for word in words]})
    retriever = write_retriever(tmp_path / "retriever")
    options = {"lamb": True, "learning_rate": 2e-2, "max_steps": 12, "save_strategy": "steps", "save_steps": 5}
    whole = finetune(retriever, pairs, arguments(tmp_path / "whole", **options))
    losses = [entry["loss"] for entry in load_history(tmp_path / "whole") if "loss" in entry]
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])
    with killed_after(7):
        finetune(retriever, pairs, arguments(tmp_path / "killed", **options))
    resumed = finetune(retriever, pairs, arguments(tmp_path / "killed", **options))
    first, second = (load_file(model / "model.safetensors") for model in (whole, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)
    with pytest.raises(InputError, match="lamb"):
        finetune(retriever, pairs, arguments(tmp_path / "whole", **{**options, "lamb": False}))


def test_it_is_no_second_choice_beside_another(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lamb takes the place of AdamW, and optim is sgd"):
        arguments(tmp_path, lamb=True, optim="sgd")
