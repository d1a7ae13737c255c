"""What many retrievers score on many tasks: a table with published figures, means, differences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from hf_dense.evaluation.measures import title
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.significance import compare_paired
from hf_dense.evaluation.tasks import BEIR, CQADUPSTACK, GROUPS

MAIN: Final = {"MSMARCO": "mrr@10"}  # metric of a task; of others that of the protocol:
_MAIN_METRICS: Final = ("auc", "answer_recall@20", "mrr@100", "ndcg@10")


def format_results(found: Mapping[str, Mapping[str, RetrievalResult]]) -> str:
    """A Markdown table: one row for each retriever, with those that papers published, labelled as such, below.

    Passages are measured by nDCG@10, MS MARCO's by MRR@10. CQADupStack's forums are shown by their mean. What was not
    measured is said to be so.
    """
    ours = {name: means(results) for name, results in found.items()}
    tasks = list(dict.fromkeys(task for values in ours.values() for task in values))
    metrics = {task: main_metric(task, result) for results in found.values() for task, result in results.items()}
    rows = [["", *(f"{task} {title(metrics.get(task, 'ndcg@10'))}" for task in tasks)], ["---", *["---:"] * len(tasks)]]
    for name, values in ours.items():
        rows.append([name, *(f"{values[task]:.4f}" if task in values else "not measured" for task in tasks)])
    for published in load_published():
        values = {
            task: value
            for task, value in published["values"].items()
            if task in tasks and MAIN.get(task, "ndcg@10") == published["metric"]
        }
        if values:
            label = f"{published['name']} (published: {published['source']})"
            rows.append([label, *(f"{values[task]:.3f}" if task in values else "-" for task in tasks)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def summarise(found: Mapping[str, Mapping[str, RetrievalResult]]) -> str:
    """All that is to be read: the table, the means over BEIR, each model against the one before."""
    lines = []
    for name, results in found.items():
        values, missing = beir(results)
        if values:
            mean = f"mean nDCG@10 {sum(values.values()) / len(values):.4f}"
            rest = f"; missing: {', '.join(missing)}" if missing else ""
            lines.append(f"- {name}: {mean} over {len(values)} of BEIR's {len(BEIR)} data sets{rest}")
    return "\n".join([format_results(found), "", *lines, *compare_models(found), ""])


def beir(results: Mapping[str, RetrievalResult]) -> tuple[dict[str, float], list[str]]:
    """nDCG@10 of the data sets of BEIR that were measured, and those that were not."""
    values = means({task: result for task, result in results.items() if main_metric(task, result) == "ndcg@10"})
    return {name: values[name] for name in BEIR if name in values}, [name for name in BEIR if name not in values]


def compare_models(found: Mapping[str, Mapping[str, RetrievalResult]]) -> list[str]:
    """A line for each task and each model after the first: how its main metric differs from that of the one before.

    Differences are those of paired randomisation, with 95 % intervals.
    """
    lines = []
    for (first, before), (second, after) in pairwise(found.items()):
        for task in before.keys() & after.keys():
            metric = main_metric(task, after[task])
            values = [results[task].per_query.get(metric, {}) for results in (after, before)]
            if values[0].keys() == values[1].keys() and len(values[0]) > 1:
                test = compare_paired(*values)
                interval = f"{test.difference:+.4f} ({test.low:+.4f} to {test.high:+.4f})"
                what = f"{task} {title(metric)}, {second} - {first}"
                lines.append(f"- {what}: {interval}, p = {test.p_value:.4f}, {test.queries} queries")
    return sorted(lines)


def means(results: Mapping[str, RetrievalResult]) -> dict[str, float]:
    """The main metric of every task; the mean of CQADupStack's forums in their place, when all are there."""
    values = {task: result.metrics[main_metric(task, result)] for task, result in results.items()}
    forums = GROUPS[CQADUPSTACK]
    if set(forums) <= set(values):
        values[CQADUPSTACK] = sum(values.pop(forum) for forum in forums) / len(forums)
    return values


def main_metric(task: str, result: RetrievalResult) -> str:
    """The metric that a table shows of a task."""
    wanted = (MAIN.get(task), *_MAIN_METRICS)
    return next((metric for metric in wanted if metric in result.metrics), next(iter(result.metrics)))


def load_published() -> list[dict[str, Any]]:
    """Figures that papers report: `name`, `source` (paper and table), `metric`, `values` (fractions by task)."""
    found: list[dict[str, Any]] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
    return found
