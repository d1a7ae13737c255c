from __future__ import annotations

import math

import pytest
import torch
from recorded_operations import Operations
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from hf_dense.modeling import bottleneck_losses
from hf_dense.modeling.bottleneck_losses import pair_loss, token_loss

DIM, VOCABULARY = 8, 40
FEW, MANY = 30, 1300  # below and above the number of positions whose scores are held at once


def operands(count: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, targets, word matrix and bias."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(count, DIM, generator=generator).to(dtype).requires_grad_()
    words = torch.randn(VOCABULARY, DIM, generator=generator).to(dtype).requires_grad_()
    bias = torch.randn(VOCABULARY, generator=generator).to(dtype).requires_grad_()
    return features, torch.randint(VOCABULARY, (count,), generator=generator), words, bias


def plain_token_loss(features: Tensor, targets: Tensor, words: Tensor, bias: Tensor | None) -> Tensor:
    return F.cross_entropy(features @ words.T + (0 if bias is None else bias), targets, reduction="sum")


def assert_same_gradients(ours: Tensor, plain: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(torch.autograd.grad(ours, inputs), torch.autograd.grad(plain, inputs))


@pytest.mark.parametrize("block", [1, 3 * VOCABULARY, bottleneck_losses._BLOCK])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("count", [FEW, MANY])
def test_equals_cross_entropy_and_its_gradients(
    count: int, with_bias: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bottleneck_losses, "_BLOCK", block)
    features, targets, words, bias = operands(count)
    inputs = [features, words, bias] if with_bias else [features, words]
    total = token_loss(features, targets, words, bias if with_bias else None)
    expected = plain_token_loss(features, targets, words, bias if with_bias else None)
    torch.testing.assert_close(total, expected)
    assert_same_gradients(total, expected, inputs)


def test_the_gradient_is_that_of_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bottleneck_losses, "_ROWS", {"cpu": 4})
    features, targets, words, bias = operands(9)
    assert torch.autograd.gradcheck(lambda f, w, b: 0.3 * token_loss(f, targets, w, b), (features, words, bias))


@pytest.mark.parametrize("trained", [0, 1, 2])
def test_one_factor_alone_can_be_trained(trained: int) -> None:
    features, targets, words, bias = operands(FEW)
    factors = [features, words, bias]
    for at, factor in enumerate(factors):
        factor.requires_grad_(at == trained)
    total, expected = (loss(features, targets, words, bias) for loss in (token_loss, plain_token_loss))
    assert_same_gradients(total, expected, [factors[trained]])


def test_words_that_are_embeddings_too_get_both_gradients() -> None:
    _, targets, words, bias = operands(FEW)
    total, expected = (
        loss(words[targets.flip(0)].tanh(), targets, words, bias) for loss in (token_loss, plain_token_loss)
    )
    assert_same_gradients(total, expected, [words])


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_gradient_survives_a_checkpoint(reentrant: bool) -> None:
    features, targets, words, bias = operands(MANY)
    inputs = [features, words, bias]
    expected = torch.autograd.grad(plain_token_loss(features, targets, words, bias), inputs)
    checkpoint(token_loss, features, targets, words, bias, use_reentrant=reentrant).backward()
    torch.testing.assert_close(tuple(factor.grad for factor in inputs), expected)


def test_scores_are_never_held_whole() -> None:
    features, targets, words, bias = operands(MANY)
    with Operations() as operations:
        token_loss(features, targets, words, bias).backward()
    assert operations.largest < MANY * VOCABULARY / 2


def test_evaluation_does_no_work_for_a_gradient() -> None:
    features, targets, words, bias = operands(FEW)
    with torch.no_grad(), Operations() as operations:
        total = token_loss(features, targets, words, bias)
    assert len(operations.products) == 1
    torch.testing.assert_close(total, plain_token_loss(features, targets, words, bias).detach())


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


@pytest.mark.parametrize("count", [FEW, MANY])
def test_autocast_projects_in_its_precision_and_stays_close(count: int) -> None:
    features, targets, words, bias = operands(count, torch.float32)
    inputs = [features, words, bias]
    with torch.autocast("cpu", torch.bfloat16), Operations() as operations:
        total = token_loss(features, targets, words, bias)
    assert operations.precisions == {torch.bfloat16}
    expected = plain_token_loss(features, targets, words, bias)
    assert total.item() == pytest.approx(expected.item(), rel=2e-3)
    for ours, plain in zip(torch.autograd.grad(total, inputs), torch.autograd.grad(expected, inputs), strict=True):
        assert ours.dtype == torch.float32
        assert (ours - plain).norm() < 0.01 * plain.norm()


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
