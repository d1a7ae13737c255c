"""Many retrievers on many tasks: public ones by their MTEB names, local ones by their directories; one table."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hf_dense.errors import InputError
from hf_dense.evaluation.documents import evaluate_documents
from hf_dense.evaluation.news import evaluate_candidates
from hf_dense.evaluation.plots import plot_metrics
from hf_dense.evaluation.questions import evaluate_answers
from hf_dense.evaluation.reranking import evaluate_reranker
from hf_dense.evaluation.result import RANKS_KEPT, RESULT_FILE, RetrievalResult
from hf_dense.evaluation.retrieval import evaluate_retriever, measure_task
from hf_dense.evaluation.tables import beir, means, summarise
from hf_dense.evaluation.tasks import Load, expand, label, load_once, local_task
from hf_dense.storage.files import write_text
from hf_dense.storage.legacy import check_replaceable

logger = logging.getLogger(__name__)

PROTOCOLS: Final[dict[str, Callable[..., RetrievalResult]]] = {
    "passages": evaluate_retriever,
    "documents": evaluate_documents,
    "answers": evaluate_answers,
    "candidates": evaluate_candidates,
}  # how a local task is measured


def evaluate_tasks(
    models: Mapping[str, str | Path],
    tasks: Sequence[str],
    output_dir: str | Path,
    *,
    protocol: str = "passages",
    rerankers: Mapping[str, str | Path] | None = None,
    rerank_depth: int = RANKS_KEPT,
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
        rerankers: cross-encoders, or retrievers, by name, which order the first passages of every model anew; rows of
            their own, `model + name`.
        rerank_depth: how many, at most the 100 that are kept; named in the row where it is less.
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
    if not 1 <= rerank_depth <= RANKS_KEPT:
        raise InputError(f"rerank_depth is {rerank_depth}; it must be from 1 to {RANKS_KEPT}.")
    labels = [label(task) for task in names]
    if len({*labels}) < len(labels):
        raise InputError("Two tasks have the same name; rename a directory.")
    load = load_once()
    found: dict[str, dict[str, RetrievalResult]] = {name: {} for name in models}
    failed: dict[str, str] = {}
    for task, title in zip(names, labels, strict=True):
        for name, model in models.items():
            place = out / name / title
            try:
                if (place / RESULT_FILE).is_file():
                    found[name][title] = RetrievalResult.load(place)
                else:
                    logger.info("%s on %s", name, title)
                    found[name][title] = _evaluate(model, task, load, name, place, protocol, batch_size)
                for other, reranker in (rerankers or {}).items():
                    both = f"{name} + {other}" + (f" ({rerank_depth})" if rerank_depth < RANKS_KEPT else "")
                    after = out / both / title
                    found.setdefault(both, {})[title] = _rerank(
                        reranker, task, load, both, place, after, rerank_depth, batch_size
                    )
            except InputError as error:
                failed[f"{name} on {title}"] = str(error)
    write_text(out / "results.json", json.dumps(_facts(found, failed), indent=1))
    write_text(out / "results.md", summarise(found))
    _plot(found, out / "results.png")
    if failed:
        first, reason = next(iter(failed.items()))
        more = f" ({len(failed) - 1} more failed: {', '.join(list(failed)[1:])})" if len(failed) > 1 else ""
        raise InputError(f"{first}: {reason}{more} What could be measured is in {out}.")
    return found


def _evaluate(
    model: str | Path, task: str, load: Load, name: str, place: Path, protocol: str, batch_size: int
) -> RetrievalResult:
    directory, split = local_task(task)
    if directory is not None:
        return PROTOCOLS[protocol](model, directory, split, name=name, output_dir=place, batch_size=batch_size)
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
    reranker: str | Path, task: str, load: Load, name: str, first_stage: Path, place: Path, depth: int, batch_size: int
) -> RetrievalResult:
    if (place / RESULT_FILE).is_file():
        return RetrievalResult.load(place)
    logger.info("%s on %s", name, task)
    dataset = local_task(task)[0] or load(task)[0]
    options = {"depth": depth, "batch_size": batch_size}
    return evaluate_reranker(reranker, first_stage, dataset, name=name, output_dir=place, **options)


def _plot(found: Mapping[str, Mapping[str, RetrievalResult]], path: Path) -> None:
    """Bars of the tasks that every model was measured on."""
    values = {name: means(results) for name, results in found.items()}
    if tasks := [task for task in next(iter(values.values())) if all(task in measured for measured in values.values())]:
        plot_metrics([{"name": name, **{task: values[name][task] for task in tasks}} for name in values], path)


def _facts(found: Mapping[str, Mapping[str, RetrievalResult]], failed: Mapping[str, str]) -> dict[str, Any]:
    models = {}
    for name, results in found.items():
        values, missing = beir(results)
        models[name] = {
            "tasks": {task: result.metrics | {"seconds": result.seconds} for task, result in results.items()},
            "beir": {
                "datasets": len(values),
                "mean nDCG@10": sum(values.values()) / len(values) if values else None,
                "missing": missing,
            },
        }
    return {"models": models, "failed": dict(failed)}
