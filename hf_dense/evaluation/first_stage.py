"""Exact search over a corpus, dense or lexical, for evaluations that need more than a ranking of passages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from hf_dense.data.negatives import LexicalIndex
from hf_dense.evaluation.retrieval import BM25
from hf_dense.hub.loading import load_retriever
from hf_dense.vectors import Floats, Places, encode_corpus, encode_queries, searcher

Search = Callable[[Sequence[str], int], tuple[Floats, Places]]


def open_search(model: str | Path | SentenceTransformer, texts: Sequence[str], folder: Path, batch_size: int) -> Search:
    """Prepare an exact search of texts.

    Args:
        model: an exported directory, a Hub id, a loaded model, or `"bm25"`.
        texts: title + " " + text of each passage.
        folder: receives vectors or index; it must be there while one searches.
        batch_size: texts encoded at once.

    Returns:
        Given queries and a number k of hits, finds their (queries, k) scores, best first, and places in `texts`, fewer
        columns where there are fewer texts. A place is -1 where BM25 finds no word of the query in any more text.

    Raises:
        InputError: nothing to load, or `folder` holds the vectors of another model or of other texts.
    """
    if model == BM25:
        index = LexicalIndex.build(texts, folder / BM25)

        def find_words(queries: Sequence[str], k: int) -> tuple[Floats, Places]:
            places, scores = index.search(list(queries), k)
            return scores, np.where(scores > 0, places, -1)

        return find_words
    retriever = load_retriever(model)
    find = searcher(encode_corpus(retriever, texts, folder, batch_size))
    return lambda queries, k: find(encode_queries(retriever, queries, batch_size), k)


def passage_texts(corpus: Dataset) -> list[str]:
    """What is searched of each passage: title + " " + text."""
    return [f"{title} {text}".strip() for title, text in zip(corpus["title"], corpus["text"], strict=True)]
