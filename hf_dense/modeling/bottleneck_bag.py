"""Bag-of-words loss: the distinct tokens of a text from its states, whatever their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .bottleneck_precision import filled, projection_dtype, single_dtype

_POSITIONS = 2048  # positions whose scores are made together; more for a longer text
_SCORES = {"cpu": 2**22}  # scores held at once: as many as stay near a CPU
_SCORES_OF_A_GPU = 2**26  # and few launches on a GPU


def bag_loss(
    features: Tensor,
    lengths: Sequence[int],
    tokens: Tensor,
    token_texts: Tensor,
    counted: Tensor,
    words: Tensor,
    bias: Tensor | None,
    mean: bool,
) -> Tensor:
    """Summed bag-of-words loss: the distinct tokens of each text from its states, whatever their order.

    A token's score is its greatest over the readable positions; the loss of a text is the sum over its distinct tokens
    of minus the log-softmax of their scores, over its number of tokens if `mean`. Source: DupMAE (Xiao, Liu, Shao and
    Cao 2023), equations 7 and 8, and its released code (`mean`).

    Args:
        features: (n, dim) what the vocabulary projection reads, at readable positions only, text after text.
        lengths: how many of them each text has.
        tokens: (m,) the tokens to be found, repetitions included.
        token_texts: (m,) the text of each, from 0.
        counted: (texts,) bool; a text that does not count has the loss 0.
        words: (vocabulary, dim) word matrix.
        bias: (vocabulary,) or None.
        mean: whether each text's sum is divided by its number of tokens, repetitions included.

    Returns:
        Scalar, in float32 at least. Of a text's scores only the greatest are kept.
    """
    likelihood = F.log_softmax(word_scores(features, lengths, words, bias), dim=-1)
    shares = counted.to(likelihood.dtype)
    if mean:
        found = torch.zeros_like(shares).index_add_(0, token_texts, shares[token_texts])
        shares = shares / found.clamp(min=1)
    weights = torch.zeros_like(likelihood).index_put_((token_texts, tokens), shares[token_texts])
    return -(weights * likelihood).sum()


def word_scores(features: Tensor, lengths: Sequence[int], words: Tensor, bias: Tensor | None) -> Tensor:
    """The score of every token of the vocabulary, its greatest over the positions of a text.

    Scores of all positions are never held whole. The gradient goes to one position alone for each text and token: of
    equal scores the one that `torch.max` gives. Under autocast the projection runs in its precision.

    Args:
        features: (n, dim) what the vocabulary projection reads, text after text.
        lengths: how many positions each text has.
        words: (vocabulary, dim) word matrix.
        bias: (vocabulary,) or None.

    Returns:
        (texts, vocabulary), in float32 at least; 0 for a text without a position. Source: DupMAE, equation 7.
    """
    scores: Tensor = _WordScores.apply(features, lengths, words, bias)  # type: ignore[no-untyped-call]
    return scores


class _WordScores(torch.autograd.Function):
    """`word_scores`, whose backward pass is sparse: a score comes from the state of one position."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, lengths: Sequence[int], words: Tensor, bias: Tensor | None) -> Tensor:
        dtype = projection_dtype(features)
        projected, matrix = features.to(dtype), words.to(dtype)
        best = projected.new_zeros(len(lengths), len(words), dtype=single_dtype(dtype))
        rows = torch.zeros_like(best, dtype=torch.int32)  # of `features`, where the greatest score is
        for block, start, sizes in _blocks(lengths):
            part = filled(projected[start : start + sum(sizes)]).T
            step = max(1, _SCORES.get(features.device.type, _SCORES_OF_A_GPU) // part.shape[1])
            for at in range(0, len(words), step):
                row = start
                found = (matrix[at : at + step] @ part)[:, : sum(sizes)]
                for text, scores in zip(block, found.split(sizes, dim=1), strict=True):
                    greatest = scores.max(dim=1)
                    best[text, at : at + step] = greatest.values
                    rows[text, at : at + step] = greatest.indices + row
                    row += scores.shape[1]
        if bias is not None:
            best += bias
        ctx.unread = [text for text, length in enumerate(lengths) if not length]
        for text in ctx.unread:
            best[text] = 0
        ctx.save_for_backward(features, words, rows)
        ctx.bias_dtype = None if bias is None else bias.dtype
        return best

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, change: Tensor) -> tuple[Tensor | None, ...]:
        features, words, rows = ctx.saved_tensors
        for text in ctx.unread:  # few, if any
            change = change.index_fill(0, torch.full((1,), text, device=change.device), 0)
        of_features, of_words, of_bias = None, None, None
        if ctx.needs_input_grad[0]:
            found, order = rows.flatten().sort(stable=True)
            starts = torch.searchsorted(found, torch.arange(len(features), dtype=found.dtype, device=found.device))
            of_features = _sums(words, order % len(words), change.flatten()[order], starts).to(features.dtype)
        if ctx.needs_input_grad[2]:
            starts = torch.arange(len(words), dtype=rows.dtype, device=rows.device) * len(rows)
            of_words = _sums(features, rows.T.flatten(), change.T.flatten(), starts).to(words.dtype)
        if ctx.needs_input_grad[3]:
            of_bias = change.sum(dim=0).to(ctx.bias_dtype)
        return of_features, None, of_words, of_bias


def _blocks(lengths: Sequence[int]) -> Iterator[tuple[list[int], int, list[int]]]:
    """Neighbouring texts whose scores are made together: their numbers, their first row, their lengths."""
    block: list[int] = []
    start, stop = 0, 0
    for text, length in enumerate(lengths):
        if block and stop + length - start > _POSITIONS:
            yield block, start, [lengths[at] for at in block]
            block, start = [], stop
        block += [text] if length else []
        stop += length
    if block:
        yield block, start, [lengths[at] for at in block]


def _sums(vectors: Tensor, chosen: Tensor, factors: Tensor, starts: Tensor) -> Tensor:
    """Sums of the `chosen` vectors (m,) times `factors` (m,), one from each of `starts` to the next; (starts, dim)."""
    if not len(vectors) or not len(starts):  # nothing was read
        return factors.new_zeros(len(starts), vectors.shape[1])
    return F.embedding_bag(chosen, vectors.to(factors.dtype), starts, per_sample_weights=factors, mode="sum")
