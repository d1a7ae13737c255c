from __future__ import annotations

import pytest
import torch
from recorded_operations import Operations
from torch import Tensor
from torch.nn import functional as F

from hf_dense.modeling import bottleneck_bag
from hf_dense.modeling.bottleneck_bag import bag_loss, word_scores

DIM, VOCABULARY = 6, 37
LENGTHS = [5, 0, 1, 12, 3]  # one text without a position that may be read
COUNTED = torch.ones(5, dtype=torch.bool)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks of texts, one text longer than a block, and several parts of the vocabulary."""
    monkeypatch.setattr(bottleneck_bag, "_POSITIONS", 7)
    monkeypatch.setattr(bottleneck_bag, "_SCORES", {"cpu": 64})


def operands(dtype: torch.dtype = torch.float64, lengths: list[int] = LENGTHS) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, the text of each, word matrix and bias."""
    generator = torch.Generator().manual_seed(0)
    texts = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths, dtype=torch.long))
    features = torch.randn(len(texts), DIM, generator=generator).to(dtype).requires_grad_()
    words = torch.randn(VOCABULARY, DIM, generator=generator).to(dtype).requires_grad_()
    bias = torch.randn(VOCABULARY, generator=generator).to(dtype).requires_grad_()
    return features, texts, words, bias


def sought() -> tuple[Tensor, Tensor]:
    """Tokens to be found, some of them twice, and their texts; the last text has none."""
    tokens = torch.randint(VOCABULARY, (24,), generator=torch.Generator().manual_seed(1))
    tokens[3] = tokens[2]
    return tokens, torch.arange(24) // 6


def plain_word_scores(features: Tensor, texts: Tensor, count: int, words: Tensor, bias: Tensor | None) -> Tensor:
    scores = features @ words.T + (0 if bias is None else bias)
    parts = [scores[texts == text] for text in range(count)]
    return torch.stack([part.max(dim=0).values if len(part) else scores.new_zeros(VOCABULARY) for part in parts])


def plain_bag_loss(
    features: Tensor, texts: Tensor, count: int, words: Tensor, bias: Tensor | None, mean: bool
) -> Tensor:
    """By loops over texts and their sets of tokens."""
    tokens, token_texts = sought()
    likelihood = F.log_softmax(plain_word_scores(features, texts, count, words, bias), dim=-1)
    total = features.new_zeros(())
    for text in range(count):
        bag = tokens[token_texts == text].tolist()
        for token in set(bag):
            total = total - likelihood[text, token] / (len(bag) if mean else 1)
    return total


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_loss_and_its_gradients_are_those_of_the_definition(with_bias: bool, mean: bool) -> None:
    features, texts, words, bias = operands()
    inputs = [features, words, bias] if with_bias else [features, words]
    given = bias if with_bias else None
    total = bag_loss(features, LENGTHS, *sought(), COUNTED, words, given, mean)
    expected = plain_bag_loss(features, texts, len(LENGTHS), words, given, mean)
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(torch.autograd.grad(total, inputs), torch.autograd.grad(expected, inputs))


def test_the_gradient_is_that_of_finite_differences() -> None:
    features, _texts, words, bias = operands()
    weights = torch.randn(len(LENGTHS), VOCABULARY, dtype=torch.float64)

    def weighed(features: Tensor, words: Tensor, bias: Tensor) -> Tensor:
        return (weights * word_scores(features, LENGTHS, words, bias)).sum()

    assert torch.autograd.gradcheck(weighed, (features, words, bias))


def test_of_equal_scores_one_alone_gets_the_gradient() -> None:
    features, texts, words, _ = operands()
    with torch.no_grad():  # whole numbers: equal scores have no rounding to tell them apart
        features[:] = torch.arange(DIM)
        words.round_()
    total, expected = (
        scores.sum()
        for scores in (
            word_scores(features, LENGTHS, words, None),
            plain_word_scores(features, texts, len(LENGTHS), words, None),
        )
    )
    inputs = [features, words]
    torch.testing.assert_close(torch.autograd.grad(total, inputs), torch.autograd.grad(expected, inputs))


@pytest.mark.parametrize("trained", [0, 1, 2])
def test_one_factor_alone_can_be_trained(trained: int) -> None:
    features, texts, words, bias = operands()
    factors = [features, words, bias]
    for at, factor in enumerate(factors):
        factor.requires_grad_(at == trained)
    total = bag_loss(features, LENGTHS, *sought(), COUNTED, words, bias, True)
    expected = plain_bag_loss(features, texts, len(LENGTHS), words, bias, True)
    torch.testing.assert_close(
        torch.autograd.grad(total, factors[trained]), torch.autograd.grad(expected, factors[trained])
    )


@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_nothing_to_read_has_a_gradient_of_zero(lengths: list[int]) -> None:
    features, _texts, words, bias = operands(lengths=lengths)
    scores = word_scores(features, lengths, words, bias)
    assert scores.shape == (len(lengths), VOCABULARY)
    for gradient in torch.autograd.grad(scores.sum(), [features, words, bias]):
        assert not gradient.any()


def test_scores_of_all_positions_are_never_held() -> None:
    lengths = [30] * 4
    features, _texts, words, bias = operands(lengths=lengths)
    with Operations() as operations:
        bag_loss(features, lengths, *sought(), COUNTED[: len(lengths)], words, bias, True).backward()
    assert operations.largest < sum(lengths) * VOCABULARY / 4


def test_autocast_projects_in_its_precision_and_stays_close() -> None:
    features, texts, words, bias = operands(torch.float32)
    inputs = [features, words, bias]
    with torch.autocast("cpu", torch.bfloat16), Operations() as operations:
        total = bag_loss(features, LENGTHS, *sought(), COUNTED, words, bias, True)
    assert operations.precisions == {torch.bfloat16}
    expected = plain_bag_loss(features, texts, len(LENGTHS), words, bias, True)
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(expected.item(), rel=5e-3)
    for ours, plain in zip(torch.autograd.grad(total, inputs), torch.autograd.grad(expected, inputs), strict=True):
        assert ours.dtype == torch.float32
        assert (ours - plain).norm() < 0.05 * plain.norm()
