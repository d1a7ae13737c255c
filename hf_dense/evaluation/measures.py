"""The measures of a ranking of passages, as trec_eval defines them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytrec_eval

METRICS: Final = ("ndcg@10", "mrr@10", "recall@100")  # what tables show
MORE_METRICS: Final = ("recall@50", "recall@1000")


def score_queries(
    qrels: Mapping[str, Mapping[str, int]], rankings: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Compute each metric for each query, with the ties broken as trec_eval does (by id, descending).

    Args:
        qrels: query id -> passage id -> grade; above 0 is relevant.
        rankings: query id -> passage id -> score, higher is better.

    Returns:
        metric -> query id -> value; a query of `qrels` without a ranking counts 0.

    >>> scores = score_queries({"q": {"a": 1}}, {"q": {"b": 2.0, "a": 1.0}})
    >>> scores["mrr@10"], scores["recall@100"]
    ({'q': 0.5}, {'q': 1.0})
    """
    evaluator = pytrec_eval.RelevanceEvaluator(
        {query: dict(grades) for query, grades in qrels.items()}, {"ndcg_cut.10", "recip_rank", "recall.50,100,1000"}
    )
    measured = evaluator.evaluate({query: dict(ranking) for query, ranking in rankings.items()})
    values: dict[str, dict[str, float]] = {metric: dict.fromkeys(qrels, 0.0) for metric in (*METRICS, *MORE_METRICS)}
    for query, scores in measured.items():
        values["ndcg@10"][query] = scores["ndcg_cut_10"]
        values["mrr@10"][query] = scores["recip_rank"] if scores["recip_rank"] >= 0.1 else 0.0
        for depth in (50, 100, 1000):
            values[f"recall@{depth}"][query] = scores[f"recall_{depth}"]
    return values


def mean_metrics(per_query: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Means over the queries of what `score_queries` gives."""
    return {metric: sum(values.values()) / len(values) for metric, values in per_query.items()}


def title(metric: str) -> str:
    """The name of a metric in tables and plots.

    >>> [title(metric) for metric in ("ndcg@10", "mrr@10", "recall@100", "auc", "answer_recall@20")]
    ['nDCG@10', 'MRR@10', 'Recall@100', 'AUC', 'Answer recall@20']
    """
    name, _, depth = metric.partition("@")
    written = {"ndcg": "nDCG", "mrr": "MRR", "auc": "AUC"}.get(name, name.capitalize().replace("_", " "))
    return f"{written}@{depth}" if depth else written
