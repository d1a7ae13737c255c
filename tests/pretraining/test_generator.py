"""SimLM's generator: what it draws, when it is trained, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from manifests import manifest_of
from tiny_pretraining import (
    logged,
    same_weights,
    tiny_arguments,
    tiny_model,
    tiny_options,
    tiny_vocabulary,
    token_rows,
    weights,
)
from tiny_retriever import tiny_tokenizer
from transformers import AutoModelForPreTraining, BertTokenizer, ElectraConfig, ElectraForPreTraining

from hf_dense.data import hub_names
from hf_dense.errors import InputError
from hf_dense.modeling.bottleneck_generator import Predictions
from hf_dense.modeling.bottleneck_plan import Plan
from hf_dense.modeling.modeling_simlm import SimLMForPreTraining
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.pretrain import pretrain

GENERATOR = {
    "embedding_size": 16,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
}
VOCABULARY = tiny_vocabulary()


def make_model(weight: float = 0.0) -> SimLMForPreTraining:
    model = tiny_model("simlm", generator_config={**GENERATOR, "vocab_size": VOCABULARY.size}, generator_weight=weight)
    assert isinstance(model, SimLMForPreTraining)
    return model


def make_views(model: SimLMForPreTraining, count: int = 40) -> dict[str, dict[str, torch.Tensor]]:
    views: dict[str, dict[str, torch.Tensor]] = ViewCollator(model.config, VOCABULARY, 32, 0)(token_rows(count))[
        "views"
    ]
    return views


def read_ids(model: SimLMForPreTraining, views: dict[str, dict[str, torch.Tensor]]) -> torch.Tensor:
    """What the encoder was given."""
    seen: list[torch.Tensor] = []
    plain = model.encode

    def encode(views: dict[str, dict[str, torch.Tensor]], plan: Plan) -> Any:
        seen.append(views["encoder"]["input_ids"])
        return plain(views, plan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "encode", encode)
        model(views)
    return seen[0]


def test_only_masked_tokens_are_replaced_and_the_original_is_predicted_everywhere() -> None:
    model = make_model().eval()
    views = make_views(model)
    view = views["encoder"]
    ids, masked = read_ids(model, views), view["uniform"] >= 0
    assert (view["input_ids"][masked] == VOCABULARY.mask).all()
    assert torch.equal(ids[~masked], view["input_ids"][~masked])
    assert (ids[masked] == VOCABULARY.mask).float().mean() < 0.2
    scored = view["labels"] != -100
    assert torch.equal(scored.sum(dim=1), view["attention_mask"].sum(dim=1) - 2)
    assert (masked <= scored).all()


def test_the_same_batch_gets_the_same_tokens() -> None:
    model = make_model().eval()
    views = make_views(model)
    assert torch.equal(read_ids(model, views), read_ids(model, views))


@pytest.mark.slow
def test_tokens_are_drawn_with_the_generators_probabilities() -> None:
    model = make_model().eval()
    scores = torch.log(torch.tensor([0.5, 0.3, 0.2] + [1e-12] * (VOCABULARY.size - 3)))
    views = make_views(model, count=1500)
    uniform = views["encoder"]["uniform"]
    model.generate = lambda view, _: Predictions(scores.expand(int((view["uniform"] >= 0).sum()), -1))
    drawn = read_ids(model, views)[uniform >= 0]
    shares = torch.bincount(drawn, minlength=3)[:3] / len(drawn)
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.3, 0.2]), atol=0.03, rtol=0)


@pytest.mark.parametrize("weight", [0.0, 0.2])
def test_a_generator_is_trained_only_with_a_weight(weight: float) -> None:
    model = make_model(weight).train()
    assert model.generator is not None
    assert model.generator.training is (weight > 0)
    output = model(make_views(model))
    output.loss.backward()
    trained = any(parameter.grad is not None for parameter in model.generator.parameters())
    assert trained is (weight > 0)
    assert ("generator" in output.losses) is (weight > 0)
    total = sum(model.config.weights[name] * value for name, value in output.losses.items())
    torch.testing.assert_close(output.loss, total)


def test_without_a_generator_masks_cannot_be_filled() -> None:
    model = tiny_model("simlm")
    with pytest.raises(ValueError, match="replaces tokens by what a generator draws, and none was given"):
        model(ViewCollator(model.config, VOCABULARY, 32, 0)(token_rows(2))["views"])


def test_a_run_trains_and_saves_the_generator_with_the_rest(tmp_path: Path) -> None:
    options = tiny_options(tmp_path, "simlm", generator=GENERATOR, generator_weight=0.2)
    result = pretrain(options, tiny_arguments(tmp_path / "run", max_steps=3, logging_steps=1))
    assert len(logged(result.history, "generator_loss")) == 3
    again = AutoModelForPreTraining.from_pretrained(tmp_path / "run")
    saved = weights(tmp_path / "run")  # without those that are tied to others
    assert same_weights({name: again.state_dict()[name] for name in saved}, saved)
    assert any(name.startswith("generator.") for name in saved)
    assert again.generator is not None


def test_a_published_generator_is_read_at_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = make_model().generator
    assert published is not None
    published.save_pretrained(tmp_path / "snapshot")

    def copied(name: str, *, repo_type: str, revision: str, allow_patterns: None) -> str:
        assert (name, repo_type, revision) == ("me/generator", "model", "v2")
        return str(tmp_path / "snapshot")

    monkeypatch.setattr(hub_names, "snapshot_download", copied)
    options = tiny_options(tmp_path, "simlm", generator="me/generator@v2")
    pretrain(options, tiny_arguments(tmp_path / "run", max_steps=1))
    again = AutoModelForPreTraining.from_pretrained(tmp_path / "run")
    assert same_weights(again.generator.state_dict(), published.state_dict())
    manifest = manifest_of(tmp_path / "run")
    assert manifest.sources["generator"] == "me/generator@v2"


def test_a_generator_without_its_head_is_refused(tmp_path: Path) -> None:
    """As a discriminator is, or a plain encoder: the head would be made up, and stay so where it is frozen."""
    whole = ElectraForPreTraining(ElectraConfig(**GENERATOR, vocab_size=VOCABULARY.size))
    whole.save_pretrained(tmp_path / "discriminator")
    options = tiny_options(tmp_path, "simlm", generator=str(tmp_path / "discriminator"))
    with pytest.raises(InputError, match="discriminator lacks weights of a masked language model, such as generator_"):
        pretrain(options, tiny_arguments(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_generator_of_other_tokens_is_refused(tmp_path: Path) -> None:
    """It has as many: nothing would fail, and every word be filled in by that of another number."""
    generator = make_model().generator
    assert generator is not None
    generator.save_pretrained(tmp_path / "other")
    tokens = [*tiny_tokenizer().get_vocab()]
    order = [*tokens[:5], *reversed(tokens[5:])]
    BertTokenizer(vocab={token: at for at, token in enumerate(order)}).save_pretrained(tmp_path / "other")
    options = tiny_options(tmp_path, "simlm", generator=str(tmp_path / "other"))
    with pytest.raises(InputError, match=r"tokens of .* are others in .*other, .*; name a generator of the same token"):
        pretrain(options, tiny_arguments(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("given", "expected"), [(None, 0.2), (0.0, 0.0), (0.5, 0.5)])
def test_a_continued_run_keeps_the_generators_weight(tmp_path: Path, given: float | None, expected: float) -> None:
    first = make_model(0.2)
    first.save_pretrained(tmp_path / "first")
    changes = {"backbone": str(tmp_path / "first"), "backbone_config": None, "generator_weight": given}
    options = tiny_options(tmp_path, "simlm", **changes)
    result = pretrain(options, tiny_arguments(tmp_path / "run", max_steps=2, logging_steps=1))
    again = AutoModelForPreTraining.from_pretrained(tmp_path / "run")
    assert again.config.generator_weight == expected
    assert bool(logged(result.history, "generator_loss")) is (expected > 0)
    assert same_weights(again.generator.state_dict(), first.generator.state_dict()) is (expected == 0)


READERS = {  # encoders of other names: one, or two of which both are filled
    "one": {"encoder": None, "reader": {"view": {"fill": "generator", "labels": "every"}}},
    "two": {
        "encoder": None,
        "reader": {"view": {"fill": "generator", "labels": "every"}},
        "other": {"view": {"fill": "generator", "labels": "every", "rate": 0.4}},
    },
}


@pytest.mark.parametrize("named", READERS)
def test_the_generator_is_trained_on_what_it_fills_whatever_its_name(named: str) -> None:
    model = tiny_model(
        "simlm",
        generator_config={**GENERATOR, "vocab_size": VOCABULARY.size},
        generator_weight=0.2,
        encoders=READERS[named],
        decoders={"decoder": {"encoder": "reader"}},
    ).eval()
    views = make_views(model)
    filled = [name for name in READERS[named] if name != "encoder"]
    scores = [(model.generate(views[name]), views[name]) for name in filled]
    losses = [part.loss(view["labels"][view["uniform"] >= 0]) for part, view in scores]
    expected = sum(losses) / sum((view["uniform"] >= 0).sum() for _, view in scores)
    torch.testing.assert_close(model(views).losses["generator"], expected)


MASKED = {"fill": "mask", "labels": "hidden"}


@pytest.mark.parametrize(
    ("method", "changes", "sentence"),
    [
        ("simlm", {}, "simlm needs a generator that fills in masks"),
        ("retromae", {"generator": GENERATOR}, "retromae has no generator; only simlm has"),
        ("simlm", {"generator": {**GENERATOR, "vocab_size": 7}}, "The generator has 7 tokens, the encoder"),
        (
            "simlm",
            {"generator": {**GENERATOR, "max_position_embeddings": 20}},
            "generator takes texts of up to 20 tokens",
        ),
        ("simlm", {"generator": "./nowhere"}, "No generator can be loaded from './nowhere'"),
        ("simlm", {"generator": {**GENERATOR, "num_hiden_layers": 1}}, "^generator has the key 'num_hiden_layers'"),
        ("simlm", {"generator": '{"droput": 0.5}'}, "'droput', which a 'electra' configuration does not have"),
        ("simlm", {"generator": GENERATOR, "generator_weight": -0.1}, "generator_weight is -0.1; a loss weight"),
        (
            "simlm",
            {"encoders": {"encoder": {"view": MASKED}}, "generator": GENERATOR, "generator_weight": 0.2},
            "generator_weight is 0.2, but .* fills in nothing for one here; set it to 0, or fill: generator",
        ),
        (
            "simlm",
            {
                "encoders": {"encoder": {"view": MASKED}},
                "decoders": {"decoder": {"view": MASKED}},
                "generator_weight": 0.2,
            },
            "generator_weight is 0.2, but .* fills in nothing for one here; set it to 0, or fill: generator",
        ),
        ("simlm", {"generator": {"model_type": "none"}}, "model_type 'none', which transformers does not know"),
    ],
)
def test_a_generator_that_cannot_be_used_is_refused(
    tmp_path: Path, method: str, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        pretrain(tiny_options(tmp_path, method, **changes), tiny_arguments(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
