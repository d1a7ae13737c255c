"""Queries that one retriever answers better, or worse, than another, with the texts that both found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2
from pathlib import Path
from textwrap import shorten
from typing import Final

from hf_dense.data.answers import has_answer
from hf_dense.data.collections import judged_indices, load_answers, load_corpus, load_qrels, query_texts
from hf_dense.data.passage_texts import passage_text
from hf_dense.errors import InputError
from hf_dense.evaluation.page import Block, Heading, Table
from hf_dense.evaluation.result import RANKINGS_FILE, RetrievalResult, load_rankings
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.places import Source

_CASES: Final = 5
_DEPTH: Final = 100  # ranks that are told of
_LONGEST: Final = 400  # characters of a text that are shown
_GOES_ON: Final = " ..."


@dataclass(frozen=True)
class Run:
    """One evaluation with its rankings.

    Attributes:
        name: that it is shown by.
        result: its figures.
        ranks: query id -> passage id -> rank, the best first.
    """

    name: str
    result: RetrievalResult
    ranks: Mapping[str, Mapping[str, int]]

    @property
    def metric(self) -> str:
        """The one that queries are compared by."""
        return "ndcg@10" if "ndcg@10" in self.result.metrics else next(iter(self.result.metrics))


def load_run(name: str, directory: Path, collection: Source) -> Run:
    """An evaluation, found to be whole and of this collection.

    Raises:
        InputError: it is not.
    """
    result, manifest = RetrievalResult.load(directory), Manifest.load(directory)
    if manifest is None or not (directory / RANKINGS_FILE).is_file():
        raise InputError(f"{directory} is no whole evaluation; evaluate {name} again.")
    if manifest.made_from.get("collection") != collection.fingerprint:
        measured = manifest.sources.get("collection", "nothing that is known")
        raise InputError(
            f"{collection.name} is not the collection of the evaluation {name}, or it was changed since: that was "
            f"measured on {measured}; name that one, or evaluate again."
        )
    found = load_rankings(directory, _DEPTH).items()
    return Run(name, result, {query: {name: at for at, name in enumerate(best, 1)} for query, best in found})


def values_of(run: Run, metric: str | None = None) -> dict[str, float]:
    """Query -> value of a metric, by default the one that queries are compared by."""
    return run.result.per_query[metric or run.metric]


class Texts:
    """What queries and passages say, and which belong together."""

    def __init__(self, collection: Path, first: Run) -> None:
        corpus = load_corpus(collection)
        self.passages = len(corpus)
        self._corpus, self._indices = corpus, judged_indices(corpus)
        self._queries = query_texts(collection)
        self._answers = load_answers(collection) if first.metric.startswith("answer") else None
        self._qrels = {} if self._answers else load_qrels(collection, first.result.split)

    def query(self, name: str) -> str:
        """The text of a query, shortened."""
        return shortened(self._queries[name])

    def passage(self, name: str) -> str:
        """Id, title and text of a passage, shortened."""
        row = self._corpus[self._indices[name][0]]
        return shortened(f"{name}: {passage_text(row['title'], row['text'])}")

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


def query_changes(first: Run, run: Run) -> list[tuple[str, float]]:
    """Query and difference, the greatest gain first; ties in the order of the ids."""
    before, after = values_of(first), values_of(run)
    return sorted(((query, after[query] - before[query]) for query in before), key=lambda pair: (-pair[1], pair[0]))


def cases(first: Run, run: Run, texts: Texts) -> list[Block]:
    """The queries that gained and lost most from `first` to `run`, as tables."""
    changes = query_changes(first, run)
    gained = [(query, change) for query, change in changes if change > 0][:_CASES]
    lost = [(query, change) for query, change in reversed(changes) if change < 0][:_CASES]
    blocks: list[Block] = [Heading(f"Queries of {run.name} against {first.name}")]
    for verb, found in (("gained", gained), ("lost", lost)):
        blocks.append(Heading(f"Those that {verb} most", level=3))
        blocks.extend(_case(query, change, first, run, texts) for query, change in found)
        if not found:
            blocks.append(f"No query {verb}.")
    return blocks


def _case(query: str, change: float, first: Run, run: Run, texts: Texts) -> Table:
    relevant = texts.relevant(query)
    ranks = [side.ranks.get(query, {}) for side in (first, run)]
    depth = int(first.metric.partition("@")[2] or _DEPTH)

    def tells(passage: str) -> tuple[float, int, int]:
        """How much of the difference is due to a passage; then its grade, and how early it is found."""
        places = [rank.get(passage, 10**9) for rank in ranks]
        before, after = (1 / log2(place + 1) if place <= depth else 0.0 for place in places)
        return relevant[passage] * abs(after - before), relevant[passage], -min(places)

    best = max(relevant, key=tells, default=None)
    places = ", ".join(
        f"{side.name} {f'rank {rank[best]}' if best is not None and best in rank else f'not among its first {_DEPTH}'}"
        for side, rank in zip((first, run), ranks, strict=True)
    )
    rows = [("relevant" if best else "answer", texts.wanted(query, best) + (f" ({places})" if best else ""))]
    for side, rank in zip((first, run), ranks, strict=True):
        top = next(iter(rank), None)
        shown = "nothing found" if top is None else texts.passage(top)
        right = top is not None and texts.is_relevant(query, top)
        rows.append((f"first of {side.name}{', relevant' if right else ''}", shown))
    return Table((f"{change:+z.4f}", f"{query}: {texts.query(query)}"), rows)


def shortened(text: str) -> str:
    """A text with single spaces, cut behind a word where it is too long, or inside one that is most of it (Chinese).

    >>> shortened("退货" * 400) == "退货" * 198 + " ..."
    True
    """
    whole = " ".join(text.split())
    cut = shorten(whole, _LONGEST, placeholder=_GOES_ON)
    if min(len(whole), _LONGEST // 2) <= len(cut):
        return cut
    return whole[: _LONGEST - len(_GOES_ON)] + _GOES_ON
