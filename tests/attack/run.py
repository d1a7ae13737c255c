"""Attack the command line with bad inputs: every one by name, and as many drawn ones as are asked for.

python tests/attack/run.py --cases 2000 --seed 0 --out build/attack.json
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HOME = tempfile.mkdtemp(prefix="hf_dense-attack-")
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_XET": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ |= {"HF_HOME": HOME, "HF_DATASETS_CACHE": f"{HOME}/datasets"}
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

from attacks import LIMIT, TARGETS, Outcome, attack  # noqa: E402
from forked import warm_up  # noqa: E402
from material import make  # noqa: E402
from named import NAMED, attack_named  # noqa: E402

from hf_dense.storage.files import write_text  # noqa: E402
from hf_dense.storage.provenance import describe_run  # noqa: E402

_FINE = ("done", "refused")


def outcomes(cases: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """Run the named inputs and as many drawn ones, one after the other; rooms are removed."""
    make(folder / "material", folder / "said")
    room, material = folder / "room", folder / "material"
    for number, target in enumerate(TARGETS):
        room.mkdir()
        outcome = attack(number, seed, material, room, sound=True)
        if outcome.verdict != "done" and target.verb != "publish":  # which needs the Hub
            raise RuntimeError(f"What is sound fails: {outcome.words}\n{outcome.ended.stderr}")
        shutil.rmtree(room)
    for name in (*NAMED, *range(cases)):
        room.mkdir()
        yield attack_named(name, material, room) if isinstance(name, str) else attack(name, seed, material, room)
        shutil.rmtree(room)


def summarise(found: list[Outcome], cases: int, seed: int, seconds: float) -> dict[str, Any]:
    """What came of all of them, as JSON has it."""
    counts: dict[str, Counter[str]] = {}
    for outcome in found:
        counts.setdefault(outcome.verb, Counter())[outcome.verdict if outcome.verdict in _FINE else "failed"] += 1
    failed = [outcome for outcome in found if outcome.verdict not in _FINE]
    return {
        "cases": cases,
        "named": len(NAMED),
        "seed": seed,
        "limit in seconds": LIMIT,
        "seconds": round(seconds),
        "longest in seconds": round(max(outcome.ended.seconds for outcome in found), 1),
        "run": describe_run(),
        "by verb": {verb: dict(sorted(counted.items())) for verb, counted in sorted(counts.items())},
        "in all": dict(sum(counts.values(), Counter())),
        "failed": [{"number": one.number, "verb": one.verb, "how": one.how, "verdict": one.verdict} for one in failed],
    }


def main() -> None:
    """Run, print what failed, write the counts; exit code 1 where anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=64, help="drawn inputs (default: 64)")
    parser.add_argument("--seed", type=int, default=0, help="of all draws (default: 0)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON that receives the counts")
    arguments = parser.parse_args()
    warm_up()
    started, found = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        for outcome in outcomes(arguments.cases, arguments.seed, Path(folder)):
            found.append(outcome)
            if outcome.verdict not in _FINE:
                said = "\n".join(line[:300] for line in outcome.ended.stderr.rstrip().splitlines()[-20:])
                print(f"{outcome.number} {outcome.verb}: {outcome.how}: {outcome.verdict}\n{said}\n", flush=True)
    shutil.rmtree(HOME, ignore_errors=True)
    summary = summarise(found, arguments.cases, arguments.seed, time.monotonic() - started)
    write_text(arguments.out, json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary["in all"]))
    sys.exit(1 if summary["failed"] else 0)


if __name__ == "__main__":
    main()
