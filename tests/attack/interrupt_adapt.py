"""Kill an adaptation again and again, at drawn moments: it ends with the verdict of one that was never disturbed.

python tests/attack/interrupt_adapt.py --seed 0 --out build/adapt_interruptions.json

Small: documents of a package, an embedder of random weights. Its plan, which depends on the machine, is made first.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).parents[1]))

from judging import contents, difference
from package_documents import write_documents, write_word_embedder

from hf_dense.storage.files import write_text
from hf_dense.storage.provenance import describe_run

_WORDS: Final = "adapt documents --base EMBEDDER --budget 60s --out out"
_SHORTEST: Final = 9.0  # seconds of a run before it is killed: those in which it starts, and some
_DRAWN: Final = 9.0  # and at most so many more
_MOST: Final = 40  # kills


@dataclass(frozen=True)
class Room:
    """Where documents are adapted to, `out` beside them."""

    folder: Path

    def start(self) -> subprocess.Popen[bytes]:
        """Run the command, with one thread; what it says is in `said`, beside the room."""
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        with self.folder.with_name("said").open("wb") as said:
            return subprocess.Popen(
                [sys.executable, "-m", "hf_dense.commands.main", *_WORDS.split()],
                cwd=self.folder,
                env={**environment, "HF_HOME": str(self.folder.with_name("home"))},
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def must(self, code: int) -> None:
        """Pass where the command succeeded.

        Raises:
            RuntimeError: it did not.
        """
        if code:
            said = self.folder.with_name("said").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"adapt ended with {code}:\n{said[-2_000:]}")

    def copy(self, other: Room) -> None:
        """Make another room the same as this one."""
        shutil.rmtree(other.folder, ignore_errors=True)
        shutil.copytree(self.folder, other.folder, symlinks=True)


def stop(run: subprocess.Popen[bytes]) -> None:
    """Kill a run with all that it started."""
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()


def interrupt(folder: Path, seed: int) -> tuple[int, list[str]]:
    """Kill an adaptation until it ends; gives the number of kills, and the files that came out otherwise.

    Args:
        folder: an empty one.
        seed: of the moments.
    """
    room, begun = Room(folder / "room"), Room(folder / "begun")
    room.folder.mkdir()
    write_documents(room.folder / "documents", room.folder / "package", 120)
    write_word_embedder(room.folder / "EMBEDDER", room.folder / "documents")
    run = room.start()
    while not (room.folder / "out" / "plan" / "plan.json").exists():
        if run.poll() is not None:
            room.must(run.returncode or 1)
        time.sleep(0.2)
    stop(run)
    room.copy(begun)
    undisturbed = []
    for _ in range(2):
        room.must(room.start().wait())
        undisturbed.append(contents(room.folder))
        begun.copy(room)
    draw, kills = random.Random(seed), 0
    while kills < _MOST:
        run = room.start()
        try:
            room.must(run.wait(_SHORTEST + _DRAWN * draw.random()))
            return kills, difference(contents(room.folder), *undisturbed)
        except subprocess.TimeoutExpired:
            stop(run)
            kills += 1
    raise RuntimeError(f"It did not end in {_MOST} runs; this machine needs longer ones.")


def main() -> None:
    """Kill, print what differs, write it; exit code 1 where anything does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON that receives what was found")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kills, differs = interrupt(Path(folder), arguments.seed)
    found = {"kills": kills, "seed": arguments.seed, "run": describe_run(), "differs": differs}
    write_text(arguments.out, json.dumps(found, indent=1) + "\n")
    print(json.dumps({"kills": kills, "differs": differs}))
    sys.exit(1 if differs else 0)


if __name__ == "__main__":
    main()
