"""Commands of `hf-dense` in children of one warm process: a crash, a signal or a hang of one stays its own."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

_WARM: Final = (
    "datasets",
    "faiss",
    "gradio",
    "matplotlib.pyplot",
    "sentence_transformers.cross_encoder",
    "hf_dense.data.passage_corpus",
    "hf_dense.data.queries.collection",
    "hf_dense.data.supervision",
    "hf_dense.evaluation.analysis_plots",
    "hf_dense.evaluation.benchmark",
    "hf_dense.evaluation.glue",
    "hf_dense.evaluation.html_report",
    "hf_dense.experiments.adaptation.run",
    "hf_dense.experiments.merging",
    "hf_dense.experiments.pipeline_results",
    "hf_dense.finetuning.filtering",
    "hf_dense.finetuning.pipeline",
    "hf_dense.hub.hybrid",
    "hf_dense.pretraining.pretrain",
    "hf_dense.search.index",
    "hf_dense.serving.page",
)
_PATIENCE: Final = 10.0  # seconds in which a child that is asked to may end
_SAYING: Final = 2**20  # bytes that a child may say where its files are limited
_MEMORY: Final = 12 * 2**30  # of a command: what asks for more is told so, and the machine lives


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Args:
        code: its exit code; below 0 the signal that ended it.
        seconds: that it took.
        hung: whether it was stopped at the limit.
        stdout: what it said.
        stderr: and on standard error.
    """

    code: int
    seconds: float
    hung: bool
    stdout: str
    stderr: str


def warm_up() -> None:
    """Import what the commands need, once for all of them; nothing is run, so that children can be forked."""
    for name in _WARM:
        import_module(name)
    gc.freeze()  # nor does a child look through it for garbage


def run_command(words: Sequence[str], said: Path, limit: float, stdin: bytes = b"", begun: str = "") -> Ended:
    """Run `hf-dense` in a child.

    Args:
        words: of the command line.
        said: folder for what it says.
        limit: seconds, after which it is stopped.
        stdin: what it reads.
        begun: what it says before long work, or before it waits: it is stopped then, as one that succeeded.
    """

    def command() -> None:
        from hf_dense.commands.main import main

        main(list(words))

    return run_forked(command, said, limit, stdin, begun=begun)


def run_together(
    works: Sequence[Callable[[], None]], said: Path, limit: float, late: int = signal.SIGABRT
) -> list[Ended]:
    """Run functions in children that work together, as `accelerate launch` starts programs: one fails, all end.

    Args:
        works: by rank.
        said: folder for what each says.
        limit: seconds, after which all are stopped.
        late: the signal that stops them then; at SIGABRT each says where it stands.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    size, started = str(len(works)), time.monotonic()
    children: dict[int, int] = {}  # process -> rank
    for rank, work in enumerate(works):
        place = _placed(said / str(rank), b"")
        if (child := os.fork()) == 0:
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
            os.environ |= {**ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
            _be_a_program(work, place)
        children[child] = rank
    codes: dict[int, int] = {}
    hung, stopped = False, 0.0
    while len(codes) < len(works):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            codes[children.pop(pid)] = os.waitstatus_to_exitcode(status)
            continue
        now, failed = time.monotonic(), any(codes.values())
        if not stopped and (failed or now - started > limit):
            hung, stopped = not failed, now
            _stop(children, late if hung else signal.SIGTERM)
        elif stopped and now - stopped > _PATIENCE:
            _stop(children, signal.SIGKILL)
        time.sleep(0.02)
    seconds = time.monotonic() - started
    return [_ended(codes[rank], seconds, hung, said / str(rank)) for rank in range(len(works))]


def run_forked(
    work: Callable[[], None], said: Path, limit: float, stdin: bytes = b"", largest: int = 0, begun: str = ""
) -> Ended:
    """Run a function in a child, as a program of its own.

    Args:
        work: the function.
        said: folder for what it says.
        limit: seconds, after which it is stopped.
        stdin: what it reads.
        largest: bytes of a file, more of which cannot be written; 0 for no such limit.
        begun: what it says before it is stopped, as one that succeeded; empty where it ends.
    """
    _placed(said, stdin)
    started = time.monotonic()
    pipes = [_pipe() for _ in range(2)] if largest else []  # what it says is in no file then
    if (child := os.fork()) == 0:
        if largest:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
        _be_a_program(work, said, [write for _, write in pipes])
    status, hung = _wait(child, started + limit, lambda: bool(begun) and any(begun in text for text in _said(said)))
    for (read, write), name in zip(pipes, ("stdout", "stderr"), strict=False):
        os.close(write)
        with open(read, "rb") as pipe:
            (said / name).write_bytes(pipe.read() or b"")
    return _ended(os.waitstatus_to_exitcode(status), time.monotonic() - started, hung, said)


def _pipe() -> tuple[int, int]:
    """Its ends: one to read what there is, and one to write, which waits for nobody to read."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _SAYING)
    os.set_blocking(read, False)
    return read, write


def _placed(said: Path, stdin: bytes) -> Path:
    """The folder, with what a child reads; what waits to be said here is not said there too."""
    said.mkdir(parents=True, exist_ok=True)
    for name, content in (("stdin", stdin), ("stdout", b""), ("stderr", b"")):
        (said / name).write_bytes(content)
    sys.stdout.flush()
    sys.stderr.flush()
    return said


def _ended(code: int, seconds: float, hung: bool, said: Path) -> Ended:
    return Ended(code, seconds, hung, *_said(said))


def _said(said: Path) -> list[str]:
    return [(said / name).read_text(encoding="utf-8", errors="replace") for name in ("stdout", "stderr")]


def _be_a_program(work: Callable[[], None], said: Path, saying: Sequence[int] = ()) -> None:
    """End this process as Python ends one: with the code of `SystemExit`, or 1 and a trace."""
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(saying[number - 1] if number and saying else os.open(said / name, flags, 0o644), number)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
            for number, mode, errors in ((0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace"))
        )
        faulthandler.enable(2)
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int, until: float, is_enough: Callable[[], bool]) -> tuple[int, bool]:
    """The child's status, 0 where it was enough, and whether it had to be killed, with all that it started."""
    pause = 0.005
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status, False
        if is_enough():
            _stop([child], signal.SIGKILL)
            os.waitpid(child, 0)
            return 0, False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    _stop([child], signal.SIGKILL)
    return os.waitpid(child, 0)[1], True


def _stop(children: Iterable[int], by: int) -> None:
    """Send a signal to children, and to all that they started."""
    for child in children:
        try:
            os.killpg(child, by)
        except ProcessLookupError:  # it is no group yet, or ended
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, by)
