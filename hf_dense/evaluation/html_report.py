"""One page on some retrievers and one collection: metrics, differences, the queries behind them, cost."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

from matplotlib.figure import Figure
from pyarrow import parquet

from hf_dense.data.answers import has_answer
from hf_dense.data.collections import (
    content_hash,
    judged_indices,
    load_answers,
    load_corpus,
    load_qrels,
    load_queries,
)
from hf_dense.data.passage_texts import passage_text
from hf_dense.errors import InputError
from hf_dense.evaluation.measures import title
from hf_dense.evaluation.page import Block, Heading, Picture, Table, as_html, as_markdown
from hf_dense.evaluation.plots import as_png, draw_metrics
from hf_dense.evaluation.result import RANKINGS_FILE, RetrievalResult
from hf_dense.evaluation.significance import compare_paired
from hf_dense.storage.files import write_text
from hf_dense.storage.fingerprints import fingerprint_path
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.provenance import describe_run

_CASES: Final = 5
_LONGEST: Final = 400  # characters of a text that are shown
_PLOTTED: Final = 3  # metrics
_COSTS: Final = {
    "memory": ("peak_memory", 1e-9, "{:.2f} GB"),
    "passages encoded": ("passages", 1, "{:,}"),
    "tokens read": ("tokens", 1, "{:,}"),
    "index per passage": ("bytes_per_passage", 1, "{:,} bytes"),
    "encoding a query": ("query_seconds", 1000, "{:.1f} ms"),
    "answering a query": ("search_seconds", 1000, "{:.1f} ms"),
}  # what an evaluation's origin calls it, the unit, and how it is shown


@dataclass(frozen=True)
class _Run:
    name: str
    result: RetrievalResult
    ranks: Mapping[str, Mapping[str, int]]  # query id -> passage id -> rank, the best first

    @property
    def metric(self) -> str:
        """The one that queries are compared by."""
        return "ndcg@10" if "ndcg@10" in self.result.metrics else next(iter(self.result.metrics))


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
    loaded = [_load(name, Path(directory), source) for name, directory in runs.items()]
    first = next(run for run in loaded if run.name == baseline)
    others = [run for run in loaded if run.name != baseline]
    _check_same_queries(first, others)
    output, heading = Output.of(out), f"Retrieval on {Path(collection).resolve().name}"
    shown = {"runs": list(runs), "baseline": baseline}
    evaluated = {f"run {name}": Source(str(place), fingerprint_path(place)) for name, place in runs.items()}
    with output.stage("report", shown, {"collection": source, **evaluated}) as work:
        if not work.done:
            texts = _Texts(Path(collection), first)
            blocks = [
                *_what(source, first, texts.passages),
                *_metrics(loaded),
                *_differences(first, others),
                *(block for run in others for block in _cases(first, run, texts)),
                *_cost(loaded),
                *_settings(loaded),
                *_origin(loaded),
            ]
            write_text(work.result / "report.html", as_html(heading, blocks))
            write_text(work.result / "report.md", as_markdown(heading, blocks))
    return [output.path / name for name in ("report.html", "report.md")]


def _load(name: str, directory: Path, collection: Source) -> _Run:
    result, manifest = RetrievalResult.load(directory), Manifest.load(directory)
    if manifest is None or not (directory / RANKINGS_FILE).is_file():
        raise InputError(f"{directory} is no whole evaluation; evaluate {name} again.")
    if manifest.made_from.get("collection") != collection.fingerprint:
        measured = manifest.sources.get("collection", "nothing that is known")
        raise InputError(
            f"{collection.name} is not the collection of the evaluation {name}, or it was changed since: that was "
            f"measured on {measured}; name that one, or evaluate again."
        )
    ranks: dict[str, dict[str, int]] = {}
    for row in sorted(parquet.read_table(directory / RANKINGS_FILE).to_pylist(), key=lambda row: int(row["rank"])):
        ranks.setdefault(row["query-id"], {})[row["corpus-id"]] = row["rank"]
    return _Run(name, result, ranks)


def _check_same_queries(first: _Run, others: Sequence[_Run]) -> None:
    for run in others:
        if run.result.metrics.keys() != first.result.metrics.keys():
            raise InputError(f"{run.name} and {first.name} have different metrics; evaluate both by the same protocol.")
        if run.result.split != first.result.split or _values(run).keys() != _values(first).keys():
            raise InputError(f"{run.name} and {first.name} cover different queries; evaluate both on the same split.")


def _values(run: _Run, metric: str | None = None) -> dict[str, float]:
    return run.result.per_query[metric or run.metric]


class _Texts:
    """What queries and passages say, and which belong together."""

    def __init__(self, collection: Path, first: _Run) -> None:
        corpus, queries = load_corpus(collection), load_queries(collection)
        self.passages = len(corpus)
        self._corpus, self._indices = corpus, judged_indices(corpus)
        self._queries = dict(zip(queries["id"], queries["text"], strict=True))
        self._answers = load_answers(collection) if first.metric.startswith("answer") else None
        self._qrels = {} if self._answers else load_qrels(collection, first.result.split)

    def query(self, name: str) -> str:
        return shorten(self._queries[name], _LONGEST, placeholder=" ...")

    def passage(self, name: str) -> str:
        row = self._corpus[self._indices[name][0]]
        return shorten(f"{name}: {passage_text(row['title'], row['text'])}", _LONGEST, placeholder=" ...")

    def relevant(self, query: str) -> dict[str, int]:
        """Passages that were judged relevant, with their grades."""
        return {passage: grade for passage, grade in self._qrels.get(query, {}).items() if grade > 0}

    def wanted(self, query: str, best: str | None) -> str:
        """What a search should have found: the `best` of the relevant passages, or a passage with an answer."""
        return self.passage(best) if best is not None else " or ".join((self._answers or {})[query])

    def is_relevant(self, query: str, passage: str) -> bool:
        """Whether a passage was judged relevant, or holds an answer."""
        if self._answers is None:
            return passage in self.relevant(query)
        return has_answer(self._corpus[self._indices[passage][0]]["text"], self._answers[query])


def _what(collection: Source, first: _Run, passages: int) -> list[Block]:
    rows = [
        ("collection", Path(collection.name).resolve().name),
        ("its content", f"SHA-256 {collection.fingerprint[:16]}"),
        ("passages", f"{passages:,}"),
        ("split", first.result.split),
        ("queries", f"{len(_values(first)):,}"),
        ("baseline", first.name),
    ]
    return [Heading("What was measured"), Table(("", ""), rows)]


def _metrics(runs: Sequence[_Run]) -> list[Block]:
    shown = [*runs[0].result.metrics]
    rows = [(run.name, *(f"{run.result.metrics[metric]:.4f}" for metric in shown)) for run in runs]
    plotted = [
        {"name": _plain(run.name), **{title(metric): run.result.metrics[metric] for metric in shown[:_PLOTTED]}}
        for run in runs
    ]
    return [
        Heading("Metrics"),
        "Means over the queries; fractions, higher is better.",
        Table(("", *map(title, shown)), rows),
        Picture(as_png(draw_metrics(plotted)), "Metrics of every run"),
    ]


def _differences(first: _Run, others: Sequence[_Run]) -> list[Block]:
    blocks: list[Block] = [Heading(f"Against {first.name}")]
    if not others:
        return [*blocks, "There is no other run to compare."]
    rows = []
    for run in others:
        for metric in [*first.result.metrics][:_PLOTTED]:
            found = compare_paired(_values(run, metric), _values(first, metric))
            interval = f"{found.low:+.4f} to {found.high:+.4f}"
            rows.append((run.name, title(metric), f"{found.difference:+.4f}", interval, f"{found.p_value:.4f}"))
    return [
        *blocks,
        "Mean differences over the queries, their 95 % bootstrap interval, and the two-sided p-value of the paired "
        "randomisation test (10,000 resamples, so never below 0.0002). The p-values are not corrected for the "
        "number of comparisons.",
        Table(("", "metric", "difference", "95 % interval", "p"), rows),
        Picture(_plot_differences(first, others), f"Differences of {title(first.metric)} per query, sorted"),
    ]


def _plot_differences(first: _Run, others: Sequence[_Run]) -> bytes:
    """Each run's differences from the baseline, query by query, the greatest gain first."""
    figure = Figure(figsize=(7.5, 0.6 + 2.4 * len(others)), layout="constrained")
    for axes, run in zip(figure.subplots(len(others), squeeze=False).flat, others, strict=True):
        changes = sorted((change for _, change in _changes(first, run)), reverse=True)
        axes.stairs(changes, fill=True, alpha=0.7)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_ylim(-1.05, 1.05)
        gained, lost = (sum(sign * change > 0 for change in changes) for sign in (1, -1))
        same = len(changes) - gained - lost
        axes.set_title(f"{_plain(run.name)}: {gained} gained, {same} the same, {lost} lost", fontsize=10)
        axes.set_ylabel(f"{title(first.metric)} difference")
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("queries, sorted by difference")
    return as_png(figure)


def _changes(first: _Run, run: _Run) -> list[tuple[str, float]]:
    """Query and difference, the greatest gain first; ties in the order of the ids."""
    before, after = _values(first), _values(run)
    return sorted(((query, after[query] - before[query]) for query in before), key=lambda pair: (-pair[1], pair[0]))


def _cases(first: _Run, run: _Run, texts: _Texts) -> list[Block]:
    changes = _changes(first, run)
    gained = [(query, change) for query, change in changes if change > 0][:_CASES]
    lost = [(query, change) for query, change in reversed(changes) if change < 0][:_CASES]
    blocks: list[Block] = [Heading(f"Queries of {run.name} against {first.name}")]
    for verb, found in (("gained", gained), ("lost", lost)):
        blocks.append(Heading(f"Those that {verb} most", level=3))
        blocks.extend(_case(query, change, first, run, texts) for query, change in found)
        if not found:
            blocks.append(f"No query {verb}.")
    return blocks


def _case(query: str, change: float, first: _Run, run: _Run, texts: _Texts) -> Table:
    relevant = texts.relevant(query)
    ranks = [side.ranks.get(query, {}) for side in (first, run)]
    best = max(
        relevant,
        key=lambda passage: (relevant[passage], -min(rank.get(passage, 10**9) for rank in ranks)),
        default=None,
    )
    places = ", ".join(
        f"{side.name} {f'rank {rank[best]}' if best is not None and best in rank else 'not among its first 100'}"
        for side, rank in zip((first, run), ranks, strict=True)
    )
    rows = [("relevant" if best else "answer", texts.wanted(query, best) + (f" ({places})" if best else ""))]
    for side, rank in zip((first, run), ranks, strict=True):
        top = next(iter(rank), None)
        shown = "nothing found" if top is None else texts.passage(top)
        right = top is not None and texts.is_relevant(query, top)
        rows.append((f"first of {side.name}{', relevant' if right else ''}", shown))
    return Table((f"{change:+.4f}", f"{query}: {texts.query(query)}"), rows)


def _cost(runs: Sequence[_Run]) -> list[Block]:
    rows = []
    for run in runs:
        known = [(run.result.origin.get(fact), unit, form) for fact, unit, form in _COSTS.values()]
        cells = ["not measured" if value is None else form.format(unit * value) for value, unit, form in known]
        rows.append((run.name, f"{run.result.seconds:.1f} s", *cells))
    return [
        Heading("Cost"),
        "Wall-clock time of the whole evaluation: encoding, search and scoring; memory of the process at its peak. "
        "A query is answered when it is encoded and its first 100 passages are found, one query at a time.",
        Table(("", "evaluation", *_COSTS), rows),
    ]


def _settings(runs: Sequence[_Run]) -> list[Block]:
    known = {run.name: run.result.origin.get("settings", {}) for run in runs}
    names = list(dict.fromkeys(name for settings in known.values() for name in settings))
    rows = [(run, *(str(settings.get(name, "-")) for name in names)) for run, settings in known.items()]
    return [Heading("Settings"), Table(("", *names), rows) if names else "Not recorded."]


def _origin(runs: Sequence[_Run]) -> list[Block]:
    rows = [(run.name, *_described(run.result.origin)) for run in runs]
    return [
        Heading("Where the figures come from"),
        "The differences and this page were computed from the runs' own files, as the last row says.",
        Table(("", "commit", "hardware", "date"), [*rows, ("this report", *_described(describe_run()))]),
    ]


def _described(origin: Mapping[str, Any]) -> tuple[str, str, str]:
    commit, hardware = origin.get("commit"), origin.get("hardware")
    missing = "not recorded"
    return (
        f"{commit['id'][:10]}{', changed since' if commit['dirty'] else ''}" if commit else missing,
        f"{hardware['cuda'] or 'no GPU'}; {hardware['cores']} cores of {hardware['cpu']}, {hardware['memory_gib']} GiB"
        if hardware
        else missing,
        str(origin.get("date", missing)),
    )


def _plain(name: str) -> str:
    """A name that matplotlib takes for no formula."""
    return name.replace("$", r"\$")
