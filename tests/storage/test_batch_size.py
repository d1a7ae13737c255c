"""The largest batch that memory holds, from what small ones take."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from imagined_memory import Imagined

from hf_dense.errors import InputError
from hf_dense.storage.batch_size import keep_batch_size, largest_batch, tried_batch


def nothing(size: int) -> None:
    """Take a step."""


@pytest.mark.parametrize(
    ("free", "each", "fixed", "kept", "expected"),
    [
        (1000, 1, 0, 0, 256),
        (1100, 1, 0, 0, 512),
        (1100, 1, 0, 100, 256),  # 550 less 100
        (1100, 1, 100, 0, 256),
        (100, 10, 10, 0, 4),
        (10**6, 1, 0, 0, 1024),  # there are no more rows
        (10**6, 0, 5, 0, 1024),
    ],
)
def test_it_is_the_largest_power_of_two_that_fits(free: int, each: int, fixed: int, kept: int, expected: int) -> None:
    memory = Imagined(free, each, fixed)
    assert largest_batch(nothing, memory, most=1024, kept=kept) == expected
    tried = memory.fixed + memory.each * max(memory.sizes)
    assert max(memory.sizes) == 2 or tried <= 0.5 * free, "no size is tried that may not fit"


def test_small_steps_are_enough_and_the_smallest_is_chosen_by_who_calls() -> None:
    memory = Imagined(10**6, 1000)
    assert largest_batch(nothing, memory, most=4096, least=8) == 256
    assert memory.sizes == [8, 16, 32, 64], "5 % of what is free is the first that says enough"


def test_it_says_what_it_found(caplog: pytest.LogCaptureFixture) -> None:
    largest_batch(nothing, Imagined(20 * 10**9, 60 * 10**6, 10**8), most=64, kept=10**8)
    assert caplog.messages == ["batch size 64: about 4.0 GB of 20.0 GB"]


def test_nothing_fits() -> None:
    sentence = r"A batch of 2 takes about 7.0 GB of memory, and 10.0 GB are free; take shorter texts or a smaller model"
    memory = Imagined(10 * 10**9, 3 * 10**9)
    with pytest.raises(InputError, match=sentence):
        largest_batch(nothing, memory, most=64, least=2, kept=10**9)
    assert memory.sizes == [2]


def test_a_size_that_runs_out_of_memory_is_halved(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []

    def step(most: int, size: int) -> None:
        seen.append(size)
        if size > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    assert tried_batch(partial(step, 5), 16) == 4
    assert seen == [16, 8, 4]
    assert caplog.messages == ["batch size 16 did not fit; it is 4"]
    assert tried_batch(partial(step, 16), 16) == 16
    with pytest.raises(InputError, match="Not one row fits into the memory of the GPU"):
        tried_batch(partial(step, 0), 16)

    def broken(size: int) -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        tried_batch(broken, 16)


def test_a_run_that_goes_on_keeps_the_rows_of_a_step() -> None:
    class Arguments:
        world_size, gradient_accumulation_steps, n_gpu = 2, 4, 1
        per_device_train_batch_size: Any = "auto"

        @property
        def train_batch_size(self) -> int:
            return int(self.per_device_train_batch_size) * self.n_gpu

    arguments: Any = Arguments()
    for recorded, expected in ((64, 8), (8, 1), (4, 1)):
        keep_batch_size(arguments, recorded)
        assert arguments.per_device_train_batch_size == expected
