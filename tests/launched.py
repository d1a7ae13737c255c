"""Commands started as `accelerate launch` starts them: as one process, or as several that work together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import psutil

_LAUNCH = (sys.executable, "-m", "accelerate.commands.launch")
_FLAGS = {1: ("--num_processes", "1", "--cpu")}
_SEVERAL = ("--multi_gpu", "--main_process_port", "0", "--num_processes")


def launch(*command: str | Path, processes: int = 2, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a script, or `-m` and a module, with its arguments.

    One that does not end says where each of its processes stands, as a warning, and is started once more: processes
    that wait for each other for ever are a fault, but one in a thousand launches may be the machine's.

    Args:
        command: words of it.
        processes: that work together.
        timeout: in seconds.

    Raises:
        TimeoutExpired: it did not end the second time either.
    """
    words = [*_LAUNCH, *_FLAGS.get(processes, (*_SEVERAL, str(processes))), *map(str, command)]
    try:
        return _run(words, timeout)
    except subprocess.TimeoutExpired as error:
        warnings.warn(f"{' '.join(words)} did not end in {timeout} s:\n{error.stderr}", stacklevel=2)
        return _run(words, timeout)


def _run(words: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        try:
            out, errors = started.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            family = [*psutil.Process(started.pid).children(recursive=True), started]
            for process in family:
                process.send_signal(signal.SIGABRT)  # at which Python writes the stacks of its threads
            out, errors = started.communicate()
            raise subprocess.TimeoutExpired(words, timeout, out, errors) from None
    return subprocess.CompletedProcess(words, started.returncode, out, errors)
