"""News recommendation, as MIND measures it: the candidates of an impression, ranked for its reader."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.data.collections import load_corpus, load_qrels, load_queries
from hf_dense.errors import InputError
from hf_dense.evaluation.costs import CostMeter
from hf_dense.evaluation.measures import mean_metrics
from hf_dense.evaluation.result import RESULT_FILE, RetrievalResult
from hf_dense.search.candidates import candidate_texts, load_ranker, rank_candidates
from hf_dense.storage.legacy import atomic_directory, check_replaceable

METRICS: Final = ("auc", "mrr", "ndcg@5", "ndcg@10")
COUNTS_FILE: Final = "counts.json"


def evaluate_candidates(
    model: str | Path | SentenceTransformer | CrossEncoder,
    collection: str | Path,
    split: str,
    *,
    name: str,
    output_dir: str | Path,
    batch_size: int = 64,
) -> RetrievalResult:
    """Rank the judged passages of every query, and average MIND's metrics over the queries.

    Source: the official setting and metrics of MIND (Wu et al., 2020), as SEED-Encoder reports them (section 4.2).

    Args:
        model: a retriever (an exported directory, a Hub id or a loaded one), or a cross-encoder.
        collection: every query is an impression; its candidates are the passages that are judged for it, relevant
            (grade above 0) or not. A passage's text is title + " " + text.
        split: of the judgements. A query whose candidates are all relevant, or none, is left out.
        name: of the model, in results and tables.
        output_dir: receives `result.json`, `rankings.parquet` and `counts.json` (`impressions` that were measured, and
            those that were `left_out`), complete or not at all. The vectors of the candidates stand in
            `<output_dir>.partial` until then; a run that was killed goes on with them.
        batch_size: texts encoded at once.

    Returns:
        `auc`, `mrr`, `ndcg@5` and `ndcg@10` (see `score_candidates`), means over the impressions and per impression.

    Raises:
        InputError: nothing to load, judgements name an unknown query or passage, no impression can be measured, or an
            `output_dir` that holds something else.
    """
    check_replaceable(output_dir, marker=RESULT_FILE)
    qrels = load_qrels(collection, split)
    impressions = {query: grades for query, grades in qrels.items() if len({g > 0 for g in grades.values()}) == 2}
    if not impressions:
        raise InputError(f"No query of split {split!r} has candidates that are relevant and candidates that are not.")
    passages = _passages(collection, impressions, split)
    queries = _queries(collection, impressions, split)
    work = Path(f"{output_dir}.partial")
    ranker = load_ranker(model)
    with CostMeter(ranker) as meter:
        scores = rank_candidates(ranker, queries, impressions, passages, work, batch_size)
    per_query: dict[str, dict[str, float]] = {metric: {} for metric in METRICS}
    for query, grades in impressions.items():
        for metric, value in score_candidates(grades, scores[query]).items():
            per_query[metric][query] = value
    origin = meter.describe(len(passages), list(queries.values()))
    result = RetrievalResult(name, split, mean_metrics(per_query), per_query, meter.seconds, origin)
    counts = {"impressions": len(impressions), "left_out": len(qrels) - len(impressions)}
    with atomic_directory(output_dir) as target:
        result.save(target, scores)
        (target / COUNTS_FILE).write_text(json.dumps(counts, indent=1), encoding="utf-8")
    shutil.rmtree(work, ignore_errors=True)
    return result


def score_candidates(grades: Mapping[str, int], scores: Mapping[str, float]) -> dict[str, float]:
    """MIND's metrics of one impression.

    `auc`: share of the pairs of a relevant candidate and another in which the first scores higher; a tie counts half.
    `mrr`: mean over the relevant candidates of 1 / rank. `ndcg@k`: a relevant candidate gains 1. In ranks, ties are
    broken as trec_eval does (by id, descending).

    Args:
        grades: candidate id -> grade; above 0 is relevant. Some are, some are not.
        scores: candidate id -> score, higher is better.

    >>> score_candidates({"a": 1, "b": 0, "c": 1}, {"a": 3.0, "b": 2.0, "c": 1.0})["mrr"]  # (1 / 1 + 1 / 3) / 2
    0.6666666666666666
    """
    order = sorted(grades, key=lambda name: (scores[name], name), reverse=True)
    relevant = np.array([grades[name] > 0 for name in order])
    values = np.array([scores[name] for name in order])
    positive, negative = values[relevant, None], values[~relevant]
    return {
        "auc": float(((positive > negative) + 0.5 * (positive == negative)).mean()),
        "mrr": float((1 / (np.flatnonzero(relevant) + 1)).mean()),
        "ndcg@5": _ndcg(relevant, 5),
        "ndcg@10": _ndcg(relevant, 10),
    }


def _ndcg(relevant: NDArray[np.bool_], depth: int) -> float:
    """Of a ranking: (candidates,) which are relevant, best first."""
    discounts = 1 / np.log2(np.arange(2, depth + 2))
    gained = discounts[: len(relevant)][relevant[:depth]].sum()
    return float(gained / discounts[: relevant.sum()].sum())


def _passages(collection: str | Path, impressions: Mapping[str, Mapping[str, int]], split: str) -> dict[str, str]:
    """Texts of the candidates by id."""
    candidates = {passage for grades in impressions.values() for passage in grades}
    texts = candidate_texts(load_corpus(collection), candidates)
    if unknown := candidates - texts.keys():
        raise InputError(f"The judgements of split {split!r} name the passage {min(unknown)!r}; the corpus lacks it.")
    return texts


def _queries(collection: str | Path, impressions: Mapping[str, object], split: str) -> dict[str, str]:
    """Texts by id."""
    queries = load_queries(collection)
    texts = dict(zip(queries["id"], queries["text"], strict=True))
    if unknown := impressions.keys() - texts.keys():
        raise InputError(f"The judgements of split {split!r} name the query {min(unknown)!r}; the queries lack it.")
    return {query: texts[query] for query in impressions}
