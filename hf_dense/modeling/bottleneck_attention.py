"""What a decoder position may look at: pure functions on boolean masks (True = may look)."""

from __future__ import annotations

import torch
from torch import Tensor


def causal_window(length: int, k: int, device: torch.device | None = None) -> Tensor:
    """Visibility of a causal decoder that sees its last `k` inputs, itself included, and position 0.

    Args:
        length: sequence length L, in tokens.
        k: window, in tokens.

    Returns:
        (L, L) bool; row i sees column j where i - k < j <= i, or j = 0.

    Source: SEED-Encoder, section 3.2 (k = 2: the previous two tokens, with right-shifted inputs); column 0 is visible
    in the released code.

    >>> causal_window(4, 2).int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]]
    """
    position = torch.arange(length, device=device)
    back = position[:, None] - position[None, :]
    return ((back >= 0) & (back < k)) | (position == 0)[None, :]


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
