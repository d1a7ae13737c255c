"""What every kind of index would find of one's own passages, how much memory it would take, and how fast it is."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from tqdm.auto import tqdm

from hf_dense.data.collections import load_corpus, load_queries
from hf_dense.errors import InputError
from hf_dense.evaluation.measures import mean_metrics, score_queries
from hf_dense.evaluation.runner import asked_texts, relevant, relevant_qrels
from hf_dense.search.approximate import KINDS, CandidateIndex, check_index_kind
from hf_dense.search.candidates import candidate_texts
from hf_dense.search.dense import Floats, Indices, encode_queries, search
from hf_dense.search.index import SearchIndex

logger = logging.getLogger(__name__)

_DEPTHS: Final = (10, 100)  # passages that are wanted
_TIMED: Final = 100  # questions, at most

Search = Callable[[Floats, int], tuple[Floats, Indices]]


@dataclass(frozen=True)
class KindQuality:
    """What a kind of index finds, and what it takes.

    Attributes:
        kind: of `hf_dense.search.approximate.KINDS`.
        found_10: share of the first 10 passages of the exact search that are among its own first 10, a mean over the
            queries.
        found_100: the same of the first 100.
        ndcg_10: nDCG@10 of a search for 10 passages.
        recall_100: Recall@100 of a search for 100.
        bytes: in memory, per passage.
        milliseconds: per question, asked one by one for 10 passages; the median, without encoding it.
        seconds: to build it from the vectors.
    """

    kind: str
    found_10: float
    found_100: float
    ndcg_10: float
    recall_100: float
    bytes: float
    milliseconds: float
    seconds: float


def compare_kinds(
    index: SearchIndex, collection: str | os.PathLike[str], split: str, kinds: Sequence[str] = ()
) -> list[KindQuality]:
    """Measure kinds of indexes over the vectors of one, whatever its own kind is.

    Args:
        index: of the corpus of the collection.
        collection: whose judged queries are asked.
        split: of the judgements; queries with a relevant passage count.
        kinds: those to be measured beside `exact`; by default all that so many passages allow.

    Returns:
        A row for each kind, `exact` first.

    Raises:
        InputError: an index of hybrid vectors, an unknown kind, one that the passages are too few for, no query with a
            relevant passage, or a relevant passage that the index lacks.
    """
    if index.hybrid is not None:
        raise InputError(f"The index in {index.directory} has hybrid vectors, which have one kind, exact.")
    names = index.passages["id"][:]
    chosen = [kind for kind in kinds or _possible(len(names)) if kind != "exact"]
    for kind in chosen:
        check_index_kind(kind, len(names))
    qrels = relevant_qrels(collection, split)
    asked = asked_texts(relevant(qrels), load_queries(collection), set(names), collection)
    _check_texts(index, collection, {name for passages in relevant(qrels).values() for name in passages})
    vectors = encode_queries(index.reading.apply(index.retriever), list(asked.values()))
    nearest = [search(vectors, index.vectors, depth)[1] for depth in _DEPTHS]
    rows = []
    for kind in tqdm(("exact", *chosen), desc="Kinds", unit=" kinds"):
        find, size, seconds = _open(index, kind)
        few, many = (find(vectors, depth)[1] for depth in _DEPTHS)
        ndcg, recall = (
            mean_metrics(score_queries(qrels, _rankings(list(asked), found, names), [metric]))[metric]
            for found, metric in ((few, "ndcg@10"), (many, "recall@100"))
        )
        shares = _shared(few, nearest[0]), _shared(many, nearest[1])
        size_of_one = size / len(names)
        rows.append(KindQuality(kind, *shares, ndcg, recall, size_of_one, _milliseconds(find, vectors), seconds))
    return rows


def _check_texts(index: SearchIndex, collection: str | os.PathLike[str], wanted: Set[str]) -> None:
    """Warn where passages of an index are others than those of a collection with the same ids, which were judged."""
    judged, indexed = (candidate_texts(corpus, wanted) for corpus in (load_corpus(collection), index.passages))
    if other := sum(indexed[name] != text for name, text in judged.items()):
        logger.warning(
            "%d of %d relevant passages of %s read otherwise in the index, so nDCG@10 and Recall@100 may be wrong.",
            other,
            len(wanted),
            collection,
        )


def _possible(passages: int) -> list[str]:
    """The kinds that so many passages allow."""
    possible = []
    for kind in KINDS:
        try:
            check_index_kind(kind, passages)
        except InputError:
            continue
        possible.append(kind)
    return possible


def _open(index: SearchIndex, kind: str) -> tuple[Search, int, float]:
    """A search of one kind, the bytes that it takes in memory, and the seconds that it took to build."""
    if kind == "exact":
        return lambda queries, k: search(queries, index.vectors, k), 0, 0.0
    started = time.perf_counter()
    candidates = CandidateIndex.build(index.vectors, kind)
    seconds = time.perf_counter() - started
    with TemporaryDirectory() as folder:
        candidates.save(Path(folder))
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    return lambda queries, k: candidates.search(queries, k, index.vectors), size, seconds


def _rankings(queries: Sequence[str], rows: Indices, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Query id -> passage id -> score that falls with the rank."""
    return {
        query: {names[row]: float(-rank) for rank, row in enumerate(found) if row >= 0}
        for query, found in zip(queries, rows.tolist(), strict=True)
    }


def _shared(own: Indices, exact: Indices) -> float:
    """(queries, k) rows each: the share of the exact ones that were found, a mean over the queries."""
    return float(np.mean([np.isin(wanted, found).mean() for found, wanted in zip(own, exact, strict=True)]))


def _milliseconds(find: Search, vectors: Floats) -> float:
    """The median of single questions."""
    times = []
    for start in range(min(_TIMED, len(vectors))):
        started = time.perf_counter()
        find(vectors[start : start + 1], _DEPTHS[0])
        times.append(time.perf_counter() - started)
    return 1000 * float(np.median(times))
