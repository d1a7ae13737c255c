"""What a sweep found: a table, a picture and the figures behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hf_dense.data.collections import content_hash
from hf_dense.evaluation.analyses import CurvePoint, curve_point
from hf_dense.evaluation.analysis_plots import draw_curves
from hf_dense.evaluation.measures import METRICS, mean_metrics, title
from hf_dense.evaluation.plots import save_figure
from hf_dense.evaluation.significance import Comparison, compare_paired
from hf_dense.experiments.comparison import VariantResult, mean_per_query
from hf_dense.experiments.sweep_options import SWEEPS, SweepOptions
from hf_dense.experiments.sweep_plan import UNTRAINED, Run, shown
from hf_dense.storage.files import write_text
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.provenance import provenance


@dataclass(frozen=True)
class Row:
    """What one value gave.

    Attributes:
        point: curve (method, or "no pre-training"), value, and the drawn metric with its interval over the queries.
        metrics: means over queries and seeds.
        by_seed: the drawn metric, in the order of the seeds.
        against_first: its difference to the first value of the same curve.
        against_untrained: to no pre-training at the same value, where that is another curve.
    """

    point: CurvePoint
    metrics: dict[str, float]
    by_seed: list[float]
    against_first: Comparison | None
    against_untrained: Comparison | None


def make_rows(options: SweepOptions, runs: Mapping[str, Run], results: Mapping[str, VariantResult]) -> list[Row]:
    """Means over the seeds, and paired tests over the queries, each query's mean over the seeds.

    Args:
        options: of the sweep.
        runs: from `plan_sweep`.
        results: of the runs that have one, by name.

    Returns:
        One row for each curve and value, in the order given.
    """
    own: dict[tuple[str, float], list[VariantResult]] = {}
    for name, result in results.items():
        own.setdefault((runs[name].curve, runs[name].value or 0.0), []).append(result)
    scores = {place: mean_per_query([one.retrieval for one in of_seeds]) for place, of_seeds in own.items()}
    metric, rows = options.metric, []
    for curve in dict.fromkeys(curve for curve, _ in own):
        for value in options.values:
            found, first = scores[curve, value], scores[curve, options.values[0]]
            untrained = scores.get((UNTRAINED, value)) if curve != UNTRAINED else None
            rows.append(
                Row(
                    point=curve_point(curve, value, found[metric]),
                    metrics=mean_metrics(found),
                    by_seed=[result.retrieval.metrics[metric] for result in own[curve, value]],
                    against_first=compare_paired(found[metric], first[metric]) if found is not first else None,
                    against_untrained=compare_paired(found[metric], untrained[metric]) if untrained else None,
                )
            )
    return rows


def write_rows(options: SweepOptions, rows: Sequence[Row], output_dir: Path) -> None:
    """Write `sweep.png`, `sweep.md` and `sweep.json`."""
    points = sorted((row.point for row in rows), key=lambda point: point.x)
    whose = f" in the {options.part}'s view" if options.sweep == "masking" else ""
    figure = draw_curves(points, metric=options.metric, x_label=f"{SWEEPS[options.sweep]}{whose}")
    axes = figure.axes[0]
    for line in list(axes.lines):
        for row in rows:
            if row.point.curve == line.get_label() and len(row.by_seed) > 1:
                axes.plot([row.point.x] * len(row.by_seed), row.by_seed, "_", color=line.get_color())
    save_figure(figure, output_dir / "sweep.png")
    facts = {
        "rows": [asdict(row) for row in rows],
        "options": asdict(options),
        **provenance(options.seeds[0], options.collection, content_hash(options.collection)),
        "seeds": options.seeds,
    }
    write_text(output_dir / "sweep.json", json.dumps(facts, indent=1))
    queries = next(row.against_first.queries for row in rows if row.against_first)
    about = (
        f"{queries:,} queries of split {options.split!r} of {options.collection}; seeds: "
        f"{', '.join(map(str, options.seeds))}. Differences with 95 % bootstrap intervals over the queries and "
        "p-values of the two-sided paired randomisation test, not corrected for their number; each query's score is "
        "its mean over the seeds."
    )
    write_text(output_dir / "sweep.md", f"{format_rows(rows, options)}\n\n{about}\n")


def format_rows(rows: Sequence[Row], options: SweepOptions) -> str:
    """The rows as a Markdown table."""
    pairs = any(row.against_untrained for row in rows)
    varied = f"{SWEEPS[options.sweep]}{f' ({options.part})' if options.sweep == 'masking' else ''}"
    head = ["", varied, *map(title, METRICS), f"{options.metric}: difference to the first value"]
    head += [f"{options.metric}: to {UNTRAINED}"] * pairs
    lines = []
    for row in rows:
        compared = [row.against_first, row.against_untrained][: 1 + pairs]
        metrics = [f"{row.metrics[metric]:.4f}" for metric in METRICS]
        lines.append([row.point.curve, shown(row.point.x), *metrics, *map(format_comparison, compared)])
    return markdown_table(head, lines, range(1, 5))


def format_comparison(found: Comparison | None) -> str:
    """A difference with its interval and p-value, or a dash."""
    if found is None:
        return "-"
    return f"{found.difference:+z.4f} ({found.low:+z.4f} to {found.high:+z.4f}, p = {found.p_value:.4f})"
