"""Merging of two retrievers: the point between them that is best for the own collection and for another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from tqdm.auto import tqdm

from hf_dense.data.collections import content_hash
from hf_dense.errors import InputError
from hf_dense.evaluation.analyses import curve_point
from hf_dense.evaluation.analysis_plots import draw_curves
from hf_dense.evaluation.measures import title
from hf_dense.evaluation.plots import save_figure
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.retrieval import Passages
from hf_dense.evaluation.runner import run_protocol
from hf_dense.evaluation.significance import compare_paired
from hf_dense.experiments.arms import KEPT_METRIC, format_test
from hf_dense.experiments.interpolation import Between
from hf_dense.experiments.keeping import Kept
from hf_dense.hub.cards import write_model_card
from hf_dense.hub.retriever_settings import length_of
from hf_dense.storage.files import write_text
from hf_dense.storage.manifest import missing_file
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import provenance

KIND: Final = "merge"  # of output
RULE: Final = f"largest sum of {title(KEPT_METRIC)} on both collections; of equals, the smaller weight"
_TABLE, _FACTS, _PLOT = "merge.md", "merge.json", "merge.png"


@dataclass(frozen=True)
class Point:
    """What the retriever at one weight scores.

    Attributes:
        weight: 0 is the base.
        own: on the collection that was tuned for.
        kept: on the other.
    """

    weight: float
    own: RetrievalResult
    kept: RetrievalResult

    @property
    def worth(self) -> float:
        """What is chosen by."""
        return self.own.metrics[KEPT_METRIC] + self.kept.metrics[KEPT_METRIC]


def merge_at(between: Between, weight: float, out: Output) -> Path:
    """Write the retriever at a weight, without measuring; the same again is done.

    Returns:
        `model` in the directory.

    Raises:
        InputError: a weight that is none, or the directory holds something else.
    """
    [weight] = check_weights([weight])
    with out.occupy(KIND, {"weight": weight}, between.sources) as work:
        if not work.done or missing_file(out.path / "model"):
            _write_model(between, weight, out.at("model"), {})
            work.complete()
    return out.path / "model"


def merge_best(
    between: Between, weights: Sequence[float], own: Kept, kept: Kept, out: Output, batch_size: int = 64
) -> Path:
    """Measure retrievers at several weights, and write the best one (`RULE`); a run that was killed goes on.

    Args:
        between: the retrievers.
        weights: of the points; 0, the base, is measured too.
        own: the collection that was tuned for, and a split that was neither trained on nor is reported on.
        kept: another collection.
        out: receives `model`, `merge.md` (the table), `merge.json`, `merge.png` (both figures against the weight) and
            `evaluation`.
        batch_size: texts encoded at once.

    Returns:
        `model` in the directory.

    Raises:
        InputError: a weight that is none, the test split, or the directory holds something else.
    """
    weights = check_weights([0.0, *weights])
    if own.split == "test":
        raise InputError("A weight is chosen on the split; choose on another than test, which is to be reported on.")
    tasks = {"own": Passages.load(own.collection, own.split), "kept": Passages.load(kept.collection, kept.split)}
    sources = {**between.sources, **{what: task.sources["collection"] for what, task in tasks.items()}}
    settings = {"weights": weights, "own split": own.split, "kept split": kept.split, "rule": RULE}
    with out.occupy(KIND, settings, sources, claims=(_TABLE, _FACTS, _PLOT)) as work:
        if not work.done or missing_file(out.path) or missing_file(out.path / "model"):
            points = []
            for weight in tqdm(weights, desc="Measuring", unit="weight"):
                place, model = out.at("evaluation", f"weight-{weight:g}"), between.at(weight)
                found = {
                    what: run_protocol(task, model, place.at(what), name=f"{weight:g}", batch_size=batch_size)
                    for what, task in tasks.items()
                }
                points.append(Point(weight, **found))
            best = choose(points)
            _write_figures(between, points, best, own, kept, out)
            _write_model(between, best.weight, out.at("model"), _described(points, best, own, kept))
            work.complete()
    return out.path / "model"


def check_weights(weights: Sequence[float]) -> list[float]:
    """Weights in their order, each once, to the digits that tables and directories show.

    Raises:
        InputError: one is not from 0 to 1.
    """
    if wrong := [weight for weight in weights if not 0 <= weight <= 1]:
        raise InputError(f"A weight is {wrong[0]:g}; weights are from 0, the base, to 1, the tuned model.")
    return sorted({float(f"{weight:g}") for weight in weights})


def choose(points: Sequence[Point]) -> Point:
    """The best of the points, which are in the order of their weights (`RULE`)."""
    return max(points, key=lambda point: point.worth)  # the first of equals


def read_table(merged: str | Path) -> str:
    """The table of what `merge_best` has written."""
    return (Path(merged) / _TABLE).read_text(encoding="utf-8")


def _write_model(between: Between, weight: float, out: Output, facts: dict[str, Any]) -> None:
    model = between.at(weight)
    settings = {"weight": weight, "max_length": length_of(model)}
    with out.stage("retriever", settings, between.sources) as work:
        if not work.done:
            steps, licences = between.lineage()
            work.facts |= {"lineage": steps, **facts}
            work.facts["remarks"] = [f"Its weights are {between}, with w = {weight:g}.", *facts.get("remarks", [])]
            if len(licences) > 1:
                work.facts["remarks"].append(
                    f"The models that it is made of have several licences: {', '.join(licences)}."
                )
            model.save_pretrained(str(work.result), create_model_card=False)
            write_model_card(work.result, replace(work.manifest, facts=work.facts), name=str(out.path))


def _described(points: Sequence[Point], best: Point, own: Kept, kept: Kept) -> dict[str, Any]:
    """What the card of the model says of its choice."""
    tried = ", ".join(f"{point.weight:g}" for point in points)
    names = [own.name, kept.name if kept.name != own.name else f"{kept.name} (kept)"]
    return {
        "remarks": [f"w was chosen of {tried} on the figures below: {RULE}."],
        "results": [
            (name, result.split, {KEPT_METRIC: result.metrics[KEPT_METRIC]})
            for name, result in zip(names, (best.own, best.kept), strict=True)
        ],
    }


def _write_figures(between: Between, points: Sequence[Point], best: Point, own: Kept, kept: Kept, out: Output) -> None:
    rows = [_row(point, points[0]) for point in points]
    facts = {
        "weights": str(between),
        "rule": RULE,
        "chosen": best.weight,
        "points": rows,
        "own": {"name": own.name, "split": own.split},
        "kept": {"name": kept.name, "split": kept.split, "content_hash": content_hash(kept.collection)},
        **provenance(0, own.collection, content_hash(own.collection)),
    }
    write_text(out.path / _FACTS, json.dumps(facts, indent=1))
    write_text(out.path / _TABLE, _format(rows, best, own, kept))
    curves = [
        curve_point(f"{what}: {where.name}, {where.split}", point.weight, getattr(point, what).per_query[KEPT_METRIC])
        for what, where in (("own", own), ("kept", kept))
        for point in points
    ]
    save_figure(draw_curves(curves, metric=title(KEPT_METRIC), x_label="w (0: the base)"), out.path / _PLOT)


def _row(point: Point, base: Point) -> dict[str, Any]:
    row: dict[str, Any] = {"weight": point.weight, "sum": point.worth}
    for what in ("own", "kept"):
        result, before = getattr(point, what), getattr(base, what)
        row[what] = {"metrics": result.metrics, "queries": len(result.per_query[KEPT_METRIC])}
        if point is not base:
            test = compare_paired(result.per_query[KEPT_METRIC], before.per_query[KEPT_METRIC])
            row[what]["against base"] = {KEPT_METRIC: asdict(test)}
    return row


def _format(rows: Sequence[dict[str, Any]], best: Point, own: Kept, kept: Kept) -> str:
    """The table, and what was chosen."""
    head = ["w"]
    for what, where in (("own", own), ("kept", kept)):
        head += [f"{what} ({where.name}, {where.split}): {title(KEPT_METRIC)}", f"{what}: against w = 0"]
    cells = []
    for row in rows:
        line = [f"{row['weight']:g}"]
        for what in ("own", "kept"):
            line.append(f"{row[what]['metrics'][KEPT_METRIC]:.4f}")
            line.append(format_test(row[what].get("against base", {}).get(KEPT_METRIC)))
        cells.append([*line, f"{row['sum']:.4f}"])
    table = markdown_table([*head, "sum"], cells, range(6))
    return f"{table}\n\nChosen: w = {best.weight:g} ({RULE}).\n"
