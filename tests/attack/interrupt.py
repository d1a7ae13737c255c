"""Interrupt commands in the midst of their writing: run again, each ends as if it had never been disturbed.

python tests/attack/interrupt.py --cases 200 --seed 0 --out build/interruptions.json

A command is killed as it asks the system, for the n-th time, to open a file for writing, to rename, make or remove
something, or after a drawn time; or the disk is full from the n-th time on, or within the first file of more than a
drawn number of bytes, and the command says so. Half of the commands replace an output of an earlier version
(`--overwrite`). With `--processes 2`, commands that several processes work at together: the first is interrupted, or
the second after a drawn time, or both.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

HOME = tempfile.mkdtemp(prefix="hf_dense-interrupt-")
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_XET": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ |= {"HF_HOME": HOME, "HF_DATASETS_CACHE": f"{HOME}/datasets"}
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

from attacks import TARGETS, Target, prepare  # noqa: E402
from forked import Ended, run_forked, run_together, warm_up  # noqa: E402
from judging import contents, difference, snapshot, verdict  # noqa: E402
from material import make  # noqa: E402

from hf_dense.storage.files import write_text  # noqa: E402
from hf_dense.storage.provenance import describe_run  # noqa: E402

LIMIT: Final = 240.0  # seconds
_SAID: Final = 6_000  # characters
_FINE: Final = ("same", "not reached")
_TAKING: Final = ("open", "os.mkdir", "os.symlink")  # room on the disk
_CHANGES: Final = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")
_TRAINING: Final = {"--max_steps": "3", "--save_steps": "1", "--save_total_limit": "2", "--logging_steps": "1"}
INTERRUPTED: Final = (
    *(target for target in TARGETS if "OUT" in target.values.values() and not target.begun),
    Target(
        "pretrain --config @pretrain.yaml --method cotmae --corpus @corpus.jsonl --backbone @encoder",
        values={"--out": "OUT", **_TRAINING},
    ),
    Target(
        "finetune --config @finetune.yaml --model @retriever --collection @collection --lists @lists",
        values={"--out": "OUT", **_TRAINING, "--save_strategy": "steps", "--passages": "2", "--depth": "3"},
    ),
    Target("finetune --config @mined.yaml --model @retriever --collection @collection", values={"--out": "OUT"}),
)
_SHARED: Final = (
    *("pretrain", "finetune"),
    *("data generate", "data train-generator", "data scores", "data filter"),
)


@dataclass(frozen=True)
class Outcome:
    """What came of an interruption.

    Args:
        number: of the case.
        command: that was interrupted.
        how: and when.
        verdict: `same`, `not reached` (the command was done before), or what is wrong.
        said: by the command that went wrong.
    """

    number: int
    command: str
    how: str
    verdict: str
    said: str = ""


class Scene:
    """A room with what a command reads and, where it replaces something, the output of an earlier version."""

    def __init__(self, target: Target, replacing: bool, material: Path, room: Path, processes: int = 1) -> None:
        self.target, self.replacing, self.material, self.room = target, replacing, material, room
        self.processes = processes
        self._earlier = room.with_name(f"{room.name}-earlier")
        self.words = self._prepare()
        if replacing:
            must(self._run(Moment(), room.with_name("counted"), version="0.0.0"))
            self.words.append("--overwrite")
            shutil.rmtree(self._earlier, ignore_errors=True)
            shutil.copytree(self.room, self._earlier, symlinks=True)

    def _prepare(self) -> list[str]:
        shutil.rmtree(self.room, ignore_errors=True)
        self.room.mkdir()
        words, values = prepare(self.target, self.material, self.room)
        return [*words, *(word for pair in values.items() for word in pair)]

    @property
    def name(self) -> str:
        """Of the command, and whether it replaces something."""
        return f"{self.target.verb}{', replacing' if self.replacing else ''}"

    def is_given(self, path: str) -> bool:
        """Whether a file in the room is one that the command has no business to change."""
        first = Path(path).relative_to(self.room).parts[0]
        return first in {*self.target.reads, *self.target.more, "foreign"}

    def reset(self) -> None:
        """Nothing has run yet."""
        if self.replacing:
            shutil.rmtree(self.room)
            shutil.copytree(self._earlier, self.room, symlinks=True)
        else:
            self._prepare()

    def run(self, moment: Moment | None = None) -> tuple[Ended, int]:
        """Run the command, interrupted at a moment; gives the number of changes, unless it was killed."""
        counted = self.room.with_name("counted")
        counted.unlink(missing_ok=True)
        ended = self._run(moment or Moment(), counted)
        return ended, int(counted.read_text()) if counted.exists() else 0

    def _run(self, moment: Moment, counted: Path, version: str = "") -> Ended:
        def command(rank: int = 0) -> None:
            from hf_dense.commands.main import main
            from hf_dense.storage import output
            from hf_dense.storage.process_group import leave_process_group

            if version:
                output.__version__ = version
            if rank:
                signal.setitimer(signal.ITIMER_REAL, moment.helper)  # which ends this process, if it is not 0
                main(self.words)
            else:
                changes = watch_changes(self.room, moment)
                try:
                    main(self.words)
                finally:
                    os.write(os.open(counted, os.O_WRONLY | os.O_CREAT), str(len(changes)).encode())
            leave_process_group()

        said = self.room.with_name("said")
        if self.processes == 1:
            return run_forked(command, said, moment.seconds, largest=moment.largest)
        late = signal.SIGABRT if moment.seconds == LIMIT else signal.SIGKILL
        works = [partial(command, rank) for rank in range(self.processes)]
        first, *others = run_together(works, said, moment.seconds, late)
        if moment.kills and not first.hung and any(one.code < 0 for one in (first, *others)):
            return replace(first, code=-signal.SIGKILL)  # the others may say that they lost it
        if first.hung:
            return replace(first, stderr="\n".join(one.stderr[-_SAID:] for one in (first, *others)))
        return first if first.code else next((one for one in others if one.code), first)


@dataclass(frozen=True)
class Moment:
    """When a command is interrupted, and how.

    Args:
        change: the number of the change of files; 0 for none.
        full: whether the disk is full from that change on; else the command is killed before it.
        largest: bytes of a file, behind which the disk is full; 0 for never.
        seconds: after which it is killed.
        helper: seconds after which the second process is killed; 0 for never.
    """

    change: int = 0
    full: bool = False
    largest: int = 0
    seconds: float = LIMIT
    helper: float = 0.0

    @classmethod
    def drawn(cls, draw: random.Random, undisturbed: Undisturbed, processes: int = 1) -> Moment:
        """One in four kills by time, of several processes also of the second alone, one in four full disks, of one
        process also within a file, else kills at a change."""
        kind, seconds, changes = draw.randrange(4), undisturbed.seconds, undisturbed.changes
        if kind == 0 and processes > 1 and draw.random() < 0.5:
            return cls(helper=seconds * draw.random())
        if kind == 1 and processes == 1 and draw.random() < 0.5:
            return cls(full=True, largest=int(undisturbed.largest ** draw.random()))
        return cls(seconds=seconds * draw.random()) if kind == 0 else cls(draw.randint(1, changes), kind == 1)

    @property
    def kills(self) -> bool:
        """Whether something is killed."""
        return not self.full and bool(self.change or self.helper or self.seconds < LIMIT)

    def __str__(self) -> str:
        """As an outcome has it."""
        if self.helper:
            return f"second killed after {self.helper:.2f} s"
        if self.largest:
            return f"full behind {self.largest} bytes of a file"
        what = "full" if self.full else "killed"
        return f"{what} at change {self.change}" if self.change else f"{what} after {self.seconds:.2f} s"


def watch_changes(folder: Path, moment: Moment) -> list[str]:
    """List all changes of files in a folder from now on, and interrupt this process at the moment."""
    changes = list[str]()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(path, str | bytes) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event in _CHANGES:
            path = arguments[1 if event == "os.rename" else 0]
        else:
            return
        name = os.fsdecode(path)
        if not name.startswith(str(folder)) and os.path.isabs(name):  # relative: within a folder that is removed
            return
        changes.append(f"{event} {name}")
        if moment.full and 0 < moment.change <= len(changes) and event in _TAKING:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        if not moment.full and len(changes) == moment.change:
            os.killpg(0, signal.SIGKILL)

    sys.addaudithook(hook)
    return changes


def must(ended: Ended) -> Ended:
    """What was run, which succeeded.

    Raises:
        RuntimeError: it did not.
    """
    if ended.code:
        raise RuntimeError(f"What is sound fails ({ended.code}):\n{ended.stdout}\n{ended.stderr}")
    return ended


@dataclass(frozen=True)
class Undisturbed:
    """A scene as it is without an interruption.

    Args:
        before: the snapshot of what is there at the start.
        after: what two runs, one after the other, made of it.
        seconds: of a run.
        changes: of files, in a run.
        largest: bytes of the largest file that it makes.
    """

    before: dict[str, str]
    after: list[dict[str, Any]]
    seconds: float
    changes: int
    largest: int

    @classmethod
    def of(cls, scene: Scene) -> Undisturbed:
        """Run the command twice."""
        after = []
        for _ in range(2):
            scene.reset()
            before = snapshot(scene.room)
            ended, changes = scene.run()
            after.append(contents(must(ended) and scene.room))
        made = [file for file in scene.room.rglob("*") if file.is_file() and not scene.is_given(str(file))]
        return cls(before, after, ended.seconds, changes, max(file.stat().st_size for file in made))


def interrupt(scene: Scene, undisturbed: Undisturbed, number: int, draw: random.Random) -> Outcome:
    """Interrupt the command at a drawn moment, look at what that left, and run it again."""
    scene.reset()
    moment = Moment.drawn(draw, undisturbed, scene.processes)
    ended, _ = scene.run(moment)
    outcome = partial(Outcome, number, scene.name, f"{moment} of {undisturbed.changes} in {undisturbed.seconds:.2f} s")
    given = [name for name in undisturbed.before if scene.is_given(name)]
    was, left = {name: undisturbed.before[name] for name in given}, snapshot(scene.room)
    if moment.full and (how := verdict(ended, was, left)) not in ("done", "refused"):
        return outcome(how, ended.stderr[-_SAID:])
    if not moment.full and ended.code not in (0, -signal.SIGKILL):
        return outcome(f"exit {ended.code}", ended.stderr[-_SAID:])
    if lost := [name for name in given if left.get(name) != was[name]]:
        return outcome(f"changed {lost[0]}")
    if ended.code == 0:
        return outcome("not reached")
    again, _ = scene.run()
    if again.code:
        return outcome(f"then {'hangs' if again.hung else f'exit {again.code}'}", again.stderr[-_SAID:])
    if differs := difference(contents(scene.room), *undisturbed.after):
        return outcome(f"differs: {', '.join(differs[:5])}", again.stderr[-_SAID:])
    return outcome("same")


def scenes(processes: int) -> list[tuple[Target, bool]]:
    """Every command with and without an output to be replaced, which a file of hits never is."""
    targets = [target for target in INTERRUPTED if processes == 1 or target.verb in _SHARED]
    return [(target, False) for target in targets] + [
        (target, True) for target in targets if "--hits" not in target.values
    ]


def run(cases: int, seed: int, folder: Path, processes: int = 1) -> list[Outcome]:
    """Interrupt as often as is asked; every command has its turn, in one of its two scenes.

    Args:
        cases: how many.
        seed: of all draws.
        folder: an empty one.
        processes: that work together.
    """
    known = scenes(processes)
    material = folder / "material"
    make(material, folder / "said")
    turns: dict[int, list[int]] = {}
    for number in range(cases):
        turns.setdefault((number + seed) % len(known), []).append(number)
    found = []
    for turn, numbers in turns.items():
        scene = Scene(*known[turn], material, folder / "room", processes)
        undisturbed = Undisturbed.of(scene)
        for number in numbers:
            found.append(one := interrupt(scene, undisturbed, number, random.Random(f"{seed}:{number}")))
            if one.verdict not in _FINE:
                print(f"{one.number} {one.command} {one.how}: {one.verdict}\n{one.said}\n", flush=True)
    return found


def main() -> None:
    """Interrupt, print what failed, write the counts; exit code 1 where anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=24, help="drawn interruptions (default: 24)")
    parser.add_argument("--seed", type=int, default=0, help="of all draws (default: 0)")
    parser.add_argument("--processes", type=int, default=1, help="that work together (default: 1)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON that receives the counts")
    arguments = parser.parse_args()
    warm_up()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = run(arguments.cases, arguments.seed, Path(folder), arguments.processes)
    shutil.rmtree(HOME, ignore_errors=True)
    counts: dict[str, Counter[str]] = {}
    for one in found:
        counts.setdefault(one.command, Counter())[one.verdict if one.verdict in _FINE else "failed"] += 1
    failed = [vars(one) for one in found if one.verdict not in _FINE]
    summary = {
        "cases": arguments.cases,
        "processes": arguments.processes,
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - started),
        "run": describe_run(),
        "by command": {name: dict(sorted(counted.items())) for name, counted in sorted(counts.items())},
        "in all": dict(sum(counts.values(), Counter())),
        "failed": failed,
    }
    write_text(arguments.out, json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary["in all"]))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
