"""Whether this machine computes faster in bfloat16."""

from __future__ import annotations

import time
from functools import cache
from typing import Final

import torch
from torch.nn import functional

_SHAPE: Final = (2048, 512, 2048)  # rows, inputs and outputs of a linear layer
_TRIALS: Final = 5
_WORTH: Final = 1.5  # times as fast


@cache
def is_faster_in_bf16() -> bool:
    """Whether matrices are multiplied at least 1.5 times as fast in bfloat16: tried out, in a fraction of a second.

    GPUs that have bfloat16 do; of processors those with AMX or AVX512-BF16. Others have it, and are slower by it.
    """
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    return _WORTH * _seconds(torch.bfloat16) < _seconds(torch.float32)


def _seconds(dtype: torch.dtype) -> float:
    """Of a linear layer, the best of some trials."""
    rows, inputs, outputs = _SHAPE
    texts, weights = torch.ones(rows, inputs, dtype=dtype), torch.ones(outputs, inputs, dtype=dtype)
    taken = []
    with torch.inference_mode():
        for _ in range(_TRIALS):
            started = time.perf_counter()
            functional.linear(texts, weights)
            taken.append(time.perf_counter() - started)
    return min(taken)
