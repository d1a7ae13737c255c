"""The pictures of the analyses, each beside the figures it shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from hf_dense.evaluation.analyses import ContextCorrelation, CurvePoint, LengthSimilarity
from hf_dense.evaluation.index_kinds import KindQuality
from hf_dense.evaluation.plots import legend_above, plain, save_figure
from hf_dense.evaluation.positions import PositionSimilarity
from hf_dense.storage.files import write_text

_SIZE_INCHES = (7.5, 4.5)
_TICKS: Final = 8  # as many values of x are each written below the axis


def save_analysis(
    kind: str,
    rows: Sequence[Any],
    figure: Figure,
    folder: Path,
    *,
    settings: Mapping[str, Any],
    provenance: Mapping[str, Any] | None = None,
) -> None:
    """Write a picture and the figures it shows: `<kind>.png` and `<kind>.json`.

    Args:
        kind: `lengths`, `positions`, `contexts`, `curve` or `kinds`.
        rows: dataclasses, as the analysis gave them.
        figure: of them.
        folder: is there.
        settings: what was asked, ready for JSON.
        provenance: of the run, where its data is a collection.
    """
    shown = {
        "analysis": kind,
        "settings": dict(settings),
        "rows": [asdict(row) for row in rows],
        "provenance": provenance and dict(provenance),
    }
    save_figure(figure, folder / f"{kind}.png")
    write_text(folder / f"{kind}.json", json.dumps(shown, indent=1))


def draw_lengths(rows: Sequence[LengthSimilarity]) -> Figure:
    """Mean similarity and, as bars, its standard deviation, by length (SEED-Encoder, figures 1(b) and 5)."""
    figure, axes = _axes()
    axes.errorbar(range(len(rows)), [row.mean for row in rows], [row.deviation for row in rows], fmt="o-", capsize=4)
    axes.set_xticks(range(len(rows)), [f"{row.shortest}-{row.longest}\n{row.texts:,} texts" for row in rows])
    axes.margins(x=0.1)
    axes.set_xlabel("length (tokens)")
    axes.set_ylabel("cosine similarity of random pairs\n(mean ± standard deviation)")
    return figure


def draw_positions(rows: Sequence[PositionSimilarity]) -> Figure:
    """Similarity to the bottleneck by position, of the decoder's and the encoder's states (SEED-Encoder, figure 4)."""
    figure, axes = _axes()
    positions = [row.position for row in rows]
    axes.plot(positions, [row.decoder for row in rows], label="decoder")
    axes.plot(positions, [row.encoder for row in rows], "--", label="encoder")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("position (tokens; 0 is [CLS])")
    axes.set_ylabel("mean cosine similarity to the bottleneck")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def draw_contexts(rows: Sequence[ContextCorrelation]) -> Figure:
    """What passages share with their contexts and with those of others, by kind of context (query-as-context, table 5).

    The random pairs of the last panel are 5 % by definition.
    """
    panels: tuple[tuple[str, Callable[[ContextCorrelation], tuple[float, float]]], ...] = (
        ("mean cosine similarity", lambda row: (row.similarity, row.random_similarity)),
        ("content words in common (share)", lambda row: (row.words, row.random_words)),
        ("pairs above 95 % of random pairs (share)", lambda row: (row.correlated, 0.05)),
    )
    figure = Figure(figsize=(13.5, _SIZE_INCHES[1]), layout="constrained")
    wide = max(len(rows), 3)  # bars of a single context would fill the panel
    for axes, (title, values) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for index, label in enumerate(("passage and its context", "random pair")):
            places = [at + (index - 0.5) * 0.4 for at in range(len(rows))]
            heights, colour = [values(row)[index] for row in rows], ("C0", "0.75")[index]
            bars = axes.bar(places, heights, 0.37, label=label, color=colour)
            axes.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
        axes.axhline(0, color="0.3", linewidth=0.8)
        axes.set_xticks(range(len(rows)), [row.context for row in rows])
        axes.set_xlim((len(rows) - wide) / 2 - 0.6, (len(rows) + wide) / 2 - 0.4)
        axes.margins(y=0.12)
        axes.set_title(title, fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    return figure


def draw_curves(points: Sequence[CurvePoint], *, metric: str, x_label: str) -> Figure:
    """A metric against x with 95 % bootstrap bands (MASTER, figure 3).

    x is in powers when it spans more than a decade, 0 aside.
    """
    figure, axes = _axes()
    for curve in dict.fromkeys(point.curve for point in points):
        own = [point for point in points if point.curve == curve]
        places = [point.x for point in own]
        (line,) = axes.plot(places, [point.value for point in own], "o-", label=plain(curve))
        axes.fill_between(
            places, [point.low for point in own], [point.high for point in own], color=line.get_color(), alpha=0.2
        )
    places = sorted({point.x for point in points})
    some = [place for place in places if place > 0]
    if some and some[-1] > 10 * some[0]:
        if some == places:
            axes.set_xscale("log")
        else:  # from 0 to the next value as far as from there to ten times as much
            axes.set_xscale("symlog", linthresh=some[0])
        if len(places) <= _TICKS:
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xticks(places, [f"{place:,.12g}" for place in places])
    axes.set_xlabel(x_label)
    axes.set_ylabel(f"{metric} (95 % interval over queries)")
    if len(curves := {point.curve for point in points}) > 1:
        legend_above(figure)
    else:
        axes.set_title(plain(*curves), fontsize=10)
    return figure


def draw_kinds(rows: Sequence[KindQuality]) -> Figure:
    """What each kind of index finds of what the exact search does, what it scores, takes and how long it searches."""
    panels: tuple[tuple[str, Callable[[KindQuality], float], str], ...] = (
        ("exact search's first 10 (share found)", lambda row: row.found_10, "%.3f"),
        ("nDCG@10", lambda row: row.ndcg_10, "%.3f"),
        ("bytes in memory per passage", lambda row: row.bytes, "%.0f"),
        ("milliseconds per question", lambda row: row.milliseconds, "%.2f"),
    )
    figure = Figure(figsize=(13.5, 1 + 0.5 * len(rows)), layout="constrained")
    for at, (axes, (title, value, written)) in enumerate(zip(figure.subplots(1, len(panels)), panels, strict=True)):
        bars = axes.barh(range(len(rows)), [value(row) for row in rows], color="C0")
        axes.bar_label(bars, fmt=written, fontsize=8, padding=2)
        axes.set_yticks(range(len(rows)), [row.kind for row in rows] if at == 0 else [""] * len(rows))
        axes.invert_yaxis()
        axes.margins(x=0.2)
        axes.set_title(title, fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
