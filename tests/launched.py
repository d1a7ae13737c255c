"""Commands started as `accelerate launch` starts them: as one process, or as several that work together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

_LAUNCH = (sys.executable, "-m", "accelerate.commands.launch")
_FLAGS = {1: ("--num_processes", "1", "--cpu")}
_SEVERAL = ("--multi_gpu", "--main_process_port", "0", "--num_processes")


def launch(
    *command: str | Path, processes: int = 2, timeout: float = 300, config: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script, or `-m` and a module, with its arguments.

    Args:
        command: words of it.
        processes: that work together.
        timeout: in seconds.
        config: file of accelerate that says how they work together.

    Raises:
        RuntimeError: it did not end; with the stacks of all its processes.
    """
    flags = _FLAGS.get(processes, (*_SEVERAL, str(processes)))
    if config is not None:
        flags = ("--config_file", str(config), "--main_process_port", "0", "--num_processes", str(processes))
    words = [*_LAUNCH, *flags, *map(str, command)]
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        try:
            out, errors = started.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            for process in (*psutil.Process(started.pid).children(recursive=True), started):
                process.send_signal(signal.SIGABRT)  # at which Python writes the stacks of its threads
            raise RuntimeError(f"It did not end in {timeout} s:\n{started.communicate()[1]}") from error
    return subprocess.CompletedProcess(words, started.returncode, out, errors)
