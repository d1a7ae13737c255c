"""What every stage of a pipeline is worth, on queries that none of them saw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hf_dense.data.collections import content_hash
from hf_dense.errors import InputError
from hf_dense.evaluation.measures import METRICS, title
from hf_dense.evaluation.plots import plot_losses, plot_metrics
from hf_dense.evaluation.reranking import evaluate_reranker
from hf_dense.evaluation.result import RESULT_FILE, RetrievalResult
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.evaluation.significance import compare_paired
from hf_dense.finetuning.biencoder import load_history
from hf_dense.finetuning.pipeline import Pipeline
from hf_dense.finetuning.stages import Stages
from hf_dense.search.first_stage import BM25
from hf_dense.storage.files import write_text
from hf_dense.storage.provenance import provenance


def measure_stages(pipeline: Pipeline, models: Mapping[str, Path], split: str) -> str:
    """Evaluate BM25 and every model of a pipeline on a split, each against the one before it.

    Writes `results.json`, `metrics.png` and `losses.png` in the pipeline's directory; evaluations that are there are
    not made again.

    Args:
        pipeline: the settings.
        models: what `run_pipeline` gave.
        split: of the judgements; not the one that was trained on.

    Returns:
        A Markdown table: each stage's metrics, the difference of its MRR@10 and nDCG@10 from the stage before with 95 %
        interval and p-value (paired randomisation), and its time.

    Raises:
        InputError: the split is the one trained on, or has no judgements.
    """
    if split == pipeline.split:
        raise InputError(f"The split {split!r} was trained on; measure on another.")
    results = [_result(pipeline, name, model, split) for name, model in {"bm25": Path(), **models}.items()]
    stages, rows = Stages(Path(pipeline.output_dir)), list[dict[str, Any]]()
    for at, result in enumerate(results):
        row: dict[str, Any] = {
            "name": result.name,
            "metrics": result.metrics,
            "queries": len(result.per_query["mrr@10"]),
        }
        if at:
            row["before"] = results[at - 1].name
            row["against before"] = {
                metric: asdict(compare_paired(result.per_query[metric], results[at - 1].per_query[metric]))
                for metric in ("mrr@10", "ndcg@10")
            }
        row["seconds"] = stages.seconds(result.name)
        rows.append(row)
    out = Path(pipeline.output_dir)
    facts = {"split": split, "results": rows, "pipeline": asdict(pipeline)}
    write_text(
        out / "results.json",
        json.dumps(
            {**facts, **provenance(pipeline.seed, pipeline.collection, content_hash(pipeline.collection))}, indent=1
        ),
    )
    shown = [{"name": row["name"], **{metric: row["metrics"][metric] for metric in METRICS}} for row in rows]
    plot_metrics(shown, out / "metrics.png")
    plot_losses({name: load_history(out / name) for name in models}, out / "losses.png")
    return _table(rows)


def _result(pipeline: Pipeline, name: str, model: Path, split: str) -> RetrievalResult:
    folder = Path(pipeline.output_dir) / "evaluation" / split
    if (folder / name / RESULT_FILE).is_file():
        return RetrievalResult.load(folder / name)
    if name == "reranker":
        before = folder / "retriever2"
        out = folder / name
        return evaluate_reranker(model, before, pipeline.collection, name=name, output_dir=out, depth=pipeline.rerank)
    retriever = BM25 if name == "bm25" else model
    return evaluate_retriever(retriever, pipeline.collection, split, name=name, output_dir=folder / name)


def _table(rows: list[dict[str, Any]]) -> str:
    head = ["", *map(title, METRICS), "nDCG@10 against the stage before", "MRR@10 against the stage before", "time"]
    lines = [head, ["---", *["---:"] * 6]]
    for row in rows:
        cells = [row["name"], *(f"{row['metrics'][metric]:.4f}" for metric in METRICS)]
        for metric in ("ndcg@10", "mrr@10"):
            found = row.get("against before", {}).get(metric)
            cells.append(
                f"{found['difference']:+.4f} ({found['low']:+.4f} to {found['high']:+.4f}), p = {found['p_value']:.4f}"
                if found
                else "-"
            )
        lines.append([*cells, f"{row['seconds']:.0f} s"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
