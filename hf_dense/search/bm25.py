"""BM25: a lexical index of passages, with English stop words and stemmer."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import bm25s
import numpy as np
import Stemmer

from hf_dense.search.dense import Floats, Indices
from hf_dense.storage.arrays import check_array


class LexicalIndex:
    """BM25 over texts, its index on disk and mapped into memory."""

    def __init__(self, retriever: bm25s.BM25, size: int) -> None:
        self.retriever = retriever
        self.size = size

    @classmethod
    def build(cls, texts: Iterable[str], folder: Path) -> LexicalIndex:
        """Index texts, in `folder`."""
        tokens = bm25s.tokenize(list(texts), stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
        if not tokens.vocab:  # no text has a word, which bm25s cannot index: each has one that nobody asks for
            tokens = tokens._replace(ids=[[0]] * len(tokens.ids), vocab={"": 0})
        retriever = bm25s.BM25()
        retriever.index(tokens, show_progress=False)
        retriever.save(folder, show_progress=False)
        for array in Path(folder).glob("*.npy"):
            check_array(array)
        return cls.load(folder)

    @classmethod
    def load(cls, folder: Path) -> LexicalIndex:
        """Open what `build` wrote."""
        retriever = bm25s.BM25.load(folder, mmap=True)
        return cls(retriever, int(retriever.scores["num_docs"]))

    def search(self, queries: list[str], depth: int) -> tuple[Floats, Indices]:
        """(queries, depth) scores of the best texts, best first, and their indices."""
        indices, scores = self.retriever.retrieve(
            _words(queries), k=min(depth, self.size), show_progress=False, n_threads=os.cpu_count() or 1
        )
        return scores, indices

    def scores(self, query: str, indices: Indices) -> Floats:
        """(indices,) scores of some texts, 0 where they share no word with the query."""
        (words,) = _words([query])
        found: Floats = self.retriever.get_scores(words)[indices] if words else np.zeros(len(indices), np.float32)
        return found


def _words(queries: list[str]) -> list[list[str]]:
    """The words of queries as the index knows them."""
    stemmer = Stemmer.Stemmer("english")
    words: list[list[str]] = bm25s.tokenize(
        queries, stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False
    )
    return words
