"""Change what a complete output was made from, and run the command again: it is refused, or the output is made anew.

python tests/attack/stale.py --cases 200 --seed 0 --out build/stale.json

What the command does not read may change: then the output is still done. Each case is one change before one command.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

HOME = tempfile.mkdtemp(prefix="hf_dense-stale-")
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_XET": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ |= {"HF_HOME": HOME, "HF_DATASETS_CACHE": f"{HOME}/datasets"}
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

from attacks import LIMIT, TARGETS, Target, prepare  # noqa: E402
from forked import run_command, warm_up  # noqa: E402
from judging import contents, snapshot, verdict  # noqa: E402
from material import make, write_lines  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

from hf_dense.storage.files import write_text  # noqa: E402
from hf_dense.storage.provenance import describe_run  # noqa: E402

Change = Callable[[Path], None]


def _row(**values: object) -> Change:
    """Other values in the first row of a file of rows."""

    def change(file: Path) -> None:
        first, *rows = [json.loads(line) for line in file.read_text().splitlines()]
        write_lines(file, [{**first, **values}, *rows])

    return change


def _at_the_same_time(change: Change) -> Change:
    """A change of a file that has the same time afterwards, as files of many archives have."""

    def changed(file: Path) -> None:
        times = file.stat()
        change(file)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    return changed


def _within(name: str, change: Change) -> Change:
    return lambda folder: change(folder / name)


def _weight(folder: Path) -> None:
    """Another value of one embedding, in a file of the same size and time."""
    file = next(folder.rglob("model.safetensors"))
    times, tensors = file.stat(), load_file(file)
    name = next(name for name in tensors if name.endswith("word_embeddings.weight") or name == "shared.weight")
    tensors[name] = tensors[name].copy()
    tensors[name][9] += 1
    save_file(tensors, file, metadata={"format": "pt"})
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _setting(file: str, **values: object) -> Change:
    def change(folder: Path) -> None:
        settings = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(settings | values))

    return change


def _tokens(folder: Path) -> None:
    """Two tokens change their ids."""
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text())
    ids = settings["model"]["vocab"]
    first, second = sorted(ids, key=ids.__getitem__)[10:12]
    ids[first], ids[second] = ids[second], ids[first]
    file.write_text(json.dumps(settings))


def _judgement(folder: Path) -> None:
    for file in (folder / "qrels").iterdir():
        file.write_text(file.read_text().replace("q0\tp0", "q0\tp9"))


def _rate(file: Path) -> None:
    file.write_text(file.read_text().replace("0.001", "0.002"))


def _document(folder: Path) -> None:
    (folder / "new.md").write_text("# New\n\nA zebra ran over the hill today and came back.\n")


_MODEL: Final = {"weight": _weight, "tokens": _tokens}
CHANGES: Final[dict[str, dict[str, Change]]] = {
    "documents": {"new": _document, "text": _within("three.txt", lambda file: file.write_text("Zebras ran over it."))},
    "corpus.jsonl": {"text": _at_the_same_time(_row(text="A zebra ran over it.")), "title": _row(title="A zebra")},
    "collection": {
        "text": _within("corpus.jsonl", _row(text="A zebra ran over it.")),
        "title": _within("corpus.jsonl", _row(title="A zebra")),
        "query": _within("queries.jsonl", _row(text="a zebra")),
        "judgement": _judgement,
    },
    "labels.jsonl": {"query": _row(query="a zebra")},
    "questions.jsonl": {"text": _row(text="a zebra")},
    "glue": {"text": _within("cola/train.jsonl", _row(sentence="A zebra ran over it."))},
    "retriever": {
        **_MODEL,
        "cut": _setting("tokenizer_config.json", truncation_side="left"),
        "pooling": _setting("1_Pooling/config.json", pooling_mode="max"),
        "prompts": _setting("config_sentence_transformers.json", prompts={"query": "a ", "document": "b "}),
    },
    **dict.fromkeys(("encoder", "reranker", "writer"), _MODEL),
    "pretrained": {"weight": _weight},
    **{name: {"rate": _rate} for name in ("stages.yaml", "sweep.yaml")},
}
UNREAD: Final = {  # what the first words of a command do not depend on
    "data keywords": {"corpus.jsonl: title", "encoder: weight"},
    "pretrain --config @pretrain.yaml --corpus @corpus.jsonl --tokenizer": {"encoder: weight"},
    "search @retriever abcd --corpus": {"collection: query", "collection: judgement"},
    "analyse": {"corpus.jsonl: title"},
    "data generate": {"collection: query", "collection: judgement"},
}
CASES: Final = [
    (target, name, what)
    for target in TARGETS
    if "OUT" in target.values.values() and not target.begun
    for name in dict.fromkeys(target.reads)
    for what in CHANGES.get(name, {})
]


def is_read(target: Target, name: str, what: str) -> bool:
    """Whether the output depends on it."""
    return not any(target.words.startswith(words) and f"{name}: {what}" in few for words, few in UNREAD.items())


def outcomes(cases: list[tuple[Target, str, str]], folder: Path) -> Iterator[tuple[str, str]]:
    """For each case what it was and what came of it: `refused`, `made anew`, `done`, or what is wrong."""
    material, room, saved, said = (folder / name for name in ("material", "room", "saved", "said"))
    make(material, said)
    for target, several in groupby(cases, key=lambda case: case[0]):
        room.mkdir()
        words, values = prepare(target, material, room)
        words += [word for pair in values.items() for word in pair]
        if (ended := run_command(words, said, LIMIT)).code:
            raise RuntimeError(f"What is sound fails: {words}\n{ended.stderr}")
        shutil.move(room, saved)
        before = contents(saved / "out") if (saved / "out").is_dir() else snapshot(saved)
        for _, name, what in several:
            shutil.copytree(saved, room, symlinks=True)
            CHANGES[name][what](room / name)
            given = {path: content for path, content in snapshot(room).items() if f"{room}/out" not in path}
            found = verdict(run_command(words, said, LIMIT), given, snapshot(room))
            after = contents(room / "out") if (room / "out").is_dir() else snapshot(room)
            yield f"{target.words} {name}: {what}", _judged(found, after != before, is_read(target, name, what))
            shutil.rmtree(room)
        shutil.rmtree(saved)


def _judged(found: str, other: bool, read: bool) -> str:
    if found == "done" and other:
        found = "made anew"
    return (
        found if (found in ("refused", "made anew")) == read else f"{found}, though it is {'' if read else 'not '}read"
    )


def main() -> None:
    """Change, print what is wrong, write the counts; exit code 1 where anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=48, help=f"of {len(CASES)}, drawn (default: 48)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON that receives the counts")
    arguments = parser.parse_args()
    warm_up()
    drawn = sorted(random.Random(arguments.seed).sample(range(len(CASES)), min(arguments.cases, len(CASES))))
    found: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for case, came in outcomes([CASES[number] for number in drawn], Path(folder)):
            found.append((case, came))
            if came not in ("refused", "made anew", "done"):
                print(f"{case}: {came}", flush=True)
    shutil.rmtree(HOME, ignore_errors=True)
    counts = Counter(came for _, came in found)
    summary: dict[str, Any] = {
        "cases": len(found),
        "of": len(CASES),
        "seed": arguments.seed,
        "run": describe_run(),
        "in all": dict(counts),
    }
    write_text(arguments.out, json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary["in all"]))
    sys.exit(1 if set(counts) - {"refused", "made anew", "done"} else 0)


if __name__ == "__main__":
    main()
