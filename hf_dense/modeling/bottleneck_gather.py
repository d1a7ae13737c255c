"""All-gather across processes, with exact gradients."""

from __future__ import annotations

import torch
from torch import Tensor, distributed
from torch.autograd.function import FunctionCtx


class _GatherRows(torch.autograd.Function):
    """Rows of all processes one after the other; backwards, every process's gradient for one's own rows is summed."""

    @staticmethod
    def forward(ctx: FunctionCtx, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(distributed.get_world_size())]
        distributed.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        distributed.all_reduce(total)
        return total.tensor_split(distributed.get_world_size())[distributed.get_rank()]


def gather_rows(rows: Tensor) -> tuple[Tensor, int]:
    """The rows (n, ...) of all processes (equally many on each), and where this process's own begin.

    If each process's loss is a sum over its own rows, the gradient that reaches its parameters is that of the sum of
    all processes' losses. One process alone gets its rows back.
    """
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return rows, 0
    gathered: Tensor = _GatherRows.apply(rows)  # type: ignore[no-untyped-call]
    return gathered, distributed.get_rank() * len(rows)
