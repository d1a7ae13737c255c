from __future__ import annotations

import pytest
import torch
from recorded_operations import Operations
from tiny_backbones import BACKBONES, VOCABULARY
from torch import Tensor
from torch.nn import functional as F
from transformers import AlbertConfig, AutoModelForMaskedLM, PreTrainedConfig, PreTrainedModel

from hf_dense.modeling import bottleneck_generator, bottleneck_precision
from hf_dense.modeling.bottleneck_generator import Predictions, predict, runner_of
from hf_dense.modeling.bottleneck_layout import Places
from hf_dense.modeling.bottleneck_plan import Drawn, read_view

UNKNOWN = "albert"
FAMILIES = [*BACKBONES, UNKNOWN]


def make_config(name: str) -> PreTrainedConfig:
    if name != UNKNOWN:
        return BACKBONES[name](0.0)
    sizes = {"hidden_size": 16, "embedding_size": 8, "intermediate_size": 16, "num_attention_heads": 2}
    return AlbertConfig(vocab_size=VOCABULARY, num_hidden_layers=1, **sizes)


def make_generator(name: str) -> PreTrainedModel:
    """One whose every part has a say: weights far from 0, biases and norms from their first values."""
    torch.manual_seed(0)
    generator = AutoModelForMaskedLM.from_config(make_config(name)).eval()
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return generator


def make_view() -> tuple[dict[str, Tensor], Tensor]:
    """Four texts of unequal length, the second half of each of token type 1, and the chosen positions."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, VOCABULARY, (4, 12), generator=generator)
    mask = (torch.arange(12) < torch.tensor([[12], [9], [5], [12]])).long()
    types = (torch.arange(12) >= 4).long().expand_as(ids)
    chosen = (torch.rand(ids.shape, generator=generator) < 0.3) & mask.bool()
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}, chosen


def drawing(view: dict[str, Tensor], chosen: Tensor) -> tuple[Places, Drawn]:
    """Where the view's tokens stand, and where a token is drawn."""
    reading = read_view({**view, "uniform": chosen.float() - 1})
    assert reading.drawn is not None
    return reading.places, reading.drawn


def plain_scores(generator: PreTrainedModel, view: dict[str, Tensor], chosen: Tensor) -> Tensor:
    """From the whole model's logits."""
    if getattr(generator.config, "type_vocab_size", 0) < 2:
        view = {name: view[name] for name in ("input_ids", "attention_mask")}
    return generator(**view).logits[chosen]


def plain_draw(scores: Tensor, uniform: Tensor) -> Tensor:
    """All positions at once."""
    cumulative = scores.softmax(dim=-1).cumsum(dim=-1)
    return torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True).squeeze(1)


def scores_of(predicted: Predictions) -> Tensor:
    if predicted.words is None:
        return predicted.features
    return F.linear(predicted.features, predicted.words, predicted.bias)


@pytest.mark.parametrize("name", FAMILIES)
def test_predictions_are_the_logits_at_the_chosen_positions(name: str) -> None:
    generator, (view, chosen) = make_generator(name), make_view()
    predicted = predict(generator, runner_of(generator), view, *drawing(view, chosen))
    assert (predicted.words is None) is (name == UNKNOWN)
    expected = plain_scores(generator, view, chosen)
    assert expected.std() > 0.1
    torch.testing.assert_close(scores_of(predicted), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_loss_and_gradients_are_those_of_the_logits(name: str, filled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bottleneck_precision, "_SHORT", (torch.float64,) if filled else ())
    generator, (view, chosen) = make_generator(name).double(), make_view()
    targets = view["input_ids"][chosen]
    parameters = list(generator.parameters())
    total = predict(generator, runner_of(generator), view, *drawing(view, chosen)).loss(targets)
    expected = F.cross_entropy(plain_scores(generator, view, chosen), targets, reduction="sum")
    # transformers rotates ModernBERT's queries and keys in float32
    close = {"atol": 1e-5, "rtol": 1e-5} if name == "modernbert" else {"atol": 1e-12, "rtol": 1e-9}
    torch.testing.assert_close(total, expected, **close)
    ours, plain = (torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (total, expected))
    torch.testing.assert_close(
        [gradient for gradient in ours if gradient is not None],
        [gradient for gradient in plain if gradient is not None],
        **close,
    )


@pytest.mark.parametrize("name", BACKBONES)
def test_no_scores_are_made_at_other_positions(name: str) -> None:
    generator, (view, chosen) = make_generator(name), make_view()
    count = int(chosen.sum())
    with Operations() as operations:
        predicted = predict(generator, runner_of(generator), view, *drawing(view, chosen))
        predicted.draw(torch.rand(count))
        predicted.loss(view["input_ids"][chosen]).backward()
    made = operations.shapes
    assert (count, VOCABULARY) in made
    assert not {(4, 12, VOCABULARY), (48, VOCABULARY)} & set(made)


@pytest.mark.parametrize("projected", [True, False])
def test_the_same_number_draws_the_same_token_as_from_all_scores(
    projected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bottleneck_generator, "_ROWS", 7)
    generator = torch.Generator().manual_seed(0)
    features, words = torch.randn(50, 8, generator=generator), torch.randn(VOCABULARY, 8, generator=generator)
    uniform = torch.rand(50, generator=generator)
    uniform[:2] = torch.tensor([0.0, 1 - 2**-24])
    scores = features @ words.T
    predicted = Predictions(features, words) if projected else Predictions(scores)
    assert torch.equal(predicted.draw(uniform), plain_draw(scores, uniform).clamp(max=VOCABULARY - 1))


def test_every_token_is_drawn_as_often_as_it_is_likely() -> None:
    likely = torch.tensor([0.5, 0.0, 0.3, 0.2])
    drawn = Predictions(likely.log().expand(1000, 4)).draw((torch.arange(1000) + 0.5) / 1000)
    assert drawn.bincount(minlength=4).tolist() == [500, 0, 300, 200]


def test_scores_of_many_positions_are_never_held_whole() -> None:
    features = torch.randn(5000, 8)
    with Operations() as operations:
        drawn = Predictions(features, torch.randn(VOCABULARY, 8)).draw(torch.rand(5000))
    assert drawn.shape == (5000,)
    assert operations.largest < 5000 * VOCABULARY / 4


def test_nothing_to_draw_is_no_token() -> None:
    assert Predictions(torch.randn(0, 8), torch.randn(VOCABULARY, 8)).draw(torch.rand(0)).shape == (0,)
