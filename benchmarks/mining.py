"""How fast hard negatives are mined, and in what memory, against the utilities of Sentence-Transformers.

    python benchmarks/mining.py [--threads 1 2] [--output benchmarks/results/mining.json]

10,000 queries, 100,000 passages, 384 dimensions, depth 200, random unit vectors, each query with one positive. `search`
compares vectors alone: ours, read from disk block by block, and `semantic_search`, which has them in memory. `mining`
starts from texts and a retriever that looks their vectors up: ours, from a collection to a file of training lists, and
`mine_hard_negatives`, from lists of texts to a dataset. Each runs in a process of its own; memory is the peak of
resident memory (VmHWM), `imports` that of the modules alone. Processor seconds are those of all threads. On a busy
machine one thread is the fairer run: of several, some wait for others that do not get a core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from pyarrow import parquet
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import dot_score, mine_hard_negatives, semantic_search

from hf_dense.evaluation.provenance import describe_commit, describe_hardware
from hf_dense.files import write_text
from hf_dense.finetuning.mining import mine_negatives
from hf_dense.vectors import BLOCK, Vectors, search

QUERIES, PASSAGES, DIMENSIONS, DEPTH, SEED = 10_000, 100_000, 384, 200, 0


class LookUp(SentenceTransformer):
    """A retriever whose vectors are on disk; the text of row 7 ends with the word 7."""

    def __init__(self, folder: Path) -> None:
        super().__init__(modules=[torch.nn.Identity()], similarity_fn_name="dot", device="cpu")
        self.folder = folder

    def encode_query(self, texts: list[str], **_: Any) -> np.ndarray:
        """(texts, dimensions) rows of the queries' vectors."""
        return self._rows("queries.npy", texts)

    def encode_document(self, texts: list[str], **_: Any) -> np.ndarray:
        """(texts, dimensions) rows of the passages' vectors."""
        return self._rows("passages.npy", texts)

    def _rows(self, name: str, texts: list[str]) -> np.ndarray:
        vectors = np.load(self.folder / name, mmap_mode="r")
        return np.asarray(vectors[[int(text.rsplit(" ", 1)[1]) for text in texts]])


def write_inputs(folder: Path) -> None:
    """Vectors whole and in blocks, and a collection whose query 7 has the positive passage 7."""
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
    judged = [str(at) for at in range(QUERIES)]
    (folder / "qrels").mkdir()
    table = pa.table({"query-id": judged, "corpus-id": judged, "score": pa.array([1] * QUERIES, pa.int32())})
    parquet.write_table(table, folder / "qrels" / "train.parquet")


def our_search(folder: Path) -> list[int]:
    blocks = Vectors(tuple(sorted(folder.glob("block-*.npy"))))
    return search(np.load(folder / "queries.npy"), blocks, DEPTH)[1].sum(axis=1).tolist()


def their_search(folder: Path) -> list[int]:
    queries, passages = (torch.from_numpy(np.load(folder / name)) for name in ("queries.npy", "passages.npy"))
    found = semantic_search(queries, passages, top_k=DEPTH, score_function=dot_score)
    return [sum(int(hit["corpus_id"]) for hit in hits) for hits in found]


def our_mining(folder: Path) -> list[int]:
    with tempfile.TemporaryDirectory() as name:
        out = mine_negatives(LookUp(folder), folder, Path(name) / "out", depth=DEPTH)
        negatives = parquet.ParquetFile(out / "negatives" / "train.parquet")
        return [
            sum(map(int, row))
            for batch in negatives.iter_batches(500, columns=["negatives"])
            for row in batch.column(0).to_pylist()
        ]


def their_mining(folder: Path) -> list[int]:
    texts = {
        name: parquet.read_table(folder / name / "part.parquet")["text"].to_pylist() for name in ("queries", "corpus")
    }
    pairs = Dataset.from_dict({"query": texts["queries"], "positive": texts["corpus"][:QUERIES]})
    found = mine_hard_negatives(
        pairs, LookUp(folder), corpus=texts["corpus"], num_negatives=DEPTH, output_format="n-tuple", verbose=False
    )
    names = [name for name in found.column_names if name.startswith("negative")]
    return [sum(int(row[name].rsplit(" ", 1)[1]) for name in names) for row in found]


TASKS: dict[str, Callable[[Path], list[int]]] = {
    "imports": lambda folder: [],
    "search, ours": our_search,
    "search, semantic_search": their_search,
    "mining, ours": our_mining,
    "mining, mine_hard_negatives": their_mining,
}


def run_task(name: str, folder: Path) -> None:
    """Measure one task in this process; sums of what was found tell whether two agree."""
    status = Path("/proc/self/status")
    started, worked = time.perf_counter(), time.process_time()
    found = TASKS[name](folder)
    measured = {"seconds": time.perf_counter() - started, "processor seconds": time.process_time() - worked}
    peak = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    (folder / "found.json").write_text(json.dumps({**measured, "peak GB": peak * 1024 / 1e9, "sums": found}))


def measure(threads: int) -> dict[str, Any]:
    """All tasks, one after the other, and how ours compare."""
    results: dict[str, Any] = {}
    sums: dict[str, list[int]] = {}
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryDirectory() as name:
        write_inputs(Path(name))
        for task in TASKS:
            subprocess.run([sys.executable, __file__, "--task", task, "--folder", name], check=True, env=environment)
            results[task] = json.loads((Path(name) / "found.json").read_text())
            sums[task] = results[task].pop("sums")
            print(task, json.dumps(results[task]), flush=True)
    for ours, theirs in (
        ("search, ours", "search, semantic_search"),
        ("mining, ours", "mining, mine_hard_negatives"),
    ):
        results[f"{ours} / {theirs.split(', ')[1]}"] = {
            "speed": results[theirs]["seconds"] / results[ours]["seconds"],
            "speed by processor time": results[theirs]["processor seconds"] / results[ours]["processor seconds"],
            "peak memory": results[ours]["peak GB"] / results[theirs]["peak GB"],
            "peak memory beyond imports": (results[ours]["peak GB"] - results["imports"]["peak GB"])
            / (results[theirs]["peak GB"] - results["imports"]["peak GB"]),
            "queries with the same passages": float(np.mean(np.equal(sums[ours], sums[theirs]))),
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of each process; one run for each")
    parser.add_argument("--output", default="benchmarks/results/mining.json")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        run_task(options.task, options.folder)
        return
    results = {
        "by threads": {threads: measure(threads) for threads in options.threads},
        "shape": {"queries": QUERIES, "passages": PASSAGES, "dimensions": DIMENSIONS, "depth": DEPTH},
        "commit": describe_commit(Path(__file__).parent),
        "hardware": describe_hardware(),
        "versions": {name: version(name) for name in ("hf_dense", "torch", "sentence-transformers", "numpy")},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": SEED,
    }
    write_text(options.output, json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
