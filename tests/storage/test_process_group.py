"""Processes that leave their group."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from hf_dense.errors import InputError
from hf_dense.storage import process_group
from hf_dense.storage.process_group import alone, decide_together, wait_for_everyone

COLLECTED = """
import os, sys
import torch
from torch import distributed
from hf_dense.storage.process_group import leave_process_group

distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
weights = [*torch.nn.Linear(3, 3).parameters()]
trainer = [distributed.Reducer(weights, [[0, 1]], [1 << 20], distributed.group.WORLD, [False, False], 1 << 20, False)]
trainer.append(trainer)  # so that garbage collection alone ends it
sys.setswitchinterval(1000.0)  # gloo's thread gets the interpreter when it is let go of alone
tensor = torch.ones(3)
work = distributed.all_reduce(tensor, async_op=True)
del tensor, work, trainer
leave_process_group()
tasks = (open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task"))
print([task for task in tasks if "gloo" in task])
"""


def test_an_interpreter_that_ends_has_left_its_group() -> None:
    script = (
        "import atexit, sys\n"
        "from torch import distributed\n"
        "atexit.register(lambda: sys.stdout.write(str(distributed.is_initialized())))\n"  # runs after hf_dense's
        "import hf_dense.storage.process_group\n"
        "distributed.init_process_group('gloo', store=distributed.HashStore(), rank=0, world_size=1)\n"
        "sys.stdout.write(f'{distributed.is_initialized()} ')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "True False"


def test_a_thread_that_lets_go_of_its_last_tensor_is_waited_for() -> None:
    """It needs the interpreter for that, which whoever waits for it must not hold."""
    done = subprocess.run([sys.executable, "-c", COLLECTED], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\n"


def test_processes_that_know_nothing_of_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would do all of the work, and write over the other's."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(process_group, "process_state", lambda: SimpleNamespace(num_processes=1))
    for together in (wait_for_everyone, lambda: decide_together(lambda: 1)):
        with pytest.raises(InputError, match="started for GPUs, and there are none"):
            together()
    with alone():
        assert decide_together(lambda: 1) == 1
