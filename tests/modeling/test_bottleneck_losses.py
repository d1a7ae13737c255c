from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_dense.modeling.bottleneck_losses import pair_loss, token_loss

DIM, VOCABULARY = 8, 11
FEW, MANY = 30, 1300  # below and above the number of positions from which the scores are made in chunks


def operands(count: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, targets, word matrix and bias."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(count, DIM, generator=generator).to(dtype).requires_grad_()
    words = torch.randn(VOCABULARY, DIM, generator=generator).to(dtype).requires_grad_()
    bias = torch.randn(VOCABULARY, generator=generator).to(dtype).requires_grad_()
    return features, torch.randint(VOCABULARY, (count,), generator=generator), words, bias


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("count", [FEW, MANY])
def test_equals_cross_entropy_and_its_gradients(count: int, with_bias: bool) -> None:
    features, targets, words, bias = operands(count)
    inputs = [features, words, bias] if with_bias else [features, words]
    total = token_loss(features, targets, words, bias if with_bias else None)
    scores = features @ words.T + (bias if with_bias else 0)
    expected = F.cross_entropy(scores, targets, reduction="sum")
    torch.testing.assert_close(total, expected)
    for ours, plain in zip(torch.autograd.grad(total, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(ours, plain)


def test_nothing_scored_is_zero_with_a_gradient_of_zero() -> None:
    features, targets, words, bias = operands(0)
    total = token_loss(features, targets, words, bias)
    assert total.item() == 0.0
    for gradient in torch.autograd.grad(total, [words, bias]):
        assert not gradient.any()


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("count", [FEW, MANY])
def test_bfloat16_features_are_summed_in_single_precision(count: int, autocast: bool) -> None:
    features, targets, words, bias = operands(count, torch.bfloat16)
    exact = F.cross_entropy((features @ words.T).double() + bias.double(), targets, reduction="sum")
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        if autocast:
            words, bias = words.float(), bias.float()
        total = token_loss(features, targets, words, bias)
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(exact.item(), rel=2e-3)


def plain_pair_loss(vectors: Tensor, rows: list[int]) -> float:
    """Mean over `rows` of -log softmax at the partner, by loops."""
    total = 0.0
    for row in rows:
        others = [other for other in rows if other != row]
        scores = {other: float(vectors[row] @ vectors[other]) for other in others}
        total -= scores[row ^ 1] - math.log(sum(math.exp(score) for score in scores.values()))
    return total


def test_pair_loss_is_the_sum_of_its_definition() -> None:
    vectors = torch.randn(8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    valid = torch.ones(8, dtype=torch.bool)
    loss = pair_loss(vectors, valid, vectors, valid, offset=0)
    assert loss.item() == pytest.approx(plain_pair_loss(vectors, list(range(8))))


def test_invalid_rows_are_neither_anchors_nor_candidates() -> None:
    vectors = torch.randn(8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    valid = torch.tensor([True] * 4 + [False] * 4)
    loss = pair_loss(vectors, valid, vectors, valid, offset=0)
    assert loss.item() == pytest.approx(plain_pair_loss(vectors, [0, 1, 2, 3]))


def test_the_parts_of_two_processes_add_up_to_the_pair_loss() -> None:
    vectors = torch.randn(8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    valid = torch.ones(8, dtype=torch.bool)
    parts = [pair_loss(vectors[at : at + 4], valid[:4], vectors, valid, offset=at) for at in (0, 4)]
    torch.testing.assert_close(parts[0] + parts[1], pair_loss(vectors, valid, vectors, valid, offset=0))
