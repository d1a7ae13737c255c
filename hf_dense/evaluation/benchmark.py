"""Many retrievers on many tasks: public ones by their MTEB names, local ones by their directories; one table."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import mteb
from datasets.exceptions import DatasetsError
from mteb.abstasks.retrieval import AbsTaskRetrieval

from hf_dense.errors import InputError
from hf_dense.evaluation.documents import evaluate_documents
from hf_dense.evaluation.measures import title
from hf_dense.evaluation.news import evaluate_candidates
from hf_dense.evaluation.plots import plot_metrics
from hf_dense.evaluation.questions import evaluate_answers
from hf_dense.evaluation.reranking import evaluate_reranker
from hf_dense.evaluation.result import RESULT_FILE, RetrievalResult
from hf_dense.evaluation.retrieval import evaluate_retriever, measure_task
from hf_dense.evaluation.significance import compare_paired
from hf_dense.files import write_text
from hf_dense.replacing import check_replaceable

logger = logging.getLogger(__name__)

_FORUMS: Final = (
    "Android",
    "English",
    "Gaming",
    "Gis",
    "Mathematica",
    "Physics",
    "Programmers",
    "Stats",
    "Tex",
    "Unix",
    "Webmasters",
    "Wordpress",
)
CQADUPSTACK: Final = "CQADupstackRetrieval"
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "beir": (
        "TRECCOVID",
        "NFCorpus",
        "NQ",
        "HotpotQA",
        "FiQA2018",
        "ArguAna",
        "Touche2020",
        CQADUPSTACK,
        "QuoraRetrieval",
        "DBPedia",
        "SCIDOCS",
        "FEVER",
        "ClimateFEVER",
        "SciFact",
    ),
    "web": ("MSMARCO", "TRECDL2019", "TRECDL2020"),
    CQADUPSTACK: tuple(f"CQADupstack{forum}Retrieval" for forum in _FORUMS),
}
NOT_PUBLIC: Final = ("BioASQ", "Signal-1M", "TREC-NEWS", "Robust04")  # of BEIR's 18; give directories of one's own
MAIN: Final = {"MSMARCO": "mrr@10"}  # of a task; others: that of the protocol
PROTOCOLS: Final[dict[str, tuple[Callable[..., RetrievalResult], str]]] = {
    "passages": (evaluate_retriever, "ndcg@10"),
    "documents": (evaluate_documents, "mrr@100"),
    "answers": (evaluate_answers, "answer_recall@20"),
    "candidates": (evaluate_candidates, "auc"),
}  # how a local task is measured, and by what

_Load = Callable[[str], tuple[AbsTaskRetrieval, str]]  # `_public`


def expand(tasks: Sequence[str]) -> list[str]:
    """Names of groups (`beir`, `web`, `CQADupstackRetrieval`) as those of their tasks, each once, in order.

    >>> expand(["web", "SciFact", "MSMARCO"])
    ['MSMARCO', 'TRECDL2019', 'TRECDL2020', 'SciFact']
    """
    names: dict[str, None] = {}
    for task in tasks:
        names |= dict.fromkeys(expand(GROUPS[task]) if task in GROUPS else [task])
    return list(names)


def evaluate_tasks(
    models: Mapping[str, str | Path],
    tasks: Sequence[str],
    output_dir: str | Path,
    *,
    protocol: str = "passages",
    rerankers: Mapping[str, str | Path] | None = None,
    batch_size: int = 64,
) -> dict[str, dict[str, RetrievalResult]]:
    """Evaluate every model on every task; what is in `output_dir` already is not done again.

    Args:
        models: directories or Hub ids, or `bm25`, by the name they have in tables.
        tasks: names of MTEB's retrieval tasks or of `GROUPS`; or `DIRECTORY:SPLIT`, a collection or a folder in BEIR
            layout (the split is `test` when it is left out).
        output_dir: receives `<model>/<task>/result.json` (and MTEB's scores, rankings), `results.json`, `results.md`
            (the table, and each model against the one before) and `results.png`.
        protocol: how local tasks are measured: `passages` are found; `documents`, by their best passages (MS MARCO); or
            `answers` (Natural Questions); or the `candidates` of each query are ranked (MIND).
        rerankers: cross-encoders, or retrievers, by name, which order the first 100 passages of every model anew; rows
            of their own, `model + name`.
        batch_size: texts, or pairs, encoded at once.

    Returns:
        Results by the names of model and task.

    Raises:
        InputError: something cannot be evaluated; said after all that can be is done and kept.
    """
    out, names = Path(output_dir), expand(tasks)
    if not models or not names:
        raise InputError("Name at least one model and one task.")
    if protocol not in PROTOCOLS:
        raise InputError(f"The protocol is {protocol!r}; allowed: {', '.join(PROTOCOLS)}.")
    labels = [_label(task) for task in names]
    if len({*labels}) < len(labels):
        raise InputError("Two tasks have the same name; rename a directory.")
    load = lru_cache(maxsize=1)(_public)  # a task's data, once for all that measure it
    found: dict[str, dict[str, RetrievalResult]] = {name: {} for name in models}
    failed: dict[str, str] = {}
    for task, label in zip(names, labels, strict=True):
        for name, model in models.items():
            place = out / name / label
            try:
                if (place / RESULT_FILE).is_file():
                    found[name][label] = RetrievalResult.load(place)
                else:
                    logger.info("%s on %s", name, label)
                    found[name][label] = _evaluate(model, task, load, name, place, protocol, batch_size)
                for other, reranker in (rerankers or {}).items():
                    both = f"{name} + {other}"
                    after = out / both / label
                    found.setdefault(both, {})[label] = _rerank(reranker, task, load, both, place, after, batch_size)
            except InputError as error:
                failed[f"{name} on {label}"] = str(error)
    write_text(out / "results.json", json.dumps(_facts(found, failed), indent=1))
    write_text(out / "results.md", "\n".join([format_results(found), "", *compare_models(found), ""]))
    _plot(found, out / "results.png")
    if failed:
        first, reason = next(iter(failed.items()))
        more = f" ({len(failed) - 1} more failed: {', '.join(list(failed)[1:])})" if len(failed) > 1 else ""
        raise InputError(f"{first}: {reason}{more} What could be measured is in {out}.")
    return found


def _evaluate(
    model: str | Path, task: str, load: _Load, name: str, place: Path, protocol: str, batch_size: int
) -> RetrievalResult:
    directory, split = _local(task)
    if directory is not None:
        evaluate, _ = PROTOCOLS[protocol]
        return evaluate(model, directory, split, name=name, output_dir=place, batch_size=batch_size)
    check_replaceable(place, marker=RESULT_FILE)
    loaded, split = load(task)
    subset, *more = loaded.dataset
    if more:
        raise InputError(
            f"{task} has {len(more) + 1} parts ({subset}, {more[0]}, ...), each a collection of its own; give "
            "directories of those that are meant."
        )
    return measure_task(model, loaded, subset, split, name=name, output_dir=place, batch_size=batch_size)


def _rerank(
    reranker: str | Path, task: str, load: _Load, name: str, first_stage: Path, place: Path, batch_size: int
) -> RetrievalResult:
    if (place / RESULT_FILE).is_file():
        return RetrievalResult.load(place)
    logger.info("%s on %s", name, task)
    dataset = _local(task)[0] or load(task)[0]
    return evaluate_reranker(reranker, first_stage, dataset, name=name, output_dir=place, batch_size=batch_size)


def _local(task: str) -> tuple[Path | None, str]:
    """Directory and split of a local task; None where it is a name."""
    for directory, split in ((task, "test"), task.rpartition(":")[::2]):
        if directory and Path(directory).is_dir():
            return Path(directory), split
    if "/" in task or task.startswith("."):
        raise InputError(f"There is no directory {task.rpartition(':')[0] or task} to evaluate on.")
    return None, ""


def _public(name: str) -> tuple[AbsTaskRetrieval, str]:
    """A task of MTEB with its data, and its split."""
    try:
        task: Any = mteb.get_task(name)
    except (KeyError, ValueError) as error:
        raise InputError(f"MTEB has no task {name!r}, and there is no directory of that name.") from error
    if not isinstance(task, AbsTaskRetrieval):
        raise InputError(f"The task {name} of MTEB is not one of retrieval.")
    try:
        task.load_data()
    except (OSError, ValueError, DatasetsError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(
            f"The data of {name} ({task.metadata.dataset['path']} on the Hub) cannot be loaded: {reason}; give a "
            "directory with its corpus, queries and judgements instead."
        ) from error
    return task, task.metadata.eval_splits[0]


def _label(task: str) -> str:
    directory, split = _local(task)
    return task if directory is None else f"{directory.resolve().name}-{split}"


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


def _plot(found: Mapping[str, Mapping[str, RetrievalResult]], path: Path) -> None:
    """Bars of the tasks that every model was measured on."""
    values = {name: means(results) for name, results in found.items()}
    if tasks := [task for task in next(iter(values.values())) if all(task in measured for measured in values.values())]:
        plot_metrics([{"name": name, **{task: values[name][task] for task in tasks}} for name in values], path)


def means(results: Mapping[str, RetrievalResult]) -> dict[str, float]:
    """The main metric of every task; the mean of CQADupStack's forums in their place, when all are there."""
    values = {task: result.metrics[main_metric(task, result)] for task, result in results.items()}
    forums = GROUPS[CQADUPSTACK]
    if set(forums) <= set(values):
        values[CQADUPSTACK] = sum(values.pop(forum) for forum in forums) / len(forums)
    return values


def main_metric(task: str, result: RetrievalResult) -> str:
    """The metric that a table shows of a task."""
    wanted = (MAIN.get(task), *(metric for _, metric in reversed(PROTOCOLS.values())))
    return next((metric for metric in wanted if metric in result.metrics), next(iter(result.metrics)))


def load_published() -> list[dict[str, Any]]:
    """Figures that papers report: `name`, `source` (paper and table), `metric`, `values` (fractions by task)."""
    found: list[dict[str, Any]] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
    return found


def _facts(found: Mapping[str, Mapping[str, RetrievalResult]], failed: Mapping[str, str]) -> dict[str, Any]:
    beir = {*GROUPS["beir"], *NOT_PUBLIC}
    models = {}
    for name, results in found.items():
        values = means(results)
        measured = {task: value for task, value in values.items() if task in beir}
        models[name] = {
            "tasks": {task: result.metrics | {"seconds": result.seconds} for task, result in results.items()},
            "beir": {
                "datasets": len(measured),
                "mean nDCG@10": sum(measured.values()) / len(measured) if measured else None,
                "missing": sorted(beir - set(measured)),
            },
        }
    return {"models": models, "failed": dict(failed)}
