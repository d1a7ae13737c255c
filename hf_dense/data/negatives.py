"""Lexical negatives: what BM25 finds for a query and nobody judged relevant."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Final

import bm25s
import numpy as np
import pyarrow as pa
import Stemmer
from datasets import Dataset
from numpy.typing import NDArray
from pyarrow import parquet
from tqdm.auto import tqdm

from hf_dense.data.cards import write_card
from hf_dense.data.collections import judged_places, load_corpus, load_qrels, load_queries
from hf_dense.data.duplicates import exact_hashes, near_hashes
from hf_dense.data.schemas import TRAINING
from hf_dense.errors import InputError
from hf_dense.files import atomic_directory
from hf_dense.replacing import check_replaceable

DEPTH: Final = 200
_SPARE = 50  # hits read beyond the depth, for those that are left out
_QUERIES = 2000  # searched at once


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
    check_replaceable(out, marker="README.md")
    if depth < 1:
        raise InputError(f"depth is {depth}; ask for at least one negative.")
    corpus, queries, qrels = load_corpus(dataset), load_queries(dataset), load_qrels(dataset, split)
    texts = _texts(corpus)
    words = dict(zip(queries["id"], queries["text"], strict=True))
    positives = _positives(qrels, words, judged_places(corpus), split)
    forbidden = _Forbidden(texts)
    counts: Counter[str] = Counter()
    ids = corpus["id"][:]
    target = Path(out)
    with atomic_directory(target) as work, tempfile.TemporaryDirectory() as scratch:
        index = LexicalIndex.build(texts, Path(scratch))
        (work / "negatives").mkdir()
        with parquet.ParquetWriter(work / "negatives" / f"{split}.parquet", TRAINING.arrow_schema) as writer:
            names = list(positives)
            for start in tqdm(range(0, len(names), _QUERIES), desc="Searching", unit=f"x{_QUERIES} queries"):
                part = names[start : start + _QUERIES]
                most = max(sum(map(len, positives[name])) for name in part)
                hits = index.search([words[name] for name in part], depth + most + _SPARE)
                rows = []
                for name, found, scores in zip(part, *hits, strict=True):
                    kept = _kept(found, forbidden.around(chain(*positives[name])), depth, counts)
                    rows.append(
                        {
                            "query_id": name,
                            "query": words[name],
                            "positives": [ids[places[0]] for places in positives[name]],
                            "negatives": [ids[found[at]] for at in kept],
                            "positive_scores": [],
                            "negative_scores": [float(scores[at]) for at in kept],
                        }
                    )
                writer.write_table(pa.Table.from_pylist(rows, schema=TRAINING.arrow_schema))
        counts["queries"] = len(positives)
        write_card(
            work,
            title=f"BM25 negatives of {Path(dataset).name}",
            about=f"For every judged query of the split {split} the {depth} passages that BM25 (English stop words and "
            "stemmer, title and text) ranks highest, without its positives and passages equal or nearly equal to them.",
            columns={
                "query_id": "id of the query",
                "query": "its text",
                "positives": "ids of the relevant passages",
                "negatives": "ids of the negatives, best first",
                "positive_scores": "empty",
                "negative_scores": "BM25 scores of the negatives",
            },
            counts=dict(sorted(counts.items())),
            rows=counts["queries"],
            source=str(dataset),
            licence=licence,
            command=command,
            configs={split: f"negatives/{split}.parquet"},
        )
    return target


def _kept(found: NDArray[np.int64], banned: set[int], depth: int, counts: Counter[str]) -> list[int]:
    """Ranks of the hits that are negatives, and what was left out, counted."""
    ranks = [rank for rank, place in enumerate(found) if place not in banned]
    counts["hits left out"] += len(found) - len(ranks)
    counts["negatives"] += len(ranks[:depth])
    counts["queries with fewer negatives than asked"] += len(ranks) < depth
    return ranks[:depth]


class LexicalIndex:
    """BM25 over texts, its index on disk and mapped into memory."""

    def __init__(self, retriever: bm25s.BM25, size: int) -> None:
        self.retriever = retriever
        self.size = size

    @classmethod
    def build(cls, texts: Iterable[str], folder: Path) -> LexicalIndex:
        """Index texts, in `folder`."""
        tokens = bm25s.tokenize(list(texts), stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
        retriever = bm25s.BM25()
        retriever.index(tokens, show_progress=False)
        retriever.save(folder, show_progress=False)
        size = int(retriever.scores["num_docs"])
        return cls(bm25s.BM25.load(folder, mmap=True), size)

    def search(self, queries: list[str], depth: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """(queries, depth) places of the best texts, best first, and their scores."""
        stemmer = Stemmer.Stemmer("english")
        tokens = bm25s.tokenize(queries, stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)
        places, scores = self.retriever.retrieve(
            tokens, k=min(depth, self.size), show_progress=False, n_threads=os.cpu_count() or 1
        )
        return places, scores


class _Forbidden:
    """Passages that are no negatives of a query: its positives and what says the same."""

    def __init__(self, texts: list[str]) -> None:
        parts = [texts[start : start + 2000] for start in range(0, len(texts), 2000)]
        exact = np.concatenate([exact_hashes(part) for part in parts])
        self.marks = np.column_stack([exact, np.concatenate([near_hashes(part) for part in parts])])
        self.order = np.argsort(self.marks, axis=0, kind="stable")
        self.ordered = np.take_along_axis(self.marks, self.order, axis=0)

    def around(self, places: Iterable[int]) -> set[int]:
        """The places themselves and those of equal or nearly equal passages."""
        found = set(places)
        for place in tuple(found):
            for column, mark in enumerate(self.marks[place]):
                start, end = (int(np.searchsorted(self.ordered[:, column], mark, side)) for side in ("left", "right"))
                found.update(self.order[start:end, column].tolist())
        return found


def _texts(corpus: Dataset) -> list[str]:
    return [f"{title} {text}".strip() for title, text in zip(corpus["title"], corpus["text"], strict=True)]


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
