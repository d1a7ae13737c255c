"""What many retrievers score on many tasks: a table with published figures, means, differences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hf_dense.evaluation.measures import title
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.significance import compare_paired
from hf_dense.evaluation.tasks import BEIR, CQADUPSTACK, GROUPS, data_set
from hf_dense.storage.markdown import markdown_table

_SHOWN: Final = {"MSMARCO": ("mrr@10", "recall@50", "recall@1000")}  # of a data set
_BY_PROTOCOL: Final = (
    ("auc", "mrr", "ndcg@5", "ndcg@10"),  # candidates
    ("mrr@100",),  # documents
    ("ndcg@10",),  # passages
)  # the first all of which were measured; of answers, all

_Column = tuple[str, str, str]  # task, metric, and the main metric of the protocol, which tells protocols apart


def format_results(found: Mapping[str, Mapping[str, RetrievalResult]]) -> str:
    """A Markdown table: one row for each retriever, with those that papers published, labelled as such, below.

    The metrics are those that papers report of a task. CQADupStack's forums are shown by their mean. What was not
    measured is said to be so.
    """
    ours = {name: _columns(results) for name, results in found.items()}
    columns = list(dict.fromkeys(column for values in ours.values() for column in values))
    rows = []
    for name, values in ours.items():
        rows.append([name, *(f"{values[column]:.4f}" if column in values else "not measured" for column in columns)])
    for published in load_published():
        known = [_published(published["values"].get(data_set(task), {}), *rest) for task, *rest in columns]
        if any(value is not None for value in known):
            label = f"{published['name']} (published: {published['source']})"
            rows.append([label, *("-" if value is None else f"{value:.3f}" for value in known)])
    head = ["", *(f"{task} {title(metric)}" for task, metric, _ in columns)]
    return markdown_table(head, rows, numbers=range(1, len(head)))


def format_glue(result: RetrievalResult) -> str:
    """A Markdown table of what `evaluate_glue` found, with what papers published in the first row of a task.

    Below it every training, where there are several of a task.
    """
    said: dict[str, list[str]] = {}
    for row in load_published():
        for task, values in row["values"].items():
            if "unnamed" in values:
                said.setdefault(task, []).append(f"{row['name']} {values['unnamed']:.3f} ({row['source']})")
    rows = []
    for name, value in result.metrics.items():
        task, _, metric = name.partition("/")
        rows.append([task, metric, f"{value:.4f}", "; ".join(said.pop(task, ["-"]))])
    table = markdown_table(["", "", result.name, "published, the metric is not named"], rows, numbers=(2,))
    runs = [(task, run) for task, found in result.origin.get("runs", {}).items() for run in found]
    if len(runs) == len(result.origin.get("runs", {})):
        return table
    lines = [
        [task, f"{run['learning_rate']:g}", str(run["seed"]), ", ".join(f"{key} {value:.4f}" for key, value in scores)]
        for task, run in runs
        if (scores := [item for item in run.items() if item[0] not in ("learning_rate", "seed")])
    ]
    return f"{table}\n\n{markdown_table(['', 'learning rate', 'seed', 'validation'], lines, numbers=(1, 2))}"


def summarise(found: Mapping[str, Mapping[str, RetrievalResult]], made_of: Mapping[str, str] | None = None) -> str:
    """All that is to be read: the table, the means over BEIR, and what `compare_models` says."""
    lines = []
    for name, results in found.items():
        values, missing = beir(results)
        if values:
            mean = f"mean nDCG@10 {sum(values.values()) / len(values):.4f}"
            rest = f"; missing: {', '.join(missing)}" if missing else ""
            lines.append(f"- {name}: {mean} over {len(values)} of BEIR's {len(BEIR)} data sets{rest}")
    return "\n".join([format_results(found), "", *lines, *compare_models(found, made_of), ""])


def beir(results: Mapping[str, RetrievalResult]) -> tuple[dict[str, float], list[str]]:
    """nDCG@10 of the data sets of BEIR whose passages were found, and those of which that was not measured."""
    found = {data_set(task): value for (task, _, main), value in _columns(results).items() if main == "ndcg@10"}
    return {name: found[name] for name in BEIR if name in found}, [name for name in BEIR if name not in found]


def compare_models(
    found: Mapping[str, Mapping[str, RetrievalResult]], made_of: Mapping[str, str] | None = None
) -> list[str]:
    """A line for each task and each model after the first: how its main metric differs from that of the one before.

    Differences are those of paired randomisation, with 95 % intervals. What was measured by two protocols differs in
    more than the models, and is left out.

    Args:
        found: results by row and task, in the order of the table.
        made_of: rows that are another one's, re-ranked or cut to fewer dimensions: these are held against that one.
    """
    made_of = made_of or {}
    models = [name for name in found if name not in made_of]
    before = {**dict(zip(models[1:], models, strict=False)), **made_of}
    lines = []
    for task in dict.fromkeys(task for results in found.values() for task in results):
        for name, results in found.items():
            one = found.get(before.get(name, ""), {})
            if task not in results or task not in one:
                continue
            metric = main_metric(task, results[task])
            values = [each[task].per_query.get(metric, {}) for each in (results, one)]
            alike = metric == main_metric(task, one[task]) and values[0].keys() == values[1].keys()
            if alike and len(values[0]) > 1:
                test = compare_paired(*values)
                interval = f"{test.difference:+z.4f} ({test.low:+z.4f} to {test.high:+z.4f})"
                what = f"{task} {title(metric)}, {name} - {before[name]}"
                lines.append(f"- {what}: {interval}, p = {test.p_value:.4f}, {test.queries} queries")
    return [*lines, "- The p-values are not corrected for the number of comparisons."] if len(lines) > 1 else lines


def means(results: Mapping[str, RetrievalResult]) -> dict[tuple[str, str], float]:
    """By task and metric, the main one; the mean of CQADupStack's forums in their place, when all are there."""
    return {(task, main): value for (task, metric, main), value in _columns(results).items() if metric == main}


def main_metric(task: str, result: RetrievalResult) -> str:
    """The metric that models are compared by."""
    return _shown(task, result)[0]


def _shown(task: str, result: RetrievalResult) -> Sequence[str]:
    wanted = (_SHOWN.get(data_set(task)), *_BY_PROTOCOL)
    measured = result.metrics.keys()
    return next((metrics for metrics in wanted if metrics and measured >= {*metrics}), [*measured])


def _columns(results: Mapping[str, RetrievalResult]) -> dict[_Column, float]:
    """What tables show of the tasks; the mean of CQADupStack's forums in their place, when all are there."""
    values = {
        (task, metric, shown[0]): result.metrics[metric]
        for task, result in results.items()
        for shown in [_shown(task, result)]
        for metric in shown
    }
    forums = [(forum, "ndcg@10", "ndcg@10") for forum in GROUPS[CQADUPSTACK]]
    if {*forums} <= values.keys():
        values[CQADUPSTACK, "ndcg@10", "ndcg@10"] = sum(values.pop(forum) for forum in forums) / len(forums)
    return values


def _published(values: Mapping[str, float], metric: str, main: str) -> float | None:
    """A figure that a paper has of a data set, where it was measured by that protocol: its main metric is the first."""
    return values.get(metric) if main in [*values][:1] else None


def load_published() -> list[dict[str, Any]]:
    """Figures that papers report: `name`, `source` (paper and table), `values` (fractions by task and metric).

    The metric is `unnamed` where the paper does not say which it is (GLUE).
    """
    found: list[dict[str, Any]] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
    return found
