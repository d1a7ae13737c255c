"""Exact search over a corpus, dense, hybrid or lexical: what every evaluation of a retriever starts with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from sentence_transformers import SentenceTransformer

from hf_dense.errors import InputError
from hf_dense.hub.hybrid import hybrid_head
from hf_dense.hub.loading import load_retriever
from hf_dense.search.bm25 import LexicalIndex
from hf_dense.search.dense import Floats, Indices, Known, encode_corpus, encode_queries, searcher
from hf_dense.search.hybrid import FACTS_FILE, HybridIndex, write_hybrid_vectors

BM25: Final = "bm25"
HYBRID: Final = "hybrid"  # folder of hybrid vectors
QUERIES: Final = 1_000  # hybrid vectors at once: 120 MB

Search = Callable[[Sequence[str], int], tuple[Floats, Indices]]


def open_search(model: str | Path | SentenceTransformer, texts: Sequence[str], folder: Path, batch_size: int) -> Search:
    """Prepare an exact search of texts.

    Args:
        model: an exported directory, a Hub id, a loaded model, or `"bm25"`.
        texts: title + " " + text of each passage.
        folder: receives vectors or index, as `encode_corpus` has it; it must be there while one searches.
        batch_size: texts encoded at once.

    Returns:
        Given queries and a number k of hits, finds their (queries, k) scores, best first, and indices in `texts`, fewer
        columns where there are fewer texts. An index is -1 where BM25 finds no word of the query in any more text.

    Raises:
        InputError: nothing to load.
    """
    if model == BM25:
        return LexicalIndex.build(texts, folder / BM25).find
    retriever = load_retriever(model)
    if hybrid_head(retriever):
        return hybrid_searcher(retriever, hybrid_vectors(retriever, texts, folder, batch_size), batch_size)
    find = searcher(encode_corpus(retriever, texts, folder, batch_size))
    return lambda queries, k: find(encode_queries(retriever, queries, batch_size), k)


def by_id(
    queries: Iterable[str], names: Sequence[str], scores: Floats, indices: Indices
) -> dict[str, dict[str, float]]:
    """What a search found, as rankings.

    Args:
        queries: ids.
        names: ids of the texts.
        scores, indices: (queries, k) of a `Search`.

    Returns:
        Query id -> id of a text -> score, best first.
    """
    return {
        query: {names[index]: score for index, score in zip(found, row, strict=True) if index >= 0}
        for query, row, found in zip(queries, scores.tolist(), indices.tolist(), strict=True)
    }


def hybrid_searcher(retriever: SentenceTransformer, index: HybridIndex, batch_size: int) -> Search:
    """A search among hybrid vectors, as `open_search` gives it, with the retriever that made them."""

    def find(queries: Sequence[str], k: int) -> tuple[Floats, Indices]:
        found = [
            index.search(retriever.encode_query(list(part), batch_size=batch_size, show_progress_bar=False), k)
            for part in (queries[start : start + QUERIES] for start in range(0, len(queries), QUERIES))
        ]
        scores, indices = zip(*found, strict=True)
        return np.concatenate(scores), np.concatenate(indices)

    return find


def hybrid_vectors(
    retriever: SentenceTransformer,
    texts: Sequence[str],
    folder: Path,
    batch_size: int,
    known: Known[HybridIndex] | None = None,
) -> HybridIndex:
    """The hybrid vectors of texts, sparse, encoded once in a folder.

    Args:
        known: vectors that are copied; only the other texts are encoded. The others are those of `open_search`.
    """
    place = folder / HYBRID
    if not (place / FACTS_FILE).is_file():
        place.mkdir(parents=True, exist_ok=True)
        write_hybrid_vectors(retriever, texts, place, batch_size, known)
    return HybridIndex.load(place)


def check_hybrid_kind(retriever: SentenceTransformer, kind: str) -> None:
    """Raise `InputError` where vectors are hybrid and a kind of search is asked for that holds dense ones alone."""
    if hybrid_head(retriever) and kind != "exact":
        raise InputError(f"Hybrid vectors are searched exactly, not by {kind!r}; leave the kind out.")
