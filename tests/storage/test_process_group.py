"""Processes that leave their group."""

from __future__ import annotations

import subprocess
import sys


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
