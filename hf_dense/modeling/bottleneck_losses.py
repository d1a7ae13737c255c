"""Token cross-entropy, in-batch contrastive loss and bag-of-words loss, as pure functions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

IGNORED = -100  # label of a position that is not scored
_BAG_POSITIONS = 2048  # positions whose scores over the whole vocabulary are held at once
_CHUNK = 512  # positions per chunk of logits on CPU; 256 to 1,024 are equally fast


def token_loss(features: Tensor, targets: Tensor, words: Tensor, bias: Tensor | None) -> Tensor:
    """Summed cross-entropy of token scores `features @ words.T + bias`.

    On CPU the scores are made and used chunk by chunk, never held whole. On a GPU the projection stays in the autocast
    precision, which the chunked path of PyTorch does not keep.

    Args:
        features: (n, dim) what the vocabulary projection reads, at scored positions only.
        targets: (n,) token ids.
        words: (vocabulary, dim) word matrix.
        bias: (vocabulary,) or None.

    Returns:
        Scalar, in float32 at least; 0 for n = 0.
    """
    single = features.dtype if features.dtype == torch.float64 else torch.float32
    if features.device.type == "cpu" and len(features) > _CHUNK and hasattr(F, "linear_cross_entropy"):
        options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=_CHUNK, chunking_method=None)
        loss: Tensor = F.linear_cross_entropy(
            features.to(single), words.to(single), targets, linear_bias=bias, reduction="sum", options=options
        )
        return loss
    scores = F.linear(features, words, bias)
    return F.cross_entropy(scores.to(single), targets, reduction="sum")


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
    single = vectors.dtype if vectors.dtype == torch.float64 else torch.float32
    with torch.autocast(vectors.device.type, enabled=False):
        scores = vectors.to(single) @ candidates.to(single).T
    rows = torch.arange(offset, offset + len(vectors), device=vectors.device)
    columns = torch.arange(len(candidates), device=vectors.device)
    scores = scores.masked_fill((columns == rows[:, None]) | ~candidates_valid, float("-inf"))
    return F.cross_entropy(scores[valid], (rows ^ 1)[valid], reduction="sum")


def word_scores(features: Tensor, readable: Tensor, words: Tensor, bias: Tensor | None) -> Tensor:
    """The score of every token of the vocabulary, its greatest over the readable positions of a text.

    Args:
        features: (batch, length, dim) what the vocabulary projection reads.
        readable: (batch, length) bool, positions that score.
        words: (vocabulary, dim) word matrix.
        bias: (vocabulary,) or None.

    Returns:
        (batch, vocabulary). Source: DupMAE, equation 7.
    """
    scores = F.linear(features, words, bias)
    return scores.masked_fill(~readable[:, :, None], torch.finfo(scores.dtype).min).max(dim=1).values


def bag_loss(
    features: Tensor, readable: Tensor, ids: Tensor, counted: Tensor, words: Tensor, bias: Tensor | None, mean: bool
) -> Tensor:
    """Summed bag-of-words loss: the distinct tokens of each text from its states, whatever their order.

    A token's score is its greatest over the readable positions; the loss of a text is the sum over its distinct tokens
    of minus the log-softmax of their scores, over its number of tokens if `mean`. Source: DupMAE (Xiao, Liu, Shao and
    Cao 2023), equations 7 and 8, and its released code (`mean`).

    Args:
        features: (batch, length, dim) what the vocabulary projection reads.
        readable: (batch, length) bool, positions that score.
        ids: (batch, length) the tokens of the whole text.
        counted: (batch, length) bool, tokens to be found.
        words: (vocabulary, dim) word matrix.
        bias: (vocabulary,) or None.
        mean: whether each text's sum is divided by its number of tokens, repetitions included.

    Returns:
        Scalar, in float32 at least. Scores are made for a few texts at a time and not kept.
    """
    single = features.dtype if features.dtype == torch.float64 else torch.float32
    total = features.new_zeros((), dtype=single)
    step = max(1, _BAG_POSITIONS // features.shape[1])
    for at in range(0, len(features), step):
        part = slice(at, at + step)
        likelihood = F.log_softmax(word_scores(features[part], readable[part], words, bias).to(single), dim=-1)
        present = counted[part]
        found = torch.zeros_like(likelihood)
        found.scatter_add_(1, ids[part], present.to(single))
        weights = (found > 0).to(single)
        if mean:
            weights = weights / present.sum(dim=1, keepdim=True).clamp(min=1)
        total = total - (weights * likelihood).sum()
    return total
