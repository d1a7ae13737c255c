"""SimLM's ablation objectives (the paper's Table 7) are declarations; telling replaced tokens is one of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_backbones import BACKBONES, HIDDEN, VOCABULARY
from torch import Tensor
from transformers import AutoModelForPreTraining, ElectraConfig

from hf_dense import SimLMConfig, SimLMForPreTraining
from hf_dense.modeling.bottleneck_losses import IGNORED

LENGTH = 12
MASKED = {"fill": "mask", "labels": "hidden"}
DETECTED = {"labels": "replaced"}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "enc-dec mlm": {"encoders": {"encoder": {"view": MASKED}}, "decoders": {"decoder": {"view": MASKED}}},
    "mlm": {"encoders": {"encoder": {"view": MASKED}}, "decoders": {"decoder": None}},
    "enc-dec rtd": {"encoders": {"encoder": {"view": DETECTED}}, "decoders": {"decoder": {"view": DETECTED}}},
    "autoencoder": {
        "encoders": {"encoder": {"weight": 0.0, "view": {"select": "none"}}},
        "decoders": {"decoder": {"view": {"select": "random", "rate": 1.0, "fill": "mask"}}},
    },
}
GENERATOR = {
    "vocab_size": VOCABULARY,
    "embedding_size": 16,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


def make_model(objective: str) -> SimLMForPreTraining:
    torch.manual_seed(0)
    generator = ElectraConfig(**GENERATOR) if objective == "enc-dec rtd" else None
    config = SimLMConfig(
        backbone_config=BACKBONES["modernbert"](0.0), generator_config=generator, **OBJECTIVES[objective]
    )
    return SimLMForPreTraining(config).eval()


def make_views(config: SimLMConfig) -> dict[str, dict[str, Tensor]]:
    """Every third token hidden, the original one asked for everywhere."""
    ids = torch.randint(5, VOCABULARY, (4, LENGTH), generator=torch.Generator().manual_seed(0))
    hidden = torch.zeros_like(ids, dtype=torch.bool)
    hidden[:, 1::3] = True
    views = {}
    for name, view in config.views.items():
        scored = hidden if view.labels == "hidden" else torch.ones_like(hidden)
        views[name] = {
            "input_ids": ids.masked_fill(hidden, 4) if view.select != "none" else ids,
            "attention_mask": torch.ones_like(ids),
            "labels": ids.masked_fill(~scored, IGNORED),
        }
        if view.fill == "generator" and view.select != "none":
            draws = torch.rand(ids.shape, generator=torch.Generator().manual_seed(1))
            views[name]["uniform"] = draws.masked_fill(~hidden, -1.0)
    return views


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_trains_all_that_it_reads(objective: str) -> None:
    model = make_model(objective)
    assert model.config.needs_generator is (objective == "enc-dec rtd")
    output = model(make_views(model.config))
    output.loss.backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert not {name for name in trained if name.startswith("generator")}
    assert {name for name, parameter in model.named_parameters() if parameter.grad is not None} == trained
    assert list(output.losses) == list(model.config.weights)


def test_detection_is_binary_cross_entropy_over_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = make_model("enc-dec rtd"), {}
    views = make_views(model.config)
    plain = type(model).score_view

    def score_view(self: Any, name: str, hidden: Tensor, targets: Tensor, shown: Tensor, head: str) -> Tensor:
        seen[name] = shown, hidden
        return plain(self, name, hidden, targets, shown, head)

    monkeypatch.setattr(type(model), "score_view", score_view)
    losses = model(views).losses
    ids, hidden = seen["encoder"]
    replaced = ids != views["encoder"]["labels"].flatten()
    assert 0 < replaced.sum() <= (views["encoder"]["uniform"] >= 0).sum()
    likely = model.detector(hidden).sigmoid()
    expected = -torch.where(replaced, likely, 1 - likely).log().mean()
    torch.testing.assert_close(losses["encoder"], expected)
    assert abs(losses["encoder"].item() - 0.69) < 0.2  # two answers, not a vocabulary of them


def test_the_detector_comes_back_and_the_idle_head_can_be_frozen_again(tmp_path: Any) -> None:
    model = make_model("enc-dec rtd")
    model.save_pretrained(tmp_path)
    again, report = AutoModelForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    views = make_views(model.config)
    torch.testing.assert_close(again(views).loss, model(views).loss, atol=0, rtol=1e-13)  # read to other addresses
    again.set_generator(again.generator)
    assert not any(parameter.requires_grad for parameter in again.head.parameters())


def test_the_autoencoder_sees_nothing_but_the_bottleneck() -> None:
    model = make_model("autoencoder")
    views = make_views(model.config)
    views["decoder"]["input_ids"] = torch.full_like(views["decoder"]["input_ids"], 4)
    output = model(views)
    (gradient,) = torch.autograd.grad(output.loss, output.bottlenecks["encoder"])
    assert gradient.shape == (4, HIDDEN)
    assert (gradient.norm(dim=1) > 0).all()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"generator_weight": float("nan")}, "generator_weight is nan; a loss weight is finite and not negative"),
        ({"generator_config": {"num_hiden_layers": 1}}, "'num_hiden_layers', which a 'electra' configuration does not"),
    ],
)
def test_a_generator_is_checked_as_encoders_are(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SimLMConfig(backbone_config=BACKBONES["bert"](0.0), **values)
