"""Muon beside torch's own, and in a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_trainer import make_model, make_trainer
from tiny_pretraining import tiny_arguments
from torch import nn

from hf_dense.errors import InputError
from hf_dense.methods import METHODS
from hf_dense.pretraining.muon import Muon, matrices_of, orthogonalise
from hf_dense.pretraining.options import PretrainingOptions, check_options


def make_parameters() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(*shape)) for shape in ((24, 16), (16, 24), (24, 16), (40,), (7, 16))]


def draw_gradients(parameters: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def test_it_moves_matrices_as_torchs_muon_and_all_else_as_adamw() -> None:
    ours, torchs = make_parameters(), make_parameters()
    settings: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.1}
    optimizer = Muon([{"params": ours[:3], "lr": 1e-2, "muon": True}, {"params": ours[3:]}], **settings)
    muon = torch.optim.Muon(torchs[:3], lr=1e-2, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(torchs[3:], **settings)
    start = make_parameters()
    for step in range(4):
        draw_gradients(ours, step)
        draw_gradients(torchs, step)
        for each in (optimizer, muon, adamw):
            each.step()
    for mine, other, before in zip(ours[:3], torchs[:3], start[:3], strict=True):
        assert torch.linalg.norm(mine - other) < 0.02 * torch.linalg.norm(other - before), "theirs is in bfloat16"
    for mine, other in zip(ours[3:], torchs[3:], strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


def test_a_closure_is_called_once() -> None:
    parameters = make_parameters()
    optimizer = Muon([{"params": parameters[:3], "muon": True}, {"params": parameters[3:]}])
    calls = []

    def closure() -> Any:
        assert torch.is_grad_enabled()
        calls.append(sum((parameter**2).sum() for parameter in parameters))
        calls[-1].backward()
        return calls[-1]

    before = [parameter.detach().clone() for parameter in parameters]
    assert optimizer.step(closure) is calls[0]
    assert len(calls) == 1
    assert not any(torch.equal(now, was) for now, was in zip(parameters, before, strict=True))


def test_directions_have_singular_values_near_one_whatever_they_were() -> None:
    torch.manual_seed(0)
    spread = torch.randn(2, 12, 12) @ torch.diag(torch.logspace(-2, 2, 12)) @ torch.randn(2, 12, 30)
    for matrices in (spread, spread.mT):
        values = torch.linalg.svdvals(orthogonalise(matrices))
        assert values.shape == (2, 12)
        assert values.max() < 1.3
        assert values[:, :6].min() > 0.5
    assert orthogonalise(torch.zeros(1, 3, 4)).abs().max() == 0


@pytest.mark.parametrize("method", METHODS)
def test_it_is_for_the_matrices_of_every_layer_and_for_no_words(method: str) -> None:
    model = make_model(method)
    chosen = {id(matrix) for matrix in matrices_of(model)}
    names = {name for name, value in model.named_parameters() if id(value) in chosen}
    assert not any("embedding" in name or model.config.vocab_size in model.get_parameter(name).shape for name in names)
    layers = {name for name, value in model.named_parameters() if ".layer" in name and value.ndim == 2}
    assert layers
    assert layers <= names


def test_a_training_gives_matrices_its_rate_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    given: dict[str, Any] = {"muon_learning_rate": 1e-2, "learning_rate": 1e-3, "max_steps": 4, "warmup_steps": 0}
    saved: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    whole, resumed = (make_trainer(tmp_path / name, "dupmae", **given, **saved) for name in ("whole", "resumed"))
    before = {name: value.detach().clone() for name, value in whole.model.named_parameters()}
    whole.train()
    optimizer: Any = whole.optimizer
    groups = {id(value): group for group in optimizer.param_groups for value in group["params"]}
    matrices = {id(value) for value in matrices_of(whole.model)}
    assert len(groups) == len(before)
    assert {key for key, group in groups.items() if group.get("muon")} == matrices
    assert {groups[key]["initial_lr"] for key in matrices} == {1e-2}
    assert {group["initial_lr"] for key, group in groups.items() if key not in matrices} == {1e-3}
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    for name, value in whole.model.named_parameters():
        torch.testing.assert_close(resumed.model.get_parameter(name), value, rtol=0, atol=0)
        assert not torch.equal(value, before[name]) or "pooler" in name


@pytest.mark.parametrize(
    ("options", "arguments", "said"),
    [
        ({"muon_learning_rate": 0.0}, {}, "must be above 0"),
        ({"muon_learning_rate": 2.0}, {}, "above 1"),
        ({"muon_learning_rate": float("nan")}, {}, "must be above 0"),
        ({"muon_learning_rate": 1e-3, "decoder_learning_rate": 1e-3}, {}, "leave decoder_learning_rate out"),
        ({"muon_learning_rate": 1e-3}, {"optim": "adafactor"}, "--optim is adafactor"),
        ({"muon_learning_rate": 1e-3, "precision": "fp16"}, {}, "choose bf16 or fp32"),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    tmp_path: Path, options: dict[str, Any], arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        check_options(
            PretrainingOptions(method="retromae", corpus="c", **options), tiny_arguments(tmp_path, **arguments)
        )
