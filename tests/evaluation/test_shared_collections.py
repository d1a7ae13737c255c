"""The measures on real collections: against trec_eval's definitions written out, and against recorded BM25 figures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from hf_dense.data.collections import load_corpus, load_qrels, load_queries
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.evaluation.documents import METRICS
from hf_dense.evaluation.measures import score_queries
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.search.first_stage import BM25, open_search

SHARED = Path(__file__).parents[3] / "shared" / "data"
COLLECTIONS = ("cranfield", "scifact", "medquad", "reqa-squad")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SHARED.is_dir(), reason="the shared test collections are not there: measures NOT checked"),
]


def by_definition(grades: Mapping[str, int], ranking: Mapping[str, float]) -> dict[str, float]:
    """trec_eval's measures of one query: best score first, ties by id, the last first; gains are the grades."""
    hits = [grades.get(passage, 0) for _, passage in sorted(((s, p) for p, s in ranking.items()), reverse=True)]
    relevant = sum(grade > 0 for grade in grades.values())

    def gain(found: list[int]) -> float:
        return sum(max(grade, 0) / math.log2(rank + 1) for rank, grade in enumerate(found[:10], start=1))

    first = next((rank for rank, grade in enumerate(hits, start=1) if grade > 0), math.inf)
    return {
        "ndcg@10": gain(hits) / gain(sorted(grades.values(), reverse=True)),
        "mrr@10": 1 / first if first <= 10 else 0.0,
        "mrr@100": 1 / first if first <= 100 else 0.0,
        **{f"recall@{k}": sum(grade > 0 for grade in hits[:k]) / relevant for k in (50, 100, 1000)},
    }


@pytest.mark.parametrize("name", COLLECTIONS)
def test_measures_equal_their_definitions_with_ties_and_without_hits(name: str, tmp_path: Path) -> None:
    corpus, queries = load_corpus(SHARED / name), load_queries(SHARED / name)
    qrels = {query: grades for query, grades in load_qrels(SHARED / name, "dev").items() if max(grades.values()) > 0}
    texts = dict(zip(queries["id"], queries["text"], strict=True))
    search = open_search(BM25, PassageTexts(corpus), tmp_path, 64)
    scores, indices = search([texts[query] for query in qrels], 1000)
    ids = corpus["id"][:]
    rankings = {
        query: {ids[place]: float(round(score)) for score, place in zip(row, found, strict=True) if place >= 0}
        for query, row, found in zip(qrels, scores.tolist(), indices.tolist(), strict=True)
    }
    for query in list(rankings)[::10]:
        del rankings[query]
    assert any(len({*ranking.values()}) < len(ranking) / 2 for ranking in rankings.values())
    expected = {query: by_definition(grades, rankings.get(query, {})) for query, grades in qrels.items()}
    for metric, values in score_queries(qrels, rankings).items():
        assert values == pytest.approx({query: found[metric] for query, found in expected.items()}, abs=1e-6), metric
    hundred = {
        query: dict(sorted(ranking.items(), key=lambda hit: (hit[1], hit[0]), reverse=True)[:100])
        for query, ranking in rankings.items()
    }
    for metric, values in score_queries(qrels, hundred, METRICS).items():
        assert values == pytest.approx({query: found[metric] for query, found in expected.items()}, abs=1e-6), metric


@pytest.mark.parametrize("name", COLLECTIONS)
def test_bm25_is_as_good_as_recorded(name: str, tmp_path: Path) -> None:
    recorded = re.search(
        r"BM25 English stemming \| dev \| \d+ \| ([\d.]+)", (SHARED / name / "META.md").read_text(encoding="utf-8")
    )
    assert recorded is not None
    result = evaluate_retriever(BM25, SHARED / name, "dev", name="BM25", out=tmp_path / "out")
    assert result.metrics["ndcg@10"] == pytest.approx(float(recorded[1]), abs=0.005)
