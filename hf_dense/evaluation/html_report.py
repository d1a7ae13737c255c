"""One page on some retrievers and one collection: metrics, differences, the queries behind them, cost."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from hf_dense.data.collections import content_hash
from hf_dense.errors import InputError
from hf_dense.evaluation.cases import Run, Texts, cases, load_run, query_changes, values_of
from hf_dense.evaluation.measures import title
from hf_dense.evaluation.page import Block, Heading, Picture, Table, as_html, as_markdown
from hf_dense.evaluation.plots import as_png, draw_metrics, plain
from hf_dense.evaluation.significance import compare_paired
from hf_dense.storage.files import write_text
from hf_dense.storage.fingerprints import fingerprint_path
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.provenance import commit_in_words, describe_run, hardware_in_words

_PLOTTED: Final = 3  # metrics
_ONE_QUERY: Final = " One query tells nothing of others: no test can be made."
_COSTS: Final = {
    "memory": ("peak_memory", 1e-9, "{:.2f} GB"),
    "passages encoded": ("passages", 1, "{:,}"),
    "tokens read": ("tokens", 1, "{:,}"),
    "index per passage": ("bytes_per_passage", 1, "{:,} bytes"),
    "encoding a query": ("query_seconds", 1000, "{:.1f} ms"),
    "answering a query": ("search_seconds", 1000, "{:.1f} ms"),
}  # what an evaluation's origin calls it, the unit, and how it is shown


def write_html_report(
    runs: Mapping[str, str | Path],
    collection: str | os.PathLike[str],
    out: str | os.PathLike[str] | Output,
    *,
    baseline: str | None = None,
) -> list[Path]:
    """Compare evaluations of one split by one protocol, whichever, in `report.html` and `report.md`.

    Args:
        runs: directories of evaluations (`result.json`, `rankings.parquet`), by the name that the report gives them.
        collection: the dataset directory that all of them searched.
        out: receives the two files.
        baseline: the run that the others are held against; the first by default.

    Returns:
        The paths of the page, which needs nothing beside it, and of its Markdown twin (the same tables, no plots).

    Raises:
        InputError: no run, an unknown name, a directory without an evaluation, runs on different queries or on another
            collection, or `out` is not ours or holds another report.
    """
    if not runs:
        raise InputError("A report needs at least one evaluation.")
    baseline = baseline if baseline is not None else next(iter(runs))
    if baseline not in runs:
        raise InputError(f"There is no run {baseline!r} to report; the runs are {', '.join(runs)}.")
    source = Source(str(collection), content_hash(collection))
    loaded = [load_run(name, Path(directory), source) for name, directory in runs.items()]
    first = next(run for run in loaded if run.name == baseline)
    others = [run for run in loaded if run.name != baseline]
    _check_same_queries(first, others)
    output, heading = Output.of(out), f"Retrieval on {Path(collection).resolve().name}"
    shown = {"runs": list(runs), "baseline": baseline}
    evaluated = {f"run {name}": Source(str(place), fingerprint_path(place)) for name, place in runs.items()}
    with output.stage("report", shown, {"collection": source, **evaluated}) as work:
        if not work.done:
            texts = Texts(Path(collection), first)
            blocks = [
                *_what(source, first, texts.passages),
                *_metrics(loaded),
                *_differences(first, others),
                *(block for run in others for block in cases(first, run, texts)),
                *_cost(loaded),
                *_settings(loaded),
                *_origin(loaded),
            ]
            write_text(work.result / "report.html", as_html(heading, blocks))
            write_text(work.result / "report.md", as_markdown(heading, blocks))
    return [output.path / name for name in ("report.html", "report.md")]


def _check_same_queries(first: Run, others: Sequence[Run]) -> None:
    for run in others:
        if run.result.metrics.keys() != first.result.metrics.keys():
            raise InputError(f"{run.name} and {first.name} have different metrics; evaluate both by the same protocol.")
        if run.result.split != first.result.split or values_of(run).keys() != values_of(first).keys():
            raise InputError(f"{run.name} and {first.name} cover different queries; evaluate both on the same split.")


def _what(collection: Source, first: Run, passages: int) -> list[Block]:
    rows = [
        ("collection", Path(collection.name).resolve().name),
        ("its content", f"SHA-256 {collection.fingerprint[:16]}"),
        ("passages", f"{passages:,}"),
        ("split", first.result.split),
        ("queries", f"{len(values_of(first)):,}"),
        ("baseline", first.name),
    ]
    return [Heading("What was measured"), Table(("", ""), rows)]


def _metrics(runs: Sequence[Run]) -> list[Block]:
    shown = [*runs[0].result.metrics]
    rows = [(run.name, *(f"{run.result.metrics[metric]:.4f}" for metric in shown)) for run in runs]
    plotted = [
        {"name": run.name, **{title(metric): run.result.metrics[metric] for metric in shown[:_PLOTTED]}} for run in runs
    ]
    return [
        Heading("Metrics"),
        "Means over the queries; fractions, higher is better.",
        Table(("", *map(title, shown)), rows),
        Picture(as_png(draw_metrics(plotted)), "Metrics of every run"),
    ]


def _differences(first: Run, others: Sequence[Run]) -> list[Block]:
    blocks: list[Block] = [Heading(f"Against {first.name}")]
    if not others:
        return [*blocks, "There is no other run to compare."]
    rows = []
    for run in others:
        for metric in [*first.result.metrics][:_PLOTTED]:
            found = compare_paired(values_of(run, metric), values_of(first, metric))
            interval = f"{found.low:+z.4f} to {found.high:+z.4f}"
            rows.append((run.name, title(metric), f"{found.difference:+z.4f}", interval, f"{found.p_value:.4f}"))
    return [
        *blocks,
        "Mean differences over the queries, their 95 % bootstrap interval, and the two-sided p-value of the paired "
        "randomisation test (10,000 resamples, so never below 0.0002). The p-values are not corrected for the "
        "number of comparisons." + (_ONE_QUERY if len(values_of(first)) == 1 else ""),
        Table(("", "metric", "difference", "95 % interval", "p"), rows),
        Picture(_plot_differences(first, others), f"Differences of {title(first.metric)} per query, sorted"),
    ]


def _plot_differences(first: Run, others: Sequence[Run]) -> bytes:
    """Each run's differences from the baseline, query by query, the greatest gain first."""
    figure = Figure(figsize=(7.5, 0.6 + 2.4 * len(others)), layout="constrained")
    for axes, run in zip(figure.subplots(len(others), squeeze=False).flat, others, strict=True):
        changes = sorted((change for _, change in query_changes(first, run)), reverse=True)
        axes.stairs(changes, fill=True, alpha=0.7)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_ylim(-1.05, 1.05)
        gained, lost = (sum(sign * change > 0 for change in changes) for sign in (1, -1))
        same = len(changes) - gained - lost
        axes.set_title(f"{plain(run.name)}: {gained} gained, {same} the same, {lost} lost", fontsize=10)
        axes.set_ylabel(f"{title(first.metric)} difference")
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("queries, sorted by difference")
    return as_png(figure)


def _cost(runs: Sequence[Run]) -> list[Block]:
    rows = []
    for run in runs:
        known = [(run.result.origin.get(fact), unit, form) for fact, unit, form in _COSTS.values()]
        cells = ["not measured" if value is None else form.format(unit * value) for value, unit, form in known]
        least = "at least " if run.result.origin.get("resumed") else ""
        rows.append((run.name, f"{least}{run.result.seconds:.1f} s", *cells))
    return [
        Heading("Cost"),
        "Wall-clock time of the whole evaluation: encoding, search and scoring; memory of the process at its peak. "
        "A query is answered when it is encoded and its first 100 passages are found, one query at a time.",
        Table(("", "evaluation", *_COSTS), rows),
    ]


def _settings(runs: Sequence[Run]) -> list[Block]:
    known = {run.name: run.result.origin.get("settings", {}) for run in runs}
    names = list(dict.fromkeys(name for settings in known.values() for name in settings))
    rows = [(run, *(str(settings.get(name, "-")) for name in names)) for run, settings in known.items()]
    return [Heading("Settings"), Table(("", *names), rows) if names else "Not recorded."]


def _origin(runs: Sequence[Run]) -> list[Block]:
    rows = [(run.name, *_described(run.result.origin)) for run in runs]
    return [
        Heading("Where the figures come from"),
        "The differences and this page were computed from the runs' own files, as the last row says.",
        Table(("", "commit", "hardware", "date"), [*rows, ("this report", *_described(describe_run()))]),
    ]


def _described(origin: Mapping[str, Any]) -> tuple[str, str, str]:
    missing = "not recorded"
    return (
        commit_in_words(origin.get("commit")) or missing,
        hardware_in_words(origin.get("hardware")) or missing,
        str(origin.get("date", missing)),
    )
