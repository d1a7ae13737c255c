"""This process among those that `accelerate launch` started."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from hf_dense.errors import InputError

if TYPE_CHECKING:
    from accelerate import PartialState

Found = TypeVar("Found")

_is_alone = False


def process_state() -> PartialState:
    """This process among those that `accelerate launch` started, on GPUs where there are any.

    One may wait for another for hours, while it mines, say.
    """
    import torch
    from accelerate import PartialState

    return PartialState(cpu=not torch.cuda.is_available(), timeout=timedelta(days=2))


def is_main_process() -> bool:
    """Whether this process is the only one, or the first of those that were started together."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def alone() -> Iterator[None]:
    """Let one process decide and write by itself, inside of this, while the others do something else or wait."""
    global _is_alone
    _is_alone = True
    try:
        yield
    finally:
        _is_alone = False


def are_several() -> bool:
    """Whether processes were started together; raises `InputError` where they know nothing of each other."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not _is_alone
    if several and process_state().num_processes == 1:
        raise InputError(
            "Several processes were started for GPUs, and there are none; say --use_cpu true, where the command takes "
            "it, or set ACCELERATE_USE_CPU=true."
        )
    return several


def decide_together(decide: Callable[[], Found]) -> Found:
    """What `decide` gives on the first process, on every process.

    Raises:
        InputError: it raised one; so do all processes then, and none waits for another.
    """
    if not are_several():
        return decide()
    from accelerate.utils import broadcast_object_list

    answer: list[Found | InputError | None] = [None]
    if process_state().is_main_process:
        try:
            answer = [decide()]
        except InputError as error:
            answer = [error]
    broadcast_object_list(answer)
    if isinstance(answer[0], InputError):
        raise answer[0]
    return answer[0]  # type: ignore[return-value]


def wait_for_everyone() -> None:
    """Wait until all processes are here."""
    if are_several():
        process_state().wait_for_everyone()


def leave_process_group() -> None:
    """Join gloo's threads: an interpreter that ends while they run is now and then aborted, its work done.

    A thread that lets go of its last tensor may need the interpreter, and the group waits for its threads. The group
    must therefore end by this reference to it, which torch drops without holding the interpreter, and not by that of a
    trainer, which holds it: both would wait for each other for ever.

    NCCL's groups are left alone: to leave one waits for the other processes, which may have failed.
    """
    distributed = sys.modules.get("torch.distributed")
    if (
        distributed
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_backend() == "gloo"
    ):
        group = distributed.group.WORLD
        distributed.destroy_process_group()
        gc.collect()  # a trainer and its callbacks hold each other, and the group
        del group


atexit.register(leave_process_group)
