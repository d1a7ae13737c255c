"""The largest batch that memory holds, for trainings whose `per_device_train_batch_size` is `auto`."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hf_dense.errors import InputError
from hf_dense.storage.memory import DeviceMemory, MainMemory, Memory

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments

logger = logging.getLogger(__name__)

AUTO: Final = "auto"
_SEEN: Final = 0.05  # share of the free memory that a step takes at least, so that its growth is not noise
_SMALLEST: Final = 2  # some methods read texts in pairs
_MOMENTS: Final = 2  # numbers that AdamW keeps of each weight


def is_auto(arguments: TrainingArguments) -> bool:
    """Whether the batch size is to be found."""
    given: Any = arguments.per_device_train_batch_size
    return bool(given == AUTO)


def find_batch_size(
    make: Callable[[Any], Trainer],
    arguments: TrainingArguments,
    rows: Callable[[int], list[Any]],
    most: int,
    chunk: int | None = None,
) -> int:
    """The largest batch, a power of two, that the memory of the trainer's device holds.

    Small batches are taken forward and backward, without a step of the optimiser, and what they take is extended in a
    straight line. Main memory that is overdrawn would end the process, so that is all there; on a GPU the size is tried
    too, and halved where it does not fit. Weights and the draws of the training stay as they are.

    Args:
        make: the trainer, with the arguments that it is given.
        arguments: of the training.
        rows: as many rows as it is given of the longest there are, as the trainer's collator takes them.
        most: the largest batch that there are rows for.
        chunk: rows that are taken forward at once, where a batch is cut; what more of them take is seen beyond that.

    Raises:
        InputError: not even a small batch fits, or there are several processes.
    """
    if arguments.world_size > 1:
        raise InputError("per_device_train_batch_size auto is found by one process; start one, or name a number.")
    most = _power_of_two(most)
    with tempfile.TemporaryDirectory() as scratch:
        trial: Any = copy(arguments)
        trial.output_dir, trial.push_to_hub, trial.report_to, trial.eval_strategy = scratch, False, [], "no"
        trial.per_device_train_batch_size = _SMALLEST  # batches come from `rows`
        trainer = make(trial)
    model: Any = trainer.model
    weights = sum(part.numel() * part.element_size() for part in model.parameters() if part.requires_grad)
    on_gpu = trainer.args.device.type == "cuda"
    memory: Memory = DeviceMemory(trainer.args.device) if on_gpu else MainMemory()
    step = partial(_step, trainer, rows)
    least = min(_SMALLEST if chunk is None else 4 * _power_of_two(chunk), most)  # two chunks of any size
    if on_gpu:
        least = tried_batch(step, least)
    found = largest_batch(step, memory, most, least, _MOMENTS * weights)
    if on_gpu:
        found = tried_batch(step, found)
    model.zero_grad(set_to_none=True)
    return found


def largest_batch(step: Callable[[int], object], memory: Memory, most: int, least: int = 1, kept: int = 0) -> int:
    """The largest power of two whose step memory holds, extended in a straight line from small steps.

    Args:
        step: takes a batch of so many rows.
        memory: that it takes.
        most: a power of two, the largest that is looked for.
        least: a power of two, at most that, the smallest that is tried.
        kept: bytes that stand beside it.

    Raises:
        InputError: the smallest does not fit.
    """
    room = memory.share * memory.free - kept
    size, peaks = least, [memory.peak(partial(step, least))]
    while 2 * size <= most and 2 * peaks[-1] <= room and (len(peaks) < 2 or peaks[-1] < _SEEN * memory.free):
        size *= 2
        peaks.append(memory.peak(partial(step, size)))
    each = max(2 * (peaks[-1] - peaks[-2]) / size, 0) if len(peaks) > 1 else peaks[-1] / size
    powers = [1 << power for power in range(least.bit_length() - 1, most.bit_length())]
    needed = {power: peaks[-1] + each * (power - size) for power in powers}
    if needed[least] > room:
        raise InputError(
            f"A batch of {least} takes about {_gigabytes(needed[least] + kept)} of memory, and "
            f"{_gigabytes(memory.free)} are free; take shorter texts or a smaller model, or name a batch size."
        )
    found = max(power for power in powers if needed[power] <= room)
    logger.warning("batch size %d: about %s of %s", found, _gigabytes(needed[found] + kept), _gigabytes(memory.free))
    return found


def tried_batch(step: Callable[[int], object], size: int) -> int:
    """The batch size, halved until a step of it runs without running out of memory.

    Raises:
        InputError: none does.
    """
    from accelerate.utils import find_executable_batch_size

    sizes = iter([size >> halved for halved in range(1, size.bit_length() + 1)])  # to 0, which ends it

    def attempt(batch_size: int) -> int:
        step(batch_size)
        return batch_size

    run = find_executable_batch_size(attempt, starting_batch_size=size, reduce_batch_size_fn=lambda: next(sizes))
    try:
        found: int = run()
    except RuntimeError as error:
        if "No executable batch size" not in str(error):
            raise
        raise InputError(
            "Not one row fits into the memory of the GPU; take shorter texts or a smaller model."
        ) from error
    if found < size:
        logger.warning("batch size %d did not fit; it is %d", size, found)
    return found


def keep_batch_size(arguments: TrainingArguments, recorded: int) -> None:
    """Take the batch size of a run that is gone on with.

    Args:
        arguments: whose batch size is set.
        recorded: rows of one of its steps, over all processes and accumulated batches.
    """
    arguments.per_device_train_batch_size = 1
    ones = arguments.train_batch_size * arguments.world_size * arguments.gradient_accumulation_steps
    arguments.per_device_train_batch_size = max(recorded // ones, 1)


def _step(trainer: Trainer, rows: Callable[[int], list[Any]], size: int) -> None:
    """Forward and backward, without the optimiser."""
    from accelerate.utils import send_to_device

    model: Any = trainer.model
    model.train()
    batch = send_to_device(trainer.data_collator(rows(size)), trainer.args.device)
    with trainer.accelerator.autocast():
        loss = trainer.compute_loss(model, batch)
    trainer.accelerator.backward(loss)


def _power_of_two(number: int) -> int:
    """The largest power of two that is no larger than a number, 1 at least.

    >>> [_power_of_two(number) for number in (0, 1, 63, 64)]
    [1, 1, 32, 64]
    """
    return 1 << max(number.bit_length() - 1, 0)


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB"
