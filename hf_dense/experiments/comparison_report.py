"""What a comparison found: one table, plots, one JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_dense.data.collections import content_hash
from hf_dense.evaluation.measures import METRICS, title
from hf_dense.evaluation.plots import draw_losses, draw_metrics, save_figure
from hf_dense.evaluation.significance import Comparison, compare_paired
from hf_dense.experiments.comparison import Settings, VariantResult
from hf_dense.storage.files import write_text
from hf_dense.storage.provenance import provenance


def format_table(results: Sequence[VariantResult]) -> str:
    """The results as a Markdown table, one row per retriever; times are wall-clock."""
    head = ["", *map(title, METRICS), "pre-training", "fine-tuning"]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for result in results:
        times = [result.seconds.get(stage) for stage in ("pretraining", "finetuning")]
        shown = ["-" if seconds is None else f"{seconds:.0f} s" for seconds in times]
        rows.append([result.name, *(f"{result.retrieval.metrics[metric]:.4f}" for metric in METRICS), *shown])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in rows
    )


def compare_to(baseline: VariantResult, results: Sequence[VariantResult], metric: str) -> dict[str, Comparison]:
    """Paired comparison of each result with the baseline, by name."""
    reference = baseline.retrieval.per_query[metric]
    return {
        result.name: compare_paired(result.retrieval.per_query[metric], reference)
        for result in results
        if result.name != baseline.name
    }


def write_report(
    results: Sequence[VariantResult],
    settings: Settings,
    comparisons: Mapping[str, Mapping[str, Comparison]],
    output_dir: Path,
) -> list[Path]:
    """Write `results.json`, `losses.png` and `metrics.png`.

    Args:
        results: one per retriever, in the order of the table.
        settings: what they shared.
        comparisons: paired tests to record, by baseline and name.

    Returns:
        The paths written.
    """
    facts: dict[str, Any] = {
        "results": [
            {
                "name": r.name,
                "metrics": r.retrieval.metrics,
                "queries": len(r.retrieval.per_query[METRICS[0]]),
                "seconds": r.seconds,
            }
            for r in results
        ],
        **{f"against_{baseline}": {name: vars(c) for name, c in by.items()} for baseline, by in comparisons.items()},
        "settings": vars(settings),
        **provenance(settings.seed, settings.collection, content_hash(settings.collection)),
    }
    paths = [output_dir / name for name in ("results.json", "losses.png", "metrics.png")]
    write_text(paths[0], json.dumps(facts, indent=1))
    histories = {f"{r.name}: pre-training": r.pretraining_history for r in results if r.pretraining_history}
    histories |= {f"{r.name}: fine-tuning": r.finetuning_history for r in results if r.finetuning_history}
    save_figure(draw_losses(histories), paths[1])
    rows = [{"name": r.name, **{name: r.retrieval.metrics[name] for name in METRICS}} for r in results]
    save_figure(draw_metrics(rows), paths[2])
    return paths
