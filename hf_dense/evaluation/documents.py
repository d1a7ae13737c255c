"""Retrieval of documents by their passages: a document is as good as the best of them (MaxP)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytrec_eval
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from hf_dense.data.collections import load_corpus, load_qrels, load_queries
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.errors import InputError
from hf_dense.evaluation.costs import CostMeter
from hf_dense.evaluation.measures import mean_metrics
from hf_dense.evaluation.result import RESULT_FILE, RetrievalResult
from hf_dense.evaluation.retrieval import check_asked
from hf_dense.hub.loading import load_retriever
from hf_dense.search.first_stage import BM25, Search, open_search
from hf_dense.storage.legacy import atomic_directory, check_replaceable

DEPTH: Final = 100  # documents ranked for each query
_MEASURES: Final = {"mrr@100": "recip_rank", "recall@100": "recall_100", "ndcg@10": "ndcg_cut_10"}


def evaluate_documents(
    model: str | Path | SentenceTransformer,
    collection: str | Path,
    split: str,
    *,
    name: str,
    output_dir: str | Path,
    batch_size: int = 64,
) -> RetrievalResult:
    """Rank the documents that a corpus is cut from by their best passages, and measure that.

    Source: MaxP of Dai and Callan (2019), in retrieval as ANCE has it (Xiong et al., 2021); FirstP where every
    document is one passage of the corpus.

    Args:
        model: an exported directory, a Hub id, a loaded model, or `"bm25"` (English stop words and stemmer).
        collection: its judgements name documents: the column `document` of the corpus, or `id` where it has none;
            what is searched is title + " " + text of every passage.
        split: of the judgements; queries with a relevant document are asked.
        name: of the retriever, in results and tables.
        output_dir: receives `result.json` and `rankings.parquet` (of documents), complete or not at all. The vectors of
            the corpus stand in `<output_dir>.partial` until then; a run that was killed goes on with them.
        batch_size: texts encoded at once.

    Returns:
        `mrr@100`, `recall@100` and `ndcg@10` of documents: fractions, means over the queries, and per query.

    Raises:
        InputError: nothing to load, no query has a relevant document, one is empty, judgements name an unknown query or
            document, or an `output_dir` that holds something else.
    """
    check_replaceable(output_dir, marker=RESULT_FILE)
    corpus, queries = load_corpus(collection), load_queries(collection)
    documents = _documents(corpus)
    qrels = {query: grades for query, grades in load_qrels(collection, split).items() if max(grades.values()) > 0}
    texts = dict(zip(queries["id"], queries["text"], strict=True))
    _check_judgements(qrels, texts, documents, split)
    asked = {query: texts[query] for query in qrels}
    check_asked(asked, collection)
    work = Path(f"{output_dir}.partial")
    retriever = model if model == BM25 else load_retriever(model)
    with CostMeter(retriever) as meter:
        search = open_search(retriever, PassageTexts(corpus), work, batch_size)
        rankings = rank_documents(search, asked, documents)
        per_query = score_documents(qrels, rankings)
    origin = meter.describe(len(corpus), list(asked.values()), search)
    result = RetrievalResult(name, split, mean_metrics(per_query), per_query, meter.seconds, origin)
    with atomic_directory(output_dir) as target:
        result.save(target, rankings)
    shutil.rmtree(work)
    return result


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
        scores, places = search([queries[query] for query in wanted], hits)
        deeper = []
        for query, row, found in zip(wanted, scores.tolist(), places.tolist(), strict=True):
            best: dict[str, float] = {}
            for score, place in zip(row, found, strict=True):
                if place >= 0:
                    best.setdefault(documents[place], score)  # the first passage of a document is its best
            if len(best) < DEPTH and hits < len(documents) and found[-1] >= 0:
                deeper.append(query)
            rankings[query] = dict(list(best.items())[:DEPTH])
        wanted, hits = deeper, 2 * hits
    return rankings


def score_documents(
    qrels: Mapping[str, Mapping[str, int]], rankings: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Compute each metric for each query, with the ties broken as trec_eval does (by id, descending).

    Args:
        qrels: query id -> document id -> grade; above 0 is relevant.
        rankings: query id -> document id -> score, at most 100 documents of a query.

    Returns:
        metric -> query id -> value; a query of `qrels` without a document counts 0.

    >>> score_documents({"q": {"a": 1}}, {"q": {"b": 2.0, "a": 1.0}})["mrr@100"]
    {'q': 0.5}
    """
    evaluator = pytrec_eval.RelevanceEvaluator(
        {query: dict(grades) for query, grades in qrels.items()}, {"recip_rank", "recall.100", "ndcg_cut.10"}
    )
    measured = evaluator.evaluate({query: dict(ranking) for query, ranking in rankings.items() if ranking})
    return {
        metric: {query: measured[query][measure] if query in measured else 0.0 for query in qrels}
        for metric, measure in _MEASURES.items()
    }


def _documents(corpus: Dataset) -> list[str]:
    """The document of each passage; one that was not cut from a document is its own."""
    names: list[str] = corpus["id"][:]
    if "document" not in corpus.column_names:
        return names
    return [document or name for document, name in zip(corpus["document"], names, strict=True)]


def _check_judgements(
    qrels: Mapping[str, Mapping[str, int]], texts: Mapping[str, str], documents: Sequence[str], split: str
) -> None:
    if not qrels:
        raise InputError(f"No query of split {split!r} has a relevant document.")
    known = set(documents)
    for query, grades in qrels.items():
        if query not in texts:
            raise InputError(f"The judgements of split {split!r} name the query {query!r}; the queries lack it.")
        for document, grade in grades.items():
            if grade > 0 and document not in known:
                raise InputError(
                    f"The judgements of split {split!r} name {document!r} for query {query!r}, which is no document "
                    "of the corpus."
                )
