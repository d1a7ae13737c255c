"""News recommendation, as MIND measures it: the candidates of an impression, ranked for its reader."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.data.collections import load_corpus, load_qrels, load_queries
from hf_dense.errors import InputError
from hf_dense.evaluation.runner import Found, Protocol, Rankings, asked_texts, collection_source
from hf_dense.search.candidates import candidate_texts, rank_candidates
from hf_dense.storage.files import write_text

METRICS: Final = ("auc", "mrr", "ndcg@5", "ndcg@10")
COUNTS_FILE: Final = "counts.json"


class Candidates(Protocol):
    """The judged passages of every query, ranked, and MIND's metrics of that.

    Source: the official setting and metrics of MIND (Wu et al., 2020), as SEED-Encoder reports them (section 4.2).

    Args:
        collection: every query is an impression; its candidates are the passages that are judged for it, relevant
            (grade above 0) or not. A passage's text is title + " " + text.
        split: of the judgements. A query whose candidates are all relevant, or none, is left out; `counts.json` says
            how many.

    Raises:
        InputError: judgements name an unknown query or passage, or no impression can be measured.
    """

    name = "candidates"
    models = (SentenceTransformer, CrossEncoder)

    def __init__(self, collection: str | os.PathLike[str], split: str) -> None:
        qrels = load_qrels(collection, split)
        measured = {query: grades for query, grades in qrels.items() if len({g > 0 for g in grades.values()}) == 2}
        if not measured:
            raise InputError(
                f"No query of split {split!r} has candidates that are relevant and candidates that are not."
            )
        self.impressions, self.left_out = measured, len(qrels) - len(measured)
        self.texts = candidate_texts(load_corpus(collection), {name for grades in measured.values() for name in grades})
        queries = asked_texts(measured, load_queries(collection), self.texts, collection, empty=True)  # no history
        super().__init__(split, collection_source(collection), queries, len(self.texts))

    def rank(self, model: Any, folder: Path, batch_size: int) -> Found:
        """The candidates of every query."""
        counts = json.dumps({"impressions": len(self.impressions), "left_out": self.left_out}, indent=1)
        rankings = rank_candidates(model, self.queries, self.impressions, self.texts, folder, batch_size)
        return Found(rankings, files={COUNTS_FILE: lambda path: write_text(path, counts)})

    def score(self, rankings: Rankings) -> dict[str, dict[str, float]]:
        """See `score_candidates`."""
        scores = {query: score_candidates(grades, rankings[query]) for query, grades in self.impressions.items()}
        return {metric: {query: values[metric] for query, values in scores.items()} for metric in METRICS}


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
