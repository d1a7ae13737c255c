"""Losses as pure functions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

IGNORED = -100  # label of a position that is not scored


def token_loss(hidden: Tensor, labels: Tensor, score: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Summed cross-entropy of the scored tokens; the vocabulary projection sees only those.

    Args:
        hidden: (batch, length, dim) states.
        labels: (batch, length) token ids, `IGNORED` where nothing is scored.
        score: (n, dim) -> (n, vocabulary) token scores.

    Returns:
        The sum over scored tokens (scalar, float32 or float64) and their number (scalar, int64).
    """
    scored = labels != IGNORED
    logits = score(hidden[scored])
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(logits, labels[scored], reduction="sum"), scored.sum()
