"""This process among those that `accelerate launch` started."""

from __future__ import annotations

from datetime import timedelta

import torch
from accelerate import PartialState
from torch import distributed


def process_state() -> PartialState:
    """This process among those that `accelerate launch` started, on GPUs where there are any.

    One may wait for another for hours, while it mines, say.
    """
    return PartialState(cpu=not torch.cuda.is_available(), timeout=timedelta(days=2))


def leave_process_group() -> None:
    """Join gloo's threads: an interpreter that ends while they run is now and then aborted, its work done.

    NCCL's groups are left alone: to leave one waits for the other processes, which may have failed.
    """
    if distributed.is_available() and distributed.is_initialized() and distributed.get_backend() == "gloo":
        distributed.destroy_process_group()
