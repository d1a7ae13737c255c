"""Models beside each other, on the collection that they are tuned for and on one that they are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from matplotlib.figure import Figure

from hf_dense.evaluation.measures import METRICS, title
from hf_dense.evaluation.plots import draw_metrics
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.significance import compare_paired
from hf_dense.storage.markdown import markdown_table

UNTOUCHED: Final = "untouched"  # the model that training starts from
KEPT_METRIC: Final = "ndcg@10"
_COMPARED: Final = ("ndcg@10", "mrr@10")


@dataclass(frozen=True)
class Arm:
    """What one model scores.

    Attributes:
        own: on the collection that is tuned for; it bears the model's name.
        kept: on another collection, where there is one.
        seconds: of its making; None where nothing was made.
    """

    own: RetrievalResult
    kept: RetrievalResult | None = None
    seconds: float | None = None


def make_rows(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Metrics of each arm, and paired tests: against the arm before, and of the kept collection against no training.

    Returns:
        What JSON has of it.
    """
    untouched = next((arm.kept for arm in arms if arm.own.name == UNTOUCHED), None)
    return [_row(arm, before, untouched) for arm, before in zip(arms, [None, *arms], strict=False)]


def _row(arm: Arm, before: Arm | None, untouched: RetrievalResult | None) -> dict[str, Any]:
    row: dict[str, Any] = {**_figures(arm.own), "name": arm.own.name, "seconds": arm.seconds}
    if before is not None:
        row["before"] = before.own.name
        row["against before"] = _tests(arm.own, before.own, _COMPARED)
    if arm.kept is not None:
        row["kept"] = _figures(arm.kept)
        if untouched is not None and arm.kept is not untouched:
            row["kept"]["against untouched"] = _tests(arm.kept, untouched, [KEPT_METRIC])
    return row


def _figures(result: RetrievalResult) -> dict[str, Any]:
    return {"metrics": result.metrics, "queries": len(result.per_query["mrr@10"])}


def _tests(result: RetrievalResult, other: RetrievalResult, metrics: Sequence[str]) -> dict[str, Any]:
    return {metric: asdict(compare_paired(result.per_query[metric], other.per_query[metric])) for metric in metrics}


def format_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a Markdown table."""
    kept = any("kept" in row for row in rows)
    head = ["", *map(title, METRICS), *(f"{title(metric)} against the stage before" for metric in _COMPARED)]
    head += [f"kept: {title(KEPT_METRIC)}", f"kept: against {UNTOUCHED}"] * kept
    cells = []
    for row in rows:
        tests = row.get("against before", {})
        line = [row["name"], *(f"{row['metrics'][metric]:.4f}" for metric in METRICS)]
        line += [format_test(tests.get(metric)) for metric in _COMPARED]
        if kept:
            line.append(f"{row['kept']['metrics'][KEPT_METRIC]:.4f}")
            line.append(format_test(row["kept"].get("against untouched", {}).get(KEPT_METRIC)))
        cells.append([*line, "-" if row["seconds"] is None else f"{row['seconds']:.0f} s"])
    return markdown_table([*head, "time"], cells, range(1, len(head) + 1))


def format_test(found: Mapping[str, float] | None) -> str:
    """A paired test in a cell: difference, 95 % interval, p-value."""
    if found is None:
        return "-"
    interval = f"{found['low']:+z.4f} to {found['high']:+z.4f}"
    return f"{found['difference']:+z.4f} ({interval}), p = {found['p_value']:.4f}"


def draw_rows(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """The metrics of all arms, those of the kept collection beside the own ones."""
    shown = []
    for row in rows:
        kept = {f"kept: {KEPT_METRIC}": row["kept"]["metrics"][KEPT_METRIC]} if "kept" in row else {}
        shown.append({"name": row["name"], **{metric: row["metrics"][metric] for metric in METRICS}, **kept})
    return draw_metrics(shown)
