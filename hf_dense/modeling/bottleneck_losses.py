"""Token cross-entropy and in-batch contrastive loss, as pure functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .bottleneck_precision import filled, projection_dtype, single_dtype

IGNORED = -100  # label of a position that is not scored
_ROWS = {"cpu": 512}  # positions whose scores are held at once; twice as many in bfloat16
_ROWS_OF_A_GPU = 2048  # more, as every chunk reads and writes the gradient of the word matrix
_BLOCK = 2**18  # scores that a CPU reads and writes ten times over: 1 MB in float32, which stays in its cache


def token_loss(features: Tensor, targets: Tensor, words: Tensor, bias: Tensor | None) -> Tensor:
    """Summed cross-entropy of token scores `features @ words.T + bias`.

    The scores are made chunk by chunk, never held whole, and so is their gradient, which is worked out together with
    the loss. Under autocast the projection runs in its precision; loss and sums over chunks are in float32 at least.

    Args:
        features: (n, dim) what the vocabulary projection reads, at scored positions only.
        targets: (n,) token ids.
        words: (vocabulary, dim) word matrix.
        bias: (vocabulary,) or None.

    Returns:
        Scalar, in float32 at least; 0 for n = 0. It has no second derivative.
    """
    loss: Tensor = _TokenLoss.apply(  # type: ignore[no-untyped-call]
        features, targets, words, bias, torch.is_grad_enabled()
    )
    return loss


def _loss_and_gradient(
    scores: Tensor, targets: Tensor, bias: Tensor | None, of_bias: Tensor | None, trained: bool
) -> Tensor:
    """The summed cross-entropy of (n, vocabulary) scores; their gradient takes their place where it is `trained`.

    Args:
        targets: (n, 1) token ids.
        of_bias: (vocabulary,), to which the gradient of `bias` is added.
    """
    exact = scores.to(single_dtype(scores.dtype))
    if bias is not None:
        exact += bias
    exact -= exact.amax(dim=1, keepdim=True)
    loss = -exact.gather(1, targets).sum()
    likely = exact.exp_()
    sums = likely.sum(dim=1, keepdim=True)
    loss += sums.log().sum()
    if trained:
        likely /= sums
        likely.scatter_add_(1, targets, likely.new_full((), -1.0).expand_as(targets))
        if of_bias is not None:
            of_bias += likely.sum(dim=0)
        scores.copy_(likely)  # which they are already, where they are as exact
    return loss


class _TokenLoss(torch.autograd.Function):
    """`token_loss`, of which the gradient is the softmax of the scores, minus one at the target, times the factors."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, targets: Tensor, words: Tensor, bias: Tensor | None, trained: bool
    ) -> Tensor:
        read, _, by_words, by_bias, _ = (trained and needed for needed in ctx.needs_input_grad)
        dtype = projection_dtype(features)
        single = single_dtype(dtype)
        of_features = torch.empty_like(features) if read else None
        summed = by_words and (dtype == single or not len(features))
        of_words = torch.zeros_like(words, dtype=single) if summed else None
        of_bias = torch.zeros_like(words[:, 0], dtype=single) if by_bias else None
        projected, matrix = filled(features.to(dtype)), words.to(dtype)
        cached = features.device.type == "cpu" and not torch.compiler.is_compiling()  # which fuses them by itself
        rows = _ROWS.get(features.device.type, _ROWS_OF_A_GPU)
        rows = min(rows * (single.itemsize // dtype.itemsize if cached else 1), len(projected))
        block = max(1, _BLOCK // len(words) if cached else rows)
        buffer = projected.new_empty(rows, len(words))
        total = projected.new_zeros((), dtype=single)
        for at in range(0, len(projected), rows or 1):
            part, wanted = projected[at : at + rows], targets[at : at + rows, None]
            scores = torch.mm(part, matrix.T, out=buffer[: len(part)])
            scores[len(wanted) :] = 0.0
            for some, ids in zip(scores[: len(wanted)].split(block), wanted.split(block), strict=True):
                total += _loss_and_gradient(some, ids, bias, of_bias, trained=any((read, by_words, by_bias)))
            if of_features is not None:
                of_features[at : at + rows] = torch.mm(scores, matrix)[: len(wanted)]
            if of_words is not None and dtype == single:
                of_words.addmm_(scores.T, part)
            elif by_words:
                product = torch.mm(scores.T, part)
                of_words = product.to(single) if of_words is None else of_words.add_(product)
        ctx.save_for_backward(of_features, of_words, of_bias)
        ctx.dtypes = features.dtype, words.dtype, words.dtype if bias is None else bias.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        of_features, of_words, of_bias = (
            gradient if gradient is None else (gradient * scale).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        return of_features, None, of_words, of_bias, None


def pair_loss(vectors: Tensor, valid: Tensor, candidates: Tensor, candidates_valid: Tensor, offset: int) -> Tensor:
    """Summed contrastive loss: every vector must pick its partner out of all vectors but itself, by dot product.

    Rows 2k and 2k + 1 are partners. Source: coCondenser (Gao and Callan 2022, arXiv:2108.05540), equation 6 in its
    released, symmetric form: no normalisation, temperature 1.

    Args:
        vectors: (n, dim) anchors, of this process.
        valid: (n,) bool; an invalid row is neither anchor nor candidate.
        candidates: (m, dim) vectors of all processes.
        candidates_valid: (m,) bool.
        offset: row of `candidates` at which `vectors` begin.

    Returns:
        Scalar, in float32 at least.

    >>> vectors = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    >>> valid = torch.ones(4, dtype=torch.bool)
    >>> round(float(pair_loss(vectors, valid, vectors, valid, offset=0)) / 4, 4)  # log(1 + 2 / e^4)
    0.036
    """
    single = single_dtype(vectors.dtype)
    with torch.autocast(vectors.device.type, enabled=False):
        scores = vectors.to(single) @ candidates.to(single).T
    rows = torch.arange(offset, offset + len(vectors), device=vectors.device)
    columns = torch.arange(len(candidates), device=vectors.device)
    scores = scores.masked_fill((columns == rows[:, None]) | ~candidates_valid, float("-inf"))
    scores = scores.masked_fill(~valid[:, None], 0.0)  # numbers, as nothing must come of them backwards either
    return F.cross_entropy(scores, (rows ^ 1).masked_fill(~valid, IGNORED), reduction="sum", ignore_index=IGNORED)
