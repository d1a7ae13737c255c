"""Given candidates, ordered by what a model says of each with its query."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import cast

import numpy as np
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.data.passage_texts import PassageTexts
from hf_dense.hub.loading import is_cross_encoder, load_retriever
from hf_dense.search.cross_encoder import load_reranker, rerank
from hf_dense.search.dense import encode_corpus, encode_queries


def candidate_texts(corpus: Dataset, wanted: Collection[str]) -> dict[str, str]:
    """Title + " " + text of some passages by id; those that the corpus lacks are left out."""
    rows = [row for row, passage in enumerate(corpus["id"][:]) if passage in wanted]
    chosen = corpus.select(rows)
    return dict(zip(chosen["id"], PassageTexts(chosen), strict=True))


def load_ranker(model: str | Path | CrossEncoder | SentenceTransformer) -> CrossEncoder | SentenceTransformer:
    """A cross-encoder where a directory or Hub id is one, else a retriever; a loaded model is passed through.

    Raises:
        InputError: nothing to load.
    """
    return load_reranker(model) if is_cross_encoder(model) else load_retriever(cast("str | Path", model))


def rank_candidates(
    ranker: CrossEncoder | SentenceTransformer,
    queries: Mapping[str, str],
    candidates: Mapping[str, Iterable[str]],
    texts: Mapping[str, str],
    folder: Path,
    batch_size: int = 64,
) -> dict[str, dict[str, float]]:
    """Score the candidates of every query with a cross-encoder, or by a retriever's similarities.

    Args:
        ranker: of `load_ranker`.
        queries: texts by id.
        candidates: ids of passages by the id of their query.
        texts: of passages by id, the title first where there is one.
        folder: receives the vectors of the passages, for a retriever, as `encode_corpus` has it.
        batch_size: pairs, or texts, read at once.

    Returns:
        Query id -> passage id -> score.

    Raises:
        InputError: a query or passage has no text, or a score is no number.
    """
    if not isinstance(ranker, SentenceTransformer):
        listed = {query: list(passages) for query, passages in candidates.items()}
        return rerank(ranker, queries, listed, texts, batch_size)
    vectors = encode_corpus(ranker, list(texts.values()), folder, batch_size)
    rows = {passage: at for at, passage in enumerate(texts)}
    asked = list(dict.fromkeys(queries[query] for query in candidates))  # the same words may be asked more than once
    at_of = {text: at for at, text in enumerate(asked)}
    encoded = encode_queries(ranker, asked, batch_size)
    found = {}
    for query, passages in candidates.items():
        names = list(passages)
        scores = vectors.take(np.array([rows[passage] for passage in names])) @ encoded[at_of[queries[query]]]
        found[query] = dict(zip(names, scores.tolist(), strict=True))
    return found
