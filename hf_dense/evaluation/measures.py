"""The measures of a ranking of passages, as trec_eval defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytrec_eval

METRICS: Final = ("ndcg@10", "mrr@10", "recall@100")  # what tables show
MORE_METRICS: Final = ("recall@50", "recall@1000")
_MEASURES: Final = {"ndcg": "ndcg_cut", "mrr": "recip_rank", "recall": "recall"}  # as trec_eval calls them


def score_queries(
    qrels: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Mapping[str, float]],
    metrics: Sequence[str] = (*METRICS, *MORE_METRICS),
) -> dict[str, dict[str, float]]:
    """Compute each metric for each query, with the ties broken as trec_eval does (by id, descending).

    Args:
        qrels: query id -> passage id -> grade; above 0 is relevant.
        rankings: query id -> passage id -> score, higher is better.
        metrics: `ndcg@k`, `mrr@k` or `recall@k`, of any depth k.

    Returns:
        metric -> query id -> value; a query of `qrels` without a ranking counts 0.

    >>> scores = score_queries({"q": {"a": 1}}, {"q": {"b": 2.0, "a": 1.0}})
    >>> scores["mrr@10"], scores["recall@100"]
    ({'q': 0.5}, {'q': 1.0})
    """
    wanted = {metric: (_MEASURES[name], int(depth)) for metric in metrics for name, _, depth in [metric.partition("@")]}
    evaluator = pytrec_eval.RelevanceEvaluator(
        {query: dict(grades) for query, grades in qrels.items()},
        {measure if measure == "recip_rank" else f"{measure}.{depth}" for measure, depth in wanted.values()},
    )
    measured = evaluator.evaluate({query: dict(ranking) for query, ranking in rankings.items() if ranking})
    values: dict[str, dict[str, float]] = {metric: dict.fromkeys(qrels, 0.0) for metric in metrics}
    for query, scores in measured.items():
        for metric, (measure, depth) in wanted.items():
            value = scores["recip_rank" if measure == "recip_rank" else f"{measure}_{depth}"]
            values[metric][query] = value if measure != "recip_rank" or value >= 1 / depth else 0.0
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
