"""What a model scores with vectors that are cut to their first dimensions, beside those that are whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hf_dense.evaluation.analyses import curve_point
from hf_dense.evaluation.analysis_plots import draw_curves
from hf_dense.evaluation.measures import title
from hf_dense.evaluation.plots import save_figure
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.settings import CUT

_METRIC: Final = "ndcg@10"


def cut_row(name: str, dimensions: int) -> str:
    """What the row of a model with cut vectors is called.

    >>> cut_row("mine", 64)
    'mine (64 dimensions)'
    """
    return f"{name} ({dimensions} dimensions)"


def is_cut_of(result: RetrievalResult, whole: RetrievalResult) -> bool:
    """Whether both are of the same model, as far as its settings and weights say, however its vectors are cut."""
    cut, kept = ({**each.origin.get("settings", {}), CUT: ""} for each in (result, whole))
    return cut == kept


def plot_dimensions(
    found: Mapping[str, Mapping[str, RetrievalResult]], cut: Mapping[str, str], path: Path
) -> Path | None:
    """Draw nDCG@10 against dimensions, a curve for each model and task.

    Args:
        found: results by row and task.
        cut: the rows whose vectors are cut, and the row of the same model with whole vectors.
        path: of the PNG.

    Returns:
        `path`; None where no model was measured with cut vectors on two or more queries, and then no file is there.
    """
    measured = {row: base for row, base in cut.items() if row in found}
    points = [
        curve_point(f"{cut.get(row, row)}, {task}", result.origin["dimensions"], result.per_query[_METRIC])
        for row in dict.fromkeys([*measured.values(), *measured])
        for task, result in found.get(row, {}).items()
        if len(result.per_query.get(_METRIC, {})) > 1
    ]
    if not points:
        path.unlink(missing_ok=True)
        return None
    figure = draw_curves(sorted(points, key=lambda point: point.x), metric=title(_METRIC), x_label="dimensions")
    save_figure(figure, path)
    return path
