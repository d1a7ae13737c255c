"""Training lists: what a search finds for a query and nobody judged relevant, here by BM25."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet
from tqdm.auto import tqdm

from hf_dense.data.cards import write_card
from hf_dense.data.collections import judged_places, load_corpus, load_qrels, load_queries
from hf_dense.data.duplicates import exact_hashes, near_hashes
from hf_dense.data.schemas import TRAINING
from hf_dense.errors import InputError
from hf_dense.search.bm25 import LexicalIndex
from hf_dense.storage.legacy import atomic_directory, check_replaceable

DEPTH: Final = 200
SPARE: Final = 50  # hits read beyond the depth, for those that are left out
_QUERIES = 2000  # searched at once
_ROWS = 1000  # written at once

Places = NDArray[np.int64]
Scores = NDArray[np.float32]
Search = Callable[[list[str], int], tuple[Places, Scores]]
Filter = Callable[[str, Places, Scores], NDArray[np.bool_]]


@dataclass(frozen=True)
class Judged:
    """A collection with the relevant passages of its queries.

    Attributes:
        split: of the judgements.
        ids: of the passages.
        texts: title + " " + text of each passage.
        queries: query id -> text.
        positives: query id -> the places of each relevant passage, or of all that a relevant document was cut into;
            of queries that have one.
    """

    split: str
    ids: list[str]
    texts: list[str]
    queries: dict[str, str]
    positives: dict[str, list[list[int]]]


@dataclass(frozen=True)
class Origin:
    """Where lists come from, for their card (see `write_card`); `scores` says what those of the negatives are."""

    title: str
    about: str
    scores: str
    source: str
    licence: str
    command: str


def build_lexical_negatives(
    dataset: str | os.PathLike[str],
    out: str | os.PathLike[str],
    split: str = "train",
    depth: int = DEPTH,
    licence: str = "other",
    command: str = "",
) -> Path:
    """Write a training list for every judged query: its positives, and what BM25 ranks highest among the rest.

    Args:
        dataset: a collection (see `hf_dense.data.collections`).
        out: holds `negatives/<split>.parquet` with the columns of `TRAINING`, and a card.
        split: of the judgements.
        depth: greatest number of negatives of a query. Positives, passages with the words of one, and passages nearly
            equal to one are none.
        licence: of the texts, for the card.
        command: what builds it, for the card.

    Returns:
        `out` as a path.

    Raises:
        InputError: the collection cannot be read, or judgements name unknown queries or passages.
    """
    judged = load_judged(dataset, out, split, depth)
    origin = Origin(
        title=f"BM25 negatives of {Path(dataset).name}",
        about=f"For every judged query of the split {split} the {depth} passages that BM25 (English stop words and "
        "stemmer, title and text) ranks highest, without its positives and passages equal or nearly equal to them.",
        scores="BM25 scores of the negatives",
        source=str(dataset),
        licence=licence,
        command=command,
    )
    with tempfile.TemporaryDirectory() as scratch:
        index = LexicalIndex.build(judged.texts, Path(scratch))

        def search(names: list[str], hits: int) -> tuple[Places, Scores]:
            return index.search([judged.queries[name] for name in names], hits)

        return write_lists(out, judged, depth, search, origin, together=_QUERIES)


def load_judged(dataset: str | os.PathLike[str], out: str | os.PathLike[str], split: str, depth: int) -> Judged:
    """Read what lists are made of, for lists of `depth` negatives in `out`.

    Raises:
        InputError: the collection cannot be read, judgements name unknown queries or passages, no negatives are asked
            for, or `out` holds something else.
    """
    check_replaceable(out, marker="README.md")
    if depth < 1:
        raise InputError(f"depth is {depth}; ask for at least one negative.")
    corpus, queries, qrels = load_corpus(dataset), load_queries(dataset), load_qrels(dataset, split)
    rows = corpus[:]
    texts = [f"{title} {text}".strip() for title, text in zip(rows["title"], rows["text"], strict=True)]
    words = dict(zip(queries["id"][:], queries["text"][:], strict=True))
    return Judged(split, rows["id"], texts, words, _positives(qrels, words, judged_places(corpus), split))


def write_lists(
    out: str | os.PathLike[str],
    judged: Judged,
    depth: int,
    search: Search,
    origin: Origin,
    filters: Mapping[str, Filter] | None = None,
    *,
    spare: int = SPARE,
    together: int,
) -> Path:
    """Write the training lists of all judged queries, and a card that counts what was left out, and why.

    Args:
        out: holds `negatives/<split>.parquet`, complete or not at all.
        depth: greatest number of negatives of a query.
        search: given ids of queries and a number of hits, finds the (queries, hits) places of passages, best first
            and -1 for none, and their scores.
        origin: for the card.
        filters: named by what they leave out; given the id of a query and the (hits,) places and scores that are left,
            one tells which to keep. Positives and passages equal or nearly equal to one are left out before.
        spare: hits read beyond the depth and the positives, for those that are left out.
        together: queries searched at once.

    Returns:
        `out` as a path.
    """
    target, names = Path(out), list(judged.positives)
    counts = Counter(queries=len(names))
    filters = {"positives and their copies": _Forbidden(judged).other, **(filters or {})}
    file = Path("negatives") / f"{judged.split}.parquet"
    with atomic_directory(target) as work:
        (work / file).parent.mkdir()
        with (
            parquet.ParquetWriter(work / file, TRAINING.arrow_schema) as writer,
            tqdm(total=len(names), desc="Searching", unit=" queries") as bar,
        ):
            for start in range(0, len(names), together):
                part = names[start : start + together]
                most = max(sum(map(len, judged.positives[name])) for name in part)
                found = zip(part, *search(part, depth + most + spare), strict=True)
                while rows := [_row(judged, *hits, filters, depth, counts) for hits in islice(found, _ROWS)]:
                    writer.write_table(pa.Table.from_pylist(rows, schema=TRAINING.arrow_schema))
                    bar.update(len(rows))
        write_card(
            work,
            title=origin.title,
            about=origin.about,
            columns={
                "query_id": "id of the query",
                "query": "its text",
                "positives": "ids of the relevant passages",
                "negatives": "ids of the negatives, best first",
                "positive_scores": "empty",
                "negative_scores": origin.scores,
            },
            counts=dict(sorted(counts.items())),
            rows=len(names),
            source=origin.source,
            licence=origin.licence,
            command=origin.command,
            configs={judged.split: file.as_posix()},
        )
    return target


def _row(
    judged: Judged,
    name: str,
    places: Places,
    scores: Scores,
    filters: Mapping[str, Filter],
    depth: int,
    counts: Counter[str],
) -> dict[str, Any]:
    """The list of a query, and what was left out, counted."""
    there = places >= 0
    places, scores = places[there], scores[there]
    for reason, keep in filters.items():
        kept = keep(name, places, scores)
        counts[f"hits left out: {reason}"] += len(places) - int(kept.sum())
        places, scores = places[kept], scores[kept]
    counts["negatives"] += len(places[:depth])
    counts["queries with fewer negatives than asked"] += len(places) < depth
    return {
        "query_id": name,
        "query": judged.queries[name],
        "positives": [judged.ids[parts[0]] for parts in judged.positives[name]],
        "negatives": [judged.ids[place] for place in places[:depth]],
        "positive_scores": [],
        "negative_scores": scores[:depth].tolist(),
    }


class _Forbidden:
    """Passages that are no negatives of a query: its positives and what says the same."""

    def __init__(self, judged: Judged) -> None:
        texts = judged.texts
        parts = [texts[start : start + 2000] for start in range(0, len(texts), 2000)]
        exact = np.concatenate([exact_hashes(part) for part in parts])
        near = np.concatenate([near_hashes(part) for part in parts])
        self.positives = judged.positives
        self.marks = np.vstack([exact, near.T])  # (hashes, passages): searched hash by hash
        self.order = np.argsort(self.marks, axis=1, kind="stable")
        self.ordered = np.take_along_axis(self.marks, self.order, axis=1)

    def other(self, name: str, places: Places, scores: Scores) -> NDArray[np.bool_]:
        """(hits,) which passages are neither positives of a query nor equal or nearly equal to one."""
        found = set(chain(*self.positives[name]))
        for place in tuple(found):
            for mark, order, ordered in zip(self.marks[:, place], self.order, self.ordered, strict=True):
                start, end = (int(np.searchsorted(ordered, mark, side)) for side in ("left", "right"))
                found.update(order[start:end].tolist())
        return ~np.isin(places, list(found))


def _positives(
    qrels: dict[str, dict[str, int]], words: dict[str, str], places: dict[str, list[int]], split: str
) -> dict[str, list[list[int]]]:
    """Query id -> the places of each of its relevant passages or documents, for queries that have one."""
    found: dict[str, list[list[int]]] = {}
    for query, graded in qrels.items():
        relevant = [passage for passage, grade in graded.items() if grade > 0]
        if query not in words:
            raise InputError(f"The judgements of split {split!r} name the query {query!r}; the queries lack it.")
        unknown = [passage for passage in relevant if passage not in places]
        if unknown:
            raise InputError(
                f"The judgements of split {split!r} name the passage {unknown[0]!r} for query {query!r}; the corpus "
                "lacks it."
            )
        if relevant:
            found[query] = [places[passage] for passage in relevant]
    if not found:
        raise InputError(f"No query of split {split!r} has a relevant passage.")
    return found
