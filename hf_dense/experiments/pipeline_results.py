"""What a fine-tuning is worth, each stage of it, on queries that none of them saw; and what it forgot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from hf_dense.data.collections import content_hash
from hf_dense.errors import InputError
from hf_dense.evaluation.plots import draw_losses, loss_series, save_figure
from hf_dense.evaluation.reranking import evaluate_reranker
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.experiments.arms import UNTOUCHED, Arm, draw_rows, format_rows, make_rows
from hf_dense.experiments.keeping import Kept
from hf_dense.finetuning.pipeline import KIND, Pipeline, stage_seconds, start_of
from hf_dense.search.first_stage import BM25
from hf_dense.storage.checkpoints import load_history
from hf_dense.storage.files import write_text
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import provenance

TUNED: Final = "fine-tuned"  # the arm of a single training
_RERANKER: Final = "reranker"
_FACTS, _TABLE, _METRICS, _LOSSES = "results.json", "results.md", "metrics.png", "losses.png"


def measure_stages(pipeline: Pipeline, models: Mapping[str, Path], split: str, kept: Kept | None = None) -> str:
    """Evaluate BM25 and every model of a pipeline on a split, each against the one before it.

    Writes `results.json`, `metrics.png` and `losses.png` in the pipeline's directory; evaluations that are there are
    not made again.

    Args:
        pipeline: the settings.
        models: what `run_pipeline` gave.
        split: of the judgements; not the one that was trained on.
        kept: a collection that nothing is tuned for: every stage, and the model that they started from, is measured on
            it too.

    Returns:
        A Markdown table: each stage's metrics, the difference of its MRR@10 and nDCG@10 from the stage before with 95 %
        interval and p-value (paired randomisation), what it kept of the start model, and its time.

    Raises:
        InputError: the split is the one trained on, or has no judgements.
    """
    if split == pipeline.split:
        raise InputError(f"The split {split!r} was trained on; measure on another.")
    output = Output(Path(pipeline.out), pipeline.overwrite)
    with output.occupy(KIND, {}, claims=(_FACTS, _METRICS, _LOSSES), again=True) as work:
        start = {UNTOUCHED: start_of(pipeline)} if kept else {}
        stages: dict[str, str | Path] = {BM25: BM25, **start, **models}
        own = _measure(stages, pipeline.collection, split, output.at("evaluation", split), pipeline.rerank)
        others = _measure_kept(stages, kept, output.at("evaluation"), pipeline.rerank)
        seconds = {name: stage_seconds(output.path, name) for name in (BM25, *models)}
        rows = make_rows([Arm(result, others.get(name), seconds.get(name)) for name, result in own.items()])
        facts = {"split": split, "kept": _described(kept), "results": rows, "pipeline": asdict(pipeline)}
        facts |= provenance(pipeline.seed, pipeline.collection, content_hash(pipeline.collection))
        write_text(output.path / _FACTS, json.dumps(facts, indent=1))
        save_figure(draw_rows(rows), output.path / _METRICS)
        histories = {name: load_history(output.path / name) for name in models}
        if any(map(loss_series, histories.values())):  # a training shorter than logging_steps logs none
            save_figure(draw_losses(histories), output.path / _LOSSES)
        work.complete()
    return format_rows(rows)


def measure_training(
    start: str | Path, training: Output, collection: str, split: str, kept: Kept | None = None, *, seed: int
) -> str:
    """Evaluate a trained retriever beside the model that it started from.

    Writes `results.json`, `results.md` and `metrics.png` in `evaluation` of the training's directory; evaluations that
    are there are not made again.

    Args:
        start: the retriever before.
        training: the directory, where `finetune` has written.
        collection: that it was trained on.
        split: of its judgements; not the one that was trained on.
        kept: a collection that it was not trained for.
        seed: of the training.

    Returns:
        A Markdown table, as `measure_stages` gives it.

    Raises:
        InputError: the split has no judgements, or the directory is no complete training.
    """
    output, models = training.at("evaluation"), {UNTOUCHED: start, TUNED: training.path / "model"}
    seconds = {TUNED: stage_seconds(training.path.parent, training.path.name)}
    with output.occupy("evaluations", {}, claims=(_FACTS, _TABLE, _METRICS), again=True) as work:
        own, others = _measure(models, collection, split, output.at(split)), _measure_kept(models, kept, output)
        rows = make_rows([Arm(result, others.get(name), seconds.get(name)) for name, result in own.items()])
        facts = {"split": split, "kept": _described(kept), "results": rows}
        facts |= provenance(seed, collection, content_hash(collection))
        write_text(output.path / _FACTS, json.dumps(facts, indent=1))
        write_text(output.path / _TABLE, f"{format_rows(rows)}\n")
        save_figure(draw_rows(rows), output.path / _METRICS)
        work.complete()
    return format_rows(rows)


def _measure_kept(
    models: Mapping[str, str | Path], kept: Kept | None, output: Output, rerank: int = 0
) -> dict[str, RetrievalResult]:
    if kept is None:
        return {}
    return _measure(models, kept.collection, kept.split, output.at(f"kept-{kept.name}-{kept.split}"), rerank)


def _measure(
    models: Mapping[str, str | Path], collection: str | Path, split: str, folder: Output, rerank: int = 0
) -> dict[str, RetrievalResult]:
    """What each model scores, by name; a re-ranker orders so many of the first passages of `retriever2`."""
    found = {}
    for name, model in models.items():
        if name == _RERANKER:
            first = folder.path / "retriever2"
            found[name] = evaluate_reranker(model, first, collection, name=name, out=folder.at(name), depth=rerank)
        else:
            found[name] = evaluate_retriever(model, collection, split, name=name, out=folder.at(name))
    return found


def _described(kept: Kept | None) -> dict[str, Any] | None:
    if kept is None:
        return None
    data = {"path": str(kept.collection), "content_hash": content_hash(kept.collection)}
    return {"name": kept.name, "split": kept.split, "data": data}
