"""Indexes, measured as they are asked: by meaning, by words, or by both with the weight that dev chooses."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from hf_dense.data.collections import load_qrels, query_texts
from hf_dense.evaluation.measures import METRICS, mean_metrics, score_queries
from hf_dense.evaluation.result import RetrievalResult, load_rankings
from hf_dense.evaluation.runner import collection_source, measure_once, relevant_qrels
from hf_dense.search.fingerprints import model_source, retriever_source
from hf_dense.search.first_stage import BM25
from hf_dense.search.fusion import WEIGHTS, fuse
from hf_dense.search.index import SearchIndex
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import describe_run
from hf_dense.storage.staged import Staged

METRIC: Final = "ndcg@10"  # that weights and arms are chosen by
_DEPTH: Final = 100  # passages of a query


def measure(index: SearchIndex, collection: Path, split: str, weight: float, out: Output, name: str) -> RetrievalResult:
    """Ask an index the queries of a split; what was measured already is read.

    Args:
        index: of the collection's passages.
        collection: directory with the judgements.
        split: of them; queries with a relevant passage count.
        weight: of the dense scores; 0 is BM25.
        out: receives `result.json` and `rankings.parquet`.
        name: of the arm.

    Returns:
        Means over the queries, and values per query.
    """
    qrels = relevant_qrels(collection, split)
    texts = query_texts(collection)

    def ask(work: Staged) -> RetrievalResult:
        started = time.perf_counter()
        found = index.search_many([texts[query] for query in qrels], _DEPTH, weight=weight)
        rankings = {query: {hit.id: hit.score for hit in hits} for query, hits in zip(qrels, found, strict=True)}
        seconds, per_query = time.perf_counter() - started, score_queries(qrels, rankings, METRICS)
        result = RetrievalResult(name, split, mean_metrics(per_query), per_query, seconds, describe_run())
        result.save(work.result, rankings)
        return result

    model = model_source(BM25) if weight == 0 else retriever_source(index.retriever, name)
    protocol = "passages" if weight in (0, 1) else "passages, by meaning and words"
    settings: dict[str, Any] = {"protocol": protocol, "split": split, "depth": _DEPTH, "weight": weight}
    settings["passages"] = index.manifest.made_from["corpus"]
    settings |= {} if weight == 0 else index.reading.settings
    return measure_once(out, settings, {"model": model, **collection_source(collection)}, name, ask, resumable=False)


def fused_weight(dense: Path, lexical: Path, collection: Path, split: str) -> float:
    """The weight of the dense scores with the highest nDCG@10 when both are fused; of equals, the middle one.

    Args:
        dense: what `measure` wrote at weight 1.
        lexical: what it wrote at weight 0.
        collection: directory with the judgements.
        split: of them, whose queries one chooses by.
    """
    by_meaning, by_words, qrels = load_rankings(dense), load_rankings(lexical), load_qrels(collection, split)
    worth = {}
    for weight in WEIGHTS:
        fused = {query: fuse(by_meaning.get(query, {}), by_words.get(query, {}), weight) for query in qrels}
        worth[weight] = round(mean_metrics(score_queries(qrels, fused, [METRIC]))[METRIC], 6)
    best = [weight for weight in WEIGHTS if worth[weight] == max(worth.values())]
    return best[len(best) // 2]
