"""Two pictures of a run: how the losses fell, and what the retrievers scored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hf_dense.errors import InputError
from hf_dense.evaluation.fonts import readable_letters
from hf_dense.storage.files import replaced_file

_COLOURS: Final = 10  # that matplotlib has before they begin anew
_SIZE_INCHES: Final = (7.5, 4.5)
_DPI: Final = 144
_POINTS, _MARK_INCHES, _LETTER_INCHES = 10, 0.8, 0.09  # of a legend, at most


def draw_losses(histories: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """The loss of one or more trainings over their steps, one panel per training.

    Args:
        histories: name of the training -> its log history as the trainer keeps it: dicts with `step` and losses
            (`loss`, and any key that ends in `_loss`, `eval_loss` included); other keys are ignored.

    Raises:
        InputError: no history holds a loss.
    """
    panels = {name: series for name, history in histories.items() if (series := loss_series(history))}
    if not panels:
        raise InputError("No loss to plot: no history has entries with a step and a loss.")
    columns = min(math.ceil(math.sqrt(len(panels))), 3)
    rows = math.ceil(len(panels) / columns)
    width = _SIZE_INCHES[0] if columns == 1 else 4.2 * columns
    figure = Figure(figsize=(width, max(_SIZE_INCHES[1], 3.4 * rows)), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, series) in zip(grid.flat, panels.items(), strict=False):
        colours: dict[str, str] = {}
        for label, points in series.items():
            colour = colours.setdefault(label.removeprefix("eval_"), f"C{len(colours)}")
            style = "o--" if label.startswith("eval_") else "-" if len(points) > 1 else "o"
            axes.plot(*zip(*points, strict=True), style, color=colour, markersize=3, label=label)
        axes.set_title(plain(name))
        axes.set_xlabel("optimisation step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_ylabel("loss (nats)")
        axes.grid(alpha=0.3)
        legend_below(axes)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_axis_off()
    return figure


def legend_below(axes: Axes) -> None:
    """Name the curves below their picture, where they cover none."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, frameon=False, fontsize=8)


def legend_above(figure: Figure) -> None:
    """Name what is drawn above the picture, in as many columns as fit, if need be in small letters."""
    _, names = figure.axes[0].get_legend_handles_labels()
    wide = _MARK_INCHES + _LETTER_INCHES * max(map(len, names))
    fit = figure.get_figwidth() / wide
    columns = min(len(names), 4, max(1, int(fit)))
    figure.legend(loc="outside upper center", ncols=columns, frameon=False, fontsize=_POINTS * min(1, fit))


def draw_metrics(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Grouped bars: one group per metric, one bar per retriever, its value written above; depths of a measure in order.

    More retrievers than there are colours to tell apart have a panel per metric, and their names beside their bars.

    Args:
        rows: one dict per retriever: `name` and, for each metric, a fraction in 0..1; all have the same metrics.

    Raises:
        InputError: no rows, or rows that do not share their metrics.
    """
    metrics = _by_depth([key for key in rows[0] if key != "name"]) if rows else []
    if not metrics or any(set(row) != {"name", *metrics} for row in rows):
        raise InputError("A metric plot needs at least one row, and a name and the same metrics in every row.")
    if len(rows) > _COLOURS:
        return _draw_panels(rows, metrics)
    figure = Figure(
        figsize=(max(_SIZE_INCHES[0], 0.6 * len(rows) * len(metrics)), _SIZE_INCHES[1]), layout="constrained"
    )
    axes = figure.subplots()
    width = 0.8 / len(rows)
    for index, row in enumerate(rows):
        places = [group + (index - (len(rows) - 1) / 2) * width for group in range(len(metrics))]
        bars = axes.bar(places, [row[metric] for metric in metrics], width * 0.94, label=plain(row["name"]))
        axes.bar_label(bars, fmt="%.3f", fontsize=8, padding=2)
    axes.set_xticks(range(len(metrics)), [plain(metric) for metric in metrics])
    axes.set_ylabel("mean over queries (fraction)")
    axes.set_ylim(0, 1.15 * _greatest(row[metric] for row in rows for metric in metrics))
    axes.spines[["top", "right"]].set_visible(False)
    legend_above(figure)
    return figure


def _draw_panels(rows: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> Figure:
    """A panel per metric; the retrievers from top to bottom."""
    figure = Figure(figsize=(2 + 2.6 * len(metrics), 0.8 + 0.3 * len(rows)), layout="constrained")
    for axes, metric in zip(figure.subplots(1, len(metrics), sharey=True, squeeze=False).flat, metrics, strict=True):
        values = [row[metric] for row in rows]
        axes.bar_label(axes.barh(range(len(rows)), values), fmt="%.3f", fontsize=8, padding=2)
        axes.set_xlim(0, 1.25 * _greatest(values))
        axes.set_xlabel(plain(metric))
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_yticks(range(len(rows)), [plain(row["name"]) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    return figure


def _greatest(values: Iterable[float]) -> float:
    """The greatest of those that are numbers, or 1 where none is above 0."""
    return max((value for value in values if value > 0), default=1.0)


def plain(name: str) -> str:
    """A name as matplotlib shows it: for no formula, nor for one that it is to hide, as those that begin by `_`."""
    return f"{' ' * name.startswith('_')}{name}".replace("$", r"\$")


def as_png(figure: Figure) -> bytes:
    """A picture as the bytes of its file."""
    stream = BytesIO()
    with readable_letters(figure):
        figure.savefig(stream, dpi=_DPI, format="png")
    return stream.getvalue()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a picture as PNG, complete or not at all."""
    with replaced_file(path) as partial:
        partial.write_bytes(as_png(figure))


def loss_series(history: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Sort a log history into curves: name of the loss -> (step, value) pairs.

    The trainer's closing mean, `train_loss`, is no point of a curve and is left out.

    >>> loss_series([{"step": 5, "loss": 2.0}, {"step": 5, "eval_loss": 2.5}, {"step": 9, "train_loss": 3.0}])
    {'loss': [(5, 2.0)], 'eval_loss': [(5, 2.5)]}
    """
    series: dict[str, list[tuple[int, float]]] = {}
    for entry in history:
        for key, value in entry.items():
            if (key == "loss" or key.endswith("_loss")) and key != "train_loss" and "step" in entry:
                series.setdefault(key, []).append((int(entry["step"]), float(value)))
    return series


def _by_depth(metrics: Sequence[str]) -> list[str]:
    """Metrics as they stand beside each other: those of one measure together, from its least depth on.

    >>> _by_depth(["ndcg@10", "recall@100", "recall@50", "recall@1000", "auc"])
    ['ndcg@10', 'recall@50', 'recall@100', 'recall@1000', 'auc']
    """
    measures = [metric.partition("@")[0] for metric in metrics]

    def place(metric: str) -> tuple[int, int]:
        measure, _, depth = metric.partition("@")
        return measures.index(measure), int(depth) if depth.isdecimal() else 0

    return sorted(metrics, key=place)
