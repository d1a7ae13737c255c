"""Commands side by side, one thread each.

Small encoders gain next to nothing from a second thread: two trainings side by side take about as long as one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hf_dense.errors import InputError
from hf_dense.experiments.countdown import Countdown

_PAUSE: Final = 0.1  # seconds between two looks at those that run


def run_side_by_side(commands: Mapping[str, Sequence[str]], logs: Path, at_once: int | None = None) -> None:
    """Run every command in a process of its own, so many at once, and wait for all.

    Progress bars (standard error) appear one below the other, above them how many commands are done; all else that a
    command prints goes to its log.

    Args:
        commands: program and arguments, by a name for the progress bar and the log.
        logs: directory of the logs, `<name>.log`.
        at_once: commands running at the same time; one for each core when absent.

    Raises:
        InputError: a command failed; those still running are stopped, as they are where this process is ended.
    """
    logs.mkdir(parents=True, exist_ok=True)
    free = list(range(min(at_once or os.cpu_count() or 1, len(commands))))
    waiting = list(commands)
    running: dict[str, tuple[subprocess.Popen[bytes], int]] = {}
    countdown = Countdown(len(commands))
    with _leaving_by_exception():
        try:
            while waiting or running:
                while waiting and free:
                    name = waiting.pop(0)
                    running[name] = _start(commands[name], name, free[0], logs), free.pop(0)
                time.sleep(_PAUSE)
                for name, (process, position) in list(running.items()):
                    if process.poll() is None:
                        continue
                    del running[name]
                    free.append(position)
                    if process.returncode:
                        raise InputError(f"{name} failed for the reason given above; its log is {log_of(name, logs)}.")
                    countdown.step(name)
        finally:
            for process, _ in running.values():
                process.terminate()
            for process, _ in running.values():
                process.wait()


def log_of(name: str, logs: Path) -> Path:
    """Where the command called `name` prints to."""
    return logs / (re.sub(r"[^\w.-]+", "-", name.lower()) + ".log")


@contextmanager
def _leaving_by_exception() -> Iterator[None]:
    """Let a signal that ends this process raise `SystemExit` (128 and its number), so that none it started goes on."""

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    of_main = threading.current_thread() is threading.main_thread()  # of which alone Python takes signals
    ending = [each for each in (signal.SIGTERM, signal.SIGHUP) if of_main and signal.getsignal(each) == signal.SIG_DFL]
    for each in ending:
        signal.signal(each, leave)
    try:
        yield
    finally:
        for each in ending:
            signal.signal(each, signal.SIG_DFL)


def _start(command: Sequence[str], name: str, position: int, logs: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
        "TQDM_POSITION": str(position),
        "TQDM_DESC": name,
    }
    with log_of(name, logs).open("w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, env=environment)
