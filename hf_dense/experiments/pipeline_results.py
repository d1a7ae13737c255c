"""What every stage of a pipeline is worth, on queries that none of them saw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from hf_dense.data.collections import content_hash
from hf_dense.errors import InputError
from hf_dense.evaluation.measures import METRICS, title
from hf_dense.evaluation.plots import loss_series, plot_losses, plot_metrics
from hf_dense.evaluation.reranking import evaluate_reranker
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.evaluation.significance import compare_paired
from hf_dense.finetuning.biencoder import load_history
from hf_dense.finetuning.pipeline import KIND, Pipeline, stage_seconds
from hf_dense.search.first_stage import BM25
from hf_dense.storage.files import write_text
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import provenance

_COMPARED: Final = ("ndcg@10", "mrr@10")
_WRITTEN: Final = ("results.json", "metrics.png", "losses.png")


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
    output = Output(Path(pipeline.out), pipeline.overwrite)
    with output.occupy(KIND, {}, claims=_WRITTEN, again=True) as work:
        stages = {"bm25": Path(BM25), **models}
        results = [_measure(pipeline, name, model, output.at("evaluation", split)) for name, model in stages.items()]
        rows = [_row(result, before, output.path) for result, before in zip(results, [None, *results], strict=False)]
        data = content_hash(pipeline.collection)
        facts = {"split": split, "results": rows, "pipeline": asdict(pipeline)}
        facts |= provenance(pipeline.seed, pipeline.collection, data)
        write_text(output.path / "results.json", json.dumps(facts, indent=1))
        shown = [{"name": row["name"], **{metric: row["metrics"][metric] for metric in METRICS}} for row in rows]
        plot_metrics(shown, output.path / "metrics.png")
        histories = {name: load_history(output.path / name) for name in models}
        if any(map(loss_series, histories.values())):  # a training shorter than logging_steps logs none
            plot_losses(histories, output.path / "losses.png")
        work.complete()
    return _table(rows)


def _measure(pipeline: Pipeline, name: str, model: Path, folder: Output) -> RetrievalResult:
    if name == "reranker":
        first_stage, depth = folder.path / "retriever2", pipeline.rerank
        return evaluate_reranker(model, first_stage, pipeline.collection, name=name, out=folder.at(name), depth=depth)
    retriever = BM25 if name == BM25 else model
    return evaluate_retriever(retriever, pipeline.collection, folder.path.name, name=name, out=folder.at(name))


def _row(result: RetrievalResult, before: RetrievalResult | None, out: Path) -> dict[str, Any]:
    """A stage's metrics and time, and its differences from the stage before."""
    row: dict[str, Any] = {
        "name": result.name,
        "metrics": result.metrics,
        "queries": len(result.per_query["mrr@10"]),
        "seconds": stage_seconds(out, result.name),
    }
    if before is not None:
        row["before"] = before.name
        row["against before"] = {
            metric: asdict(compare_paired(result.per_query[metric], before.per_query[metric])) for metric in _COMPARED
        }
    return row


def _table(rows: list[dict[str, Any]]) -> str:
    against = [f"{title(metric)} against the stage before" for metric in _COMPARED]
    cells = [
        [
            row["name"],
            *(f"{row['metrics'][metric]:.4f}" for metric in METRICS),
            *(_compared(row.get("against before", {}).get(metric)) for metric in _COMPARED),
            f"{row['seconds']:.0f} s",
        ]
        for row in rows
    ]
    return markdown_table(["", *map(title, METRICS), *against, "time"], cells, range(1, 7))


def _compared(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "-"
    interval = f"{found['low']:+.4f} to {found['high']:+.4f}"
    return f"{found['difference']:+.4f} ({interval}), p = {found['p_value']:.4f}"
