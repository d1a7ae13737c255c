"""Attention masks and rotary positions: pure functions; in a mask, True = may look."""

from __future__ import annotations

import torch
from torch import Tensor

from .bottleneck_precision import single_dtype


def causal_window(queries: Tensor, keys: Tensor, k: int) -> Tensor:
    """Visibility of a causal decoder that sees its last `k` inputs, itself included, and position 0.

    Args:
        queries: (..., n) positions of the queries, from 0.
        keys: (m,) positions of the keys.
        k: window, in tokens.

    Returns:
        (..., n, m) bool; position i sees position j where i - k < j <= i, or j = 0.

    Source: SEED-Encoder, section 3.2 (k = 2: the previous two tokens, with right-shifted inputs); column 0 is visible
    in the released code.

    >>> causal_window(torch.arange(4), torch.arange(4), 2).int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]]
    """
    back = queries[..., None] - keys
    return ((back >= 0) & (back < k)) | (keys == 0)


def near(queries: Tensor, keys: Tensor, distance: int) -> Tensor:
    """Visibility of a layer that sees `distance` positions to either side (ModernBERT's local layers).

    Args:
        queries: (..., n) positions of the queries.
        keys: (m,) positions of the keys, or (..., 1, m), others for each row of queries.
        distance: in tokens.

    Returns:
        (..., n, m) bool; position i sees position j where |i - j| <= distance.

    >>> near(torch.arange(4), torch.arange(4), 1).int().tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    return (queries[..., None] - keys).abs() <= distance


def rotate(vectors: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary positions: turn each pair of coordinates (c, c + half) by the angle of its position.

    Args:
        vectors: (rows, heads, size) queries or keys.
        cosines: (rows, size).
        sines: (rows, size).

    Returns:
        (rows, heads, size), computed in float32 at least. Source: RoFormer (Su et al. 2021), equation 34.

    >>> quarter = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 1.0]])
    >>> rotate(torch.tensor([[[1.0, 2.0]]]), *quarter).tolist()
    [[[-2.0, 1.0]]]
    """
    wide = vectors.to(single_dtype(vectors.dtype))
    first, second = wide.chunk(2, dim=-1)
    turned = wide * cosines[:, None] + torch.cat([-second, first], dim=-1) * sines[:, None]
    return turned.to(vectors.dtype)


def open_blind_rows(visible: Tensor) -> Tensor:
    """Let every row that sees nothing see key 0, so that no softmax is taken over an empty set.

    Such rows are padding; nothing is scored there.

    Args:
        visible: (..., L, L) bool.

    Returns:
        (..., L, L) bool.

    >>> open_blind_rows(torch.tensor([[False, False], [False, True]])).int().tolist()
    [[1, 0], [0, 1]]
    """
    blind = ~visible.any(-1, keepdim=True)
    first = torch.arange(visible.shape[-1], device=visible.device) == 0
    return visible | (blind & first)
