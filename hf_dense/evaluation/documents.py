"""Retrieval of documents by their passages: a document is as good as the best of them (MaxP)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from datasets import Dataset

from hf_dense.data.collections import load_corpus, load_queries
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.evaluation.measures import score_queries
from hf_dense.evaluation.runner import (
    Found,
    Protocol,
    Rankings,
    asked_texts,
    collection_source,
    relevant,
    relevant_qrels,
)
from hf_dense.search.first_stage import Search, open_search

DEPTH: Final = 100  # documents ranked for each query
METRICS: Final = ("mrr@100", "recall@100", "ndcg@10")


class Documents(Protocol):
    """Documents that a corpus is cut from, ranked by their best passages.

    Source: MaxP of Dai and Callan (2019), in retrieval as ANCE has it (Xiong et al., 2021); FirstP where every
    document is one passage of the corpus.

    Args:
        collection: its judgements name documents: the column `document` of the corpus, or `id` where it has none;
            what is searched is title + " " + text of every passage.
        split: of the judgements; queries with a relevant document are asked.

    Raises:
        InputError: no query has a relevant document, one is empty, or judgements name an unknown query or document.
    """

    name = "documents"

    def __init__(self, collection: str | os.PathLike[str], split: str) -> None:
        self.corpus, queries = load_corpus(collection), load_queries(collection)
        self.documents = _documents(self.corpus)
        self.qrels = relevant_qrels(collection, split, "document")
        asked = asked_texts(relevant(self.qrels), queries, {*self.documents}, collection)
        super().__init__(split, collection_source(collection), asked, len(self.corpus))

    def rank(self, model: Any, folder: Path, batch_size: int) -> Found:
        """The 100 best documents of each query."""
        search = open_search(model, PassageTexts(self.corpus), folder, batch_size)
        return Found(rank_documents(search, self.queries, self.documents), search)

    def passages_of(self, names: Iterable[str]) -> dict[str, list[str]]:
        """The passages of each document."""
        found: dict[str, list[str]] = {name: [] for name in names}
        for document, passage in zip(self.documents, self.corpus["id"][:], strict=True):
            if document in found:
                found[document].append(passage)
        return found

    def score(self, rankings: Rankings) -> dict[str, dict[str, float]]:
        """`mrr@100`, `recall@100` and `ndcg@10` of documents: fractions."""
        return score_queries(self.qrels, rankings, METRICS)


def rank_documents(search: Search, queries: Mapping[str, str], documents: Sequence[str]) -> dict[str, dict[str, float]]:
    """Find the 100 best documents of each query, exactly, however many passages that takes.

    Args:
        search: of passages.
        queries: texts by id.
        documents: the document of each passage.

    Returns:
        Query id -> document id -> score of its best passage; fewer documents where search finds no more.
    """
    rankings: dict[str, dict[str, float]] = {}
    wanted, hits = list(queries), 2 * DEPTH
    while wanted:
        scores, indices = search([queries[query] for query in wanted], hits)
        deeper = []
        for query, row, found in zip(wanted, scores.tolist(), indices.tolist(), strict=True):
            best: dict[str, float] = {}
            for score, index in zip(row, found, strict=True):
                if index >= 0:
                    best.setdefault(documents[index], score)  # the first passage of a document is its best
            if len(best) < DEPTH and hits < len(documents) and found[-1] >= 0:
                deeper.append(query)
            rankings[query] = dict(list(best.items())[:DEPTH])
        wanted, hits = deeper, 2 * hits
    return rankings


def _documents(corpus: Dataset) -> list[str]:
    """The document of each passage; one that was not cut from a document is its own."""
    names: list[str] = corpus["id"][:]
    if "document" not in corpus.column_names:
        return names
    return [document or name for document, name in zip(corpus["document"], names, strict=True)]
