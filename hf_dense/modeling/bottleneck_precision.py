"""In which precision matrices are multiplied, and how many rows they have where that costs time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

_SHORT = (torch.bfloat16, torch.float16)
_STEPS = 5  # numbers of rows are rounded up to so many binary digits, at the price of 2 % more rows
_LEAST = 8


def projection_dtype(rows: Tensor) -> torch.dtype:
    """The precision in which `rows` are multiplied by a matrix: autocast's, where it is on, or their own."""
    device = rows.device.type
    if rows.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return rows.dtype
    return torch.get_autocast_dtype(device)


def single_dtype(dtype: torch.dtype) -> torch.dtype:
    """The precision of losses and sums of what is in `dtype`: float64 stays, all else is float32."""
    return dtype if dtype == torch.float64 else torch.float32


def filled(rows: Tensor) -> Tensor:
    """Rows with rows of zeros behind them, where they are multiplied on a CPU in 16 bits; else as they are.

    What multiplies matrices there (oneDNN) writes a program for every shape that it meets: 1 to 15 ms, and most of a
    megabyte. Texts have any number of tokens, so hardly a batch would have the shapes of another; filled up to a number
    of rows that others have too, most find their programs written.

    Args:
        rows: (n, ...).

    Returns:
        (n or more, ...); of the same n always as many.
    """
    if rows.device.type != "cpu" or projection_dtype(rows) not in _SHORT or torch.compiler.is_compiling():
        return rows
    spare = -len(rows) % max(2 ** (len(rows).bit_length() - _STEPS), _LEAST)
    return F.pad(rows, (*[0, 0] * (rows.dim() - 1), 0, spare)) if spare else rows


def unfilled(rows: Tensor, count: int) -> Tensor:
    """The first `count` of rows that may have been filled; the very same tensor where they were not, so that gradients
    are summed as if nothing ever was."""
    return rows if len(rows) == count else rows[:count]
