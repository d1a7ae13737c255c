"""One page on some retrievers and one collection: metrics, differences, the queries behind them, cost."""

from __future__ import annotations

import base64
import html
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

from matplotlib.figure import Figure
from pyarrow import parquet

from hf_dense.data.collections import content_hash, judged_places, load_corpus, load_qrels, load_queries
from hf_dense.errors import InputError
from hf_dense.evaluation.measures import METRICS, MORE_METRICS
from hf_dense.evaluation.plots import plot_metrics
from hf_dense.evaluation.provenance import describe_run
from hf_dense.evaluation.result import RANKINGS_FILE, RetrievalResult
from hf_dense.evaluation.significance import compare_paired
from hf_dense.files import write_text

_CASES: Final = 5
_CASES_METRIC: Final = METRICS[0]
_LONGEST: Final = 400  # characters of a text that are shown
_TITLES: Final = {"ndcg@10": "nDCG@10", "mrr@10": "MRR@10"}
_UNKNOWN: Final = "not measured"
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ccc; }
h3 { font-size: 1rem; margin-top: 1.6rem; }
.wide { overflow-x: auto; } img { max-width: 100%; }
table { border-collapse: collapse; margin: 0.8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.7rem; text-align: left; vertical-align: top; border-bottom: 1px solid #e4e4e4;
  overflow-wrap: break-word; }
th { background: #f4f4f4; } td:first-child { white-space: nowrap; }
"""


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run beside its result; what is None is reported as not measured.

    Attributes:
        passages: encoded for the search.
        bytes_per_passage: of an index.
        tokens: read of passages and queries.
        peak_memory: bytes.
        query_seconds: mean time of encoding one query.
        search_seconds: mean time of one query's exact search, its encoding included.
        provenance: of the evaluation, as `provenance` describes it.
    """

    passages: int | None = None
    bytes_per_passage: int | None = None
    tokens: int | None = None
    peak_memory: int | None = None
    query_seconds: float | None = None
    search_seconds: float | None = None
    provenance: Mapping[str, Any] | None = None


_COSTS = ("passages encoded", "tokens read", "index per passage", "encoding a query", "answering a query")
MEASURED = tuple(fact.name for fact in fields(RunFacts) if fact.name != "provenance")  # that evaluations tell of


@dataclass(frozen=True)
class _Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class _Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class _Picture:
    png: bytes
    description: str


_Block = str | _Heading | _Table | _Picture


@dataclass(frozen=True)
class _Run:
    name: str
    result: RetrievalResult
    ranks: Mapping[str, Mapping[str, int]]  # query id -> passage id -> rank, the best first


def write_html_report(
    runs: Mapping[str, str | Path],
    collection: str | Path,
    output_dir: str | Path,
    *,
    baseline: str | None = None,
    facts: Mapping[str, RunFacts] | None = None,
) -> list[Path]:
    """Compare evaluations of one split in `report.html`, a page that needs nothing beside it, and `report.md`.

    Args:
        runs: directories of evaluations (`result.json`, `rankings.parquet`), by the name that the report gives them.
        collection: the dataset directory that all of them searched.
        output_dir: receives the two files.
        baseline: the run that the others are held against; the first by default.
        facts: what is known of the runs beside that, by name.

    Returns:
        The paths of the page and of its Markdown twin (the same tables, no plots).

    Raises:
        InputError: no run, an unknown name, a directory without an evaluation, or runs on different queries or on
            another collection.
    """
    if not runs:
        raise InputError("A report needs at least one evaluation.")
    baseline = baseline if baseline is not None else next(iter(runs))
    for name in (baseline, *(facts or {})):
        if name not in runs:
            raise InputError(f"There is no run {name!r} to report; the runs are {', '.join(runs)}.")
    loaded = [_load(name, Path(directory)) for name, directory in runs.items()]
    first = next(run for run in loaded if run.name == baseline)
    others = [run for run in loaded if run.name != baseline]
    _check_same_queries(first, others)
    texts = _Texts(Path(collection), first, loaded)
    known = {run.name: (facts or {}).get(run.name, RunFacts()) for run in loaded}
    blocks = [
        *_what(Path(collection), first, texts.passages),
        *_metrics(loaded),
        *_differences(first, others),
        *(block for run in others for block in _cases(first, run, texts)),
        *_cost(loaded, known),
        *_origin(loaded, known),
    ]
    title = f"Retrieval on {Path(collection).resolve().name}"
    paths = [Path(output_dir) / name for name in ("report.html", "report.md")]
    write_text(paths[0], _as_html(title, blocks))
    write_text(paths[1], _as_markdown(title, blocks))
    return paths


def _load(name: str, directory: Path) -> _Run:
    result = RetrievalResult.load(directory)
    if not (directory / RANKINGS_FILE).is_file():
        raise InputError(f"{directory} has no {RANKINGS_FILE}; evaluate {name} again.")
    ranks: dict[str, dict[str, int]] = {}
    for row in sorted(parquet.read_table(directory / RANKINGS_FILE).to_pylist(), key=lambda row: int(row["rank"])):
        ranks.setdefault(row["query-id"], {})[row["corpus-id"]] = row["rank"]
    return _Run(name, result, ranks)


def _check_same_queries(first: _Run, others: Sequence[_Run]) -> None:
    for run in others:
        if run.result.split != first.result.split or _values(run).keys() != _values(first).keys():
            raise InputError(f"{run.name} and {first.name} cover different queries; evaluate both on the same split.")


def _values(run: _Run, metric: str = _CASES_METRIC) -> dict[str, float]:
    return run.result.per_query[metric]


class _Texts:
    """What queries and passages say, and which belong together."""

    def __init__(self, collection: Path, first: _Run, runs: Sequence[_Run]) -> None:
        corpus, queries = load_corpus(collection), load_queries(collection)
        self.passages = len(corpus)
        self._corpus, self._places = corpus, judged_places(corpus)
        self._queries = dict(zip(queries["id"], queries["text"], strict=True))
        self._qrels = load_qrels(collection, first.result.split)
        asked = _values(first)
        ranked = {passage for run in runs for passages in run.ranks.values() for passage in passages}
        if asked.keys() - self._queries.keys() or asked.keys() - self._qrels.keys() or ranked - self._places.keys():
            raise InputError(f"{collection} is not the collection of these evaluations; it lacks queries or passages.")

    def query(self, name: str) -> str:
        return shorten(self._queries[name], _LONGEST, placeholder=" ...")

    def passage(self, name: str) -> str:
        if name not in self._places:
            return f"{name}: not in the collection"
        row = self._corpus[self._places[name][0]]
        return shorten(f"{name}: {row['title']} {row['text']}", _LONGEST, placeholder=" ...")

    def relevant(self, query: str) -> dict[str, int]:
        """Relevant passages with their grades."""
        return {passage: grade for passage, grade in self._qrels[query].items() if grade > 0}


def _what(collection: Path, first: _Run, passages: int) -> list[_Block]:
    rows = [
        ("collection", collection.resolve().name),
        ("its content", f"SHA-256 {content_hash(collection)[:16]}"),
        ("passages", f"{passages:,}"),
        ("split", first.result.split),
        ("queries", f"{len(_values(first)):,}"),
        ("baseline", first.name),
    ]
    return [_Heading("What was measured"), _Table(("", ""), rows)]


def _metrics(runs: Sequence[_Run]) -> list[_Block]:
    shown = [metric for metric in (*METRICS, *MORE_METRICS) if all(metric in run.result.metrics for run in runs)]
    rows = [(run.name, *(f"{run.result.metrics[metric]:.4f}" for metric in shown)) for run in runs]
    plotted = [
        {"name": _plain(run.name), **{_title(metric): run.result.metrics[metric] for metric in METRICS}} for run in runs
    ]
    with tempfile.TemporaryDirectory() as folder:
        png = plot_metrics(plotted, Path(folder) / "metrics.png").read_bytes()
    return [
        _Heading("Metrics"),
        "Means over the queries, as trec_eval defines the metrics; fractions, higher is better.",
        _Table(("", *map(_title, shown)), rows),
        _Picture(png, "Metrics of every run"),
    ]


def _differences(first: _Run, others: Sequence[_Run]) -> list[_Block]:
    blocks: list[_Block] = [_Heading(f"Against {first.name}")]
    if not others:
        return [*blocks, "There is no other run to compare."]
    rows = []
    for run in others:
        for metric in METRICS:
            found = compare_paired(_values(run, metric), _values(first, metric))
            interval = f"{found.low:+.4f} to {found.high:+.4f}"
            rows.append((run.name, _title(metric), f"{found.difference:+.4f}", interval, f"{found.p_value:.4f}"))
    return [
        *blocks,
        "Mean differences over the queries, their 95 % bootstrap interval, and the two-sided p-value of the paired "
        "randomisation test (10,000 resamples, so never below 0.0002). The p-values are not corrected for the "
        "number of comparisons.",
        _Table(("", "metric", "difference", "95 % interval", "p"), rows),
        _Picture(_plot_differences(first, others), f"Differences of {_title(_CASES_METRIC)} per query, sorted"),
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
        axes.set_ylabel(f"{_title(_CASES_METRIC)} difference")
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("queries, sorted by difference")
    stream = BytesIO()
    figure.savefig(stream, dpi=144, format="png")
    return stream.getvalue()


def _changes(first: _Run, run: _Run) -> list[tuple[str, float]]:
    """Query and difference, the greatest gain first; ties in the order of the ids."""
    before, after = _values(first), _values(run)
    return sorted(((query, after[query] - before[query]) for query in before), key=lambda pair: (-pair[1], pair[0]))


def _cases(first: _Run, run: _Run, texts: _Texts) -> list[_Block]:
    changes = _changes(first, run)
    gained = [(query, change) for query, change in changes if change > 0][:_CASES]
    lost = [(query, change) for query, change in reversed(changes) if change < 0][:_CASES]
    blocks: list[_Block] = [_Heading(f"Queries of {run.name} against {first.name}")]
    for verb, found in (("gained", gained), ("lost", lost)):
        blocks.append(_Heading(f"Those that {verb} most", level=3))
        blocks.extend(_case(query, change, first, run, texts) for query, change in found)
        if not found:
            blocks.append(f"No query {verb}.")
    return blocks


def _case(query: str, change: float, first: _Run, run: _Run, texts: _Texts) -> _Table:
    relevant = texts.relevant(query)
    ranks = [side.ranks.get(query, {}) for side in (first, run)]
    best = max(relevant, key=lambda passage: (relevant[passage], -min(rank.get(passage, 10**9) for rank in ranks)))
    places = ", ".join(
        f"{side.name} {f'rank {rank[best]}' if best in rank else 'not among its first 100'}"
        for side, rank in zip((first, run), ranks, strict=True)
    )
    rows = [("relevant", f"{texts.passage(best)} ({places})")]
    for side, rank in zip((first, run), ranks, strict=True):
        top = next(iter(rank), None)
        label = "nothing found" if top is None else texts.passage(top)
        rows.append((f"first of {side.name}{', relevant' if top in relevant else ''}", label))
    return _Table((f"{change:+.4f}", f"{query}: {texts.query(query)}"), rows)


def _cost(runs: Sequence[_Run], known: Mapping[str, RunFacts]) -> list[_Block]:
    rows = []
    for run in runs:
        facts = known[run.name]
        shown = (
            (facts.peak_memory, 1e-9, "{:.2f} GB"),
            (facts.passages, 1, "{:,}"),
            (facts.tokens, 1, "{:,}"),
            (facts.bytes_per_passage, 1, "{:,} bytes"),
            (facts.query_seconds, 1000, "{:.1f} ms"),
            (facts.search_seconds, 1000, "{:.1f} ms"),
        )
        cells = [_UNKNOWN if value is None else form.format(unit * value) for value, unit, form in shown]
        rows.append((run.name, f"{run.result.seconds:.1f} s", *cells))
    return [
        _Heading("Cost"),
        "Wall-clock time of the whole evaluation: encoding, search and scoring; memory of the process at its peak. "
        "A query is answered when it is encoded and its first 100 passages are found, one query at a time.",
        _Table(("", "evaluation", "memory", *_COSTS), rows),
    ]


def _origin(runs: Sequence[_Run], known: Mapping[str, RunFacts]) -> list[_Block]:
    here = describe_run()
    rows = [(run.name, *_described(known[run.name].provenance or {})) for run in runs]
    return [
        _Heading("Where the figures come from"),
        "The differences and this page were computed from the runs' own files, as the last row says.",
        _Table(("", "commit", "hardware", "date"), [*rows, ("this report", *_described(here))]),
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


def _title(metric: str) -> str:
    return _TITLES.get(metric, metric.capitalize())


def _plain(name: str) -> str:
    """A name that matplotlib takes for no formula."""
    return name.replace("$", r"\$")


def _as_html(title: str, blocks: Sequence[_Block]) -> str:
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{html.escape(title)}</h1>",
            *map(_block_as_html, blocks),
            "</body></html>\n",
        ]
    )


def _block_as_html(block: _Block) -> str:
    if isinstance(block, _Heading):
        return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, _Picture):
        data = base64.b64encode(block.png).decode("ascii")
        return f'<img alt="{html.escape(block.description)}" src="data:image/png;base64,{data}">'
    if isinstance(block, _Table):
        rows = [_row_as_html(row, "td") for row in block.rows]
        head = [_row_as_html(block.head, "th")] if any(block.head) else []
        return "\n".join(['<div class="wide"><table>', *head, *rows, "</table></div>"])
    return f"<p>{html.escape(block)}</p>"


def _row_as_html(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _as_markdown(title: str, blocks: Sequence[_Block]) -> str:
    written = [_block_as_markdown(block) for block in blocks if not isinstance(block, _Picture)]
    return "\n\n".join([f"# {_escaped(title)}", *written]) + "\n"


def _block_as_markdown(block: str | _Heading | _Table) -> str:
    if isinstance(block, _Heading):
        return f"{'#' * block.level} {_escaped(block.text)}"
    if isinstance(block, _Table):
        rows = [[_escaped(cell) for cell in row] for row in (block.head, *block.rows)]
        rows.insert(1, ["---"] * len(block.head))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return _escaped(block)


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(" ".join(text.split()), quote=False))
