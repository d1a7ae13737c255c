"""How fast a retriever is evaluated, and in what memory, against MTEB's own search.

    python benchmarks/evaluation.py [--threads 1 2] [--output benchmarks/results/evaluation.json]

5,000 queries of a collection of 100,000 passages, vectors of 384 dimensions that a retriever looks up, so that search
and scoring are what is measured. Ours: `evaluate_retriever`, from the collection to figures, rankings and times of
single queries on disk. MTEB's: `mteb.evaluate` on the same task with the same retriever, from the collection to its
scores and predictions on disk. Each runs in a process of its own; memory is the peak of resident memory (VmHWM).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import mteb
from pyarrow import parquet
from side_by_side import LookUp, compare

from hf_dense.evaluation.result import RANKINGS_FILE
from hf_dense.evaluation.retrieval import build_task, evaluate_retriever

KEPT = 100  # passages of a query that are compared


def ours(folder: Path) -> list[int]:
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        evaluate_retriever(LookUp(folder), folder, "test", name="ours", out=out)
        found: dict[str, int] = {}
        for row in parquet.read_table(out / RANKINGS_FILE).to_pylist():
            found[row["query-id"]] = found.get(row["query-id"], 0) + int(row["corpus-id"])
    return [found[query] for query in sorted(found)]


def theirs(folder: Path) -> list[int]:
    task = build_task(folder, "test")
    with tempfile.TemporaryDirectory() as name:
        model = LookUp(folder)
        model.model_card_data.model_name = "local/theirs"
        mteb.evaluate(model, task, cache=None, prediction_folder=name, co2_tracker=False)
        found = json.loads((Path(name) / task.prediction_file_name).read_text())["default"]["test"]
    best = {query: sorted(row, key=lambda passage: (-row[passage], passage))[:KEPT] for query, row in found.items()}
    return [sum(map(int, best[query])) for query in sorted(best)]


if __name__ == "__main__":
    compare(
        __file__,
        __doc__ or "",
        {"imports": lambda folder: [], "evaluation, ours": ours, "evaluation, mteb.evaluate": theirs},
        [("evaluation, ours", "evaluation, mteb.evaluate")],
        evaluated_queries=5_000,
    )
