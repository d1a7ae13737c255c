"""Tasks side by side on the same synthetic collection, each in a process of its own: time, memory, what they found."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet
from sentence_transformers import SentenceTransformer

from hf_dense.search.dense import BLOCK
from hf_dense.storage.files import write_text
from hf_dense.storage.provenance import describe_commit, describe_hardware

QUERIES, PASSAGES, DIMENSIONS, SEED = 10_000, 100_000, 384, 0
PACKAGES = ("hf_dense", "torch", "sentence-transformers", "mteb", "numpy")

Task = Callable[[Path], list[int]]  # given the folder of `write_inputs`, a sum of what was found for each query


class LookUp(SentenceTransformer):
    """A retriever whose vectors are on disk; the text of row 7 ends with the word 7."""

    def __init__(self, folder: Path) -> None:
        super().__init__(modules=[torch.nn.Identity()], similarity_fn_name="dot", device="cpu")
        self.folder = folder

    def encode_query(self, texts: str | list[str], **_: Any) -> np.ndarray:
        """(texts, dimensions) rows of the queries' vectors."""
        return self._rows("queries.npy", [texts] if isinstance(texts, str) else texts)

    def encode_document(self, texts: list[str], **_: Any) -> np.ndarray:
        """(texts, dimensions) rows of the passages' vectors."""
        return self._rows("passages.npy", texts)

    def _rows(self, name: str, texts: list[str]) -> np.ndarray:
        vectors = np.load(self.folder / name, mmap_mode="r")
        return np.asarray(vectors[[int(text.rsplit(" ", 1)[1]) for text in texts]])


def write_inputs(folder: Path) -> None:
    """Vectors whole and in blocks, and a collection whose query 7 has the positive passage 7; half are of `test`."""
    rng = np.random.default_rng(SEED)
    words = np.array([f"word{number}" for number in range(20_000)])
    for name, count, size in (("queries", QUERIES, 6), ("corpus", PASSAGES, 50)):
        vectors = rng.standard_normal((count, DIMENSIONS), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        np.save(folder / ("passages.npy" if name == "corpus" else "queries.npy"), vectors)
        texts = [f"{' '.join(row)} {at}" for at, row in enumerate(rng.choice(words, size=(count, size)))]
        (folder / name).mkdir()
        ids = [str(at) for at in range(count)]
        parquet.write_table(pa.table({"id": ids, "text": texts}), folder / name / "part.parquet")
        if name == "corpus":
            for start in range(0, count, BLOCK):
                np.save(folder / f"block-{start // BLOCK:05d}.npy", vectors[start : start + BLOCK])
    (folder / "qrels").mkdir()
    for split, count in (("train", QUERIES), ("test", QUERIES // 2)):
        judged = [str(at) for at in range(count)]
        table = pa.table({"query-id": judged, "corpus-id": judged, "score": pa.array([1] * count, pa.int32())})
        parquet.write_table(table, folder / "qrels" / f"{split}.parquet")


def compare(script: str, about: str, tasks: Mapping[str, Task], pairs: Sequence[tuple[str, str]], **shape: int) -> None:
    """The command line of a benchmark; its results are written beside those of the others.

    Args:
        script: its file.
        about: what it measures.
        tasks: by name.
        pairs: of the names of ours and theirs.
        shape: numbers to be kept with the results.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of each process; one run for each")
    parser.add_argument("--output", default=f"benchmarks/results/{Path(script).stem}.json")
    parser.add_argument("--task", choices=tasks, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        _run(options.task, tasks[options.task], options.folder)
        return
    results = {
        "by threads": {threads: _measure(script, [*tasks], pairs, threads) for threads in options.threads},
        "shape": {"queries": QUERIES, "passages": PASSAGES, "dimensions": DIMENSIONS, **shape},
        "commit": describe_commit(Path(__file__).parent),
        "hardware": describe_hardware(),
        "versions": {name: version(name) for name in PACKAGES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": SEED,
    }
    write_text(options.output, json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def _run(name: str, task: Task, folder: Path) -> None:
    """Measure one task in this process; sums of what was found tell whether two agree."""
    status = Path("/proc/self/status")
    started, worked = time.perf_counter(), time.process_time()
    found = task(folder)
    measured = {"seconds": time.perf_counter() - started, "processor seconds": time.process_time() - worked}
    peak = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    (folder / "found.json").write_text(json.dumps({**measured, "peak GB": peak * 1024 / 1e9, "sums": found}))


def _measure(script: str, tasks: Sequence[str], pairs: Sequence[tuple[str, str]], threads: int) -> dict[str, Any]:
    """`imports`, which does nothing, and all tasks, one after the other, and how ours compare."""
    results: dict[str, Any] = {}
    sums: dict[str, list[int]] = {}
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryDirectory() as name:
        write_inputs(Path(name))
        for task in tasks:
            subprocess.run([sys.executable, script, "--task", task, "--folder", name], check=True, env=environment)
            results[task] = json.loads((Path(name) / "found.json").read_text())
            sums[task] = results[task].pop("sums")
            print(task, json.dumps(results[task]), flush=True)
    for ours, theirs in pairs:
        results[f"{ours} / {theirs.split(', ')[1]}"] = {
            "speed": results[theirs]["seconds"] / results[ours]["seconds"],
            "speed by processor time": results[theirs]["processor seconds"] / results[ours]["processor seconds"],
            "peak memory": results[ours]["peak GB"] / results[theirs]["peak GB"],
            "peak memory beyond imports": (results[ours]["peak GB"] - results["imports"]["peak GB"])
            / (results[theirs]["peak GB"] - results["imports"]["peak GB"]),
            "queries with the same passages": float(np.mean(np.equal(sums[ours], sums[theirs]))),
        }
    return results
