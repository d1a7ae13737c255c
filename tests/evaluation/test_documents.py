"""Documents by their best passages, against loops over all of them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sentence_transformers import SentenceTransformer
from tiny_retriever import random_words, write_dataset, write_retriever

from hf_dense.data.collections import load_corpus, load_qrels, load_queries
from hf_dense.errors import InputError
from hf_dense.evaluation.benchmark import evaluate_tasks
from hf_dense.evaluation.documents import METRICS, Documents, rank_documents
from hf_dense.evaluation.measures import score_queries
from hf_dense.evaluation.result import RANKINGS_FILE, RetrievalResult, load_rankings
from hf_dense.evaluation.runner import run_protocol
from hf_dense.search.dense import Floats, Indices
from hf_dense.search.first_stage import Search


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """130 documents of 1 to 5 passages, 20 queries; the last one has no relevant document."""
    folder = tmp_path_factory.mktemp("documents") / "collection"
    generator, words = random.Random(0), random_words(60, seed=1)
    corpus = [
        {"id": f"D{at}-{part}", "title": "", "text": " ".join(generator.choices(words, k=3)), "document": f"D{at}"}
        for at in range(130)
        for part in range(1 + at % 5)
    ]
    generator.shuffle(corpus)
    queries = [{"id": f"q{at}", "text": " ".join(generator.choices(words, k=2))} for at in range(20)]
    qrels = [
        {"query-id": f"q{at}", "corpus-id": f"D{document}", "score": 0 if at == 19 else grade}
        for at in range(20)
        for document, grade in zip(generator.sample(range(130), 3), (1, 2, 0), strict=True)
    ]
    for name, rows in {"corpus/part": corpus, "queries/part": queries, "qrels/test": qrels}.items():
        (folder / name).parent.mkdir(parents=True)
        parquet.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    return folder


def by_definition(grades: dict[str, int], ranking: dict[str, float]) -> tuple[float, float, float]:
    """Reciprocal rank and recall among 100, nDCG among 10; ties by id, descending."""
    order = sorted(ranking, key=lambda name: (ranking[name], name), reverse=True)[:100]
    ranks = [rank for rank, name in enumerate(order, start=1) if grades.get(name, 0) > 0]
    gains = [max(grades.get(name, 0), 0) / math.log2(rank + 1) for rank, name in enumerate(order[:10], start=1)]
    best = [grade / math.log2(rank + 1) for rank, grade in enumerate(sorted(grades.values())[::-1][:10], start=1)]
    relevant = sum(grade > 0 for grade in grades.values())
    return (1 / ranks[0] if ranks else 0.0, len(ranks) / relevant, sum(gains) / sum(best))


def best_passages(retriever: Path, collection: Path) -> dict[str, dict[str, float]]:
    model, corpus = SentenceTransformer(str(retriever)), load_corpus(collection)
    vectors = model.encode([f"{row['title']} {row['text']}".strip() for row in corpus])
    rankings: dict[str, dict[str, float]] = {}
    for query in load_queries(collection):
        ranking = rankings.setdefault(query["id"], {})
        for row, score in zip(corpus, vectors @ model.encode(query["text"]), strict=True):
            document = row.get("document", row["id"])
            ranking[document] = max(ranking.get(document, -math.inf), float(score))
    return rankings


def test_metrics_are_those_of_a_loop(collection: Path, retriever: Path, tmp_path: Path) -> None:
    found = run_protocol(Documents(collection, "test"), retriever, tmp_path / "out", name="tiny", batch_size=9)
    rankings, qrels = best_passages(retriever, collection), load_qrels(collection, "test")
    expected = {query: by_definition(grades, rankings[query]) for query, grades in qrels.items() if query != "q19"}
    for at, metric in enumerate(METRICS):
        assert found.per_query[metric] == pytest.approx({query: values[at] for query, values in expected.items()})
        assert found.metrics[metric] == pytest.approx(np.mean([values[at] for values in expected.values()]))
    assert 0 < found.metrics["recall@100"] < 1
    costs = {"passages", "tokens", "bytes_per_passage", "query_seconds", "search_seconds", "peak_memory"}
    assert all(found.origin[cost] > 0 for cost in costs)
    assert RetrievalResult.load(tmp_path / "out") == found
    kept = parquet.read_table(tmp_path / "out" / RANKINGS_FILE).to_pylist()
    assert len(kept) == 19 * 100
    assert {row["corpus-id"] for row in kept if row["rank"] == 1 and row["query-id"] == "q0"} == {
        max(rankings["q0"], key=lambda name: rankings["q0"][name])
    }
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_whole_documents_are_ranked_alike(retriever: Path, tmp_path: Path) -> None:
    collection = write_dataset(tmp_path / "beir", passages=150)
    found = run_protocol(Documents(collection, "test"), retriever, tmp_path / "out", name="tiny")
    rankings, qrels = best_passages(retriever, collection), load_qrels(collection, "test")
    for at, metric in enumerate(METRICS):
        expected = {query: by_definition(grades, rankings[query])[at] for query, grades in qrels.items()}
        assert found.per_query[metric] == pytest.approx(expected), metric


def test_documents_are_ordered_anew_by_the_best_of_their_passages(
    collection: Path, retriever: Path, tmp_path: Path
) -> None:
    other, task = write_retriever(tmp_path / "other", seed=7), f"{collection}:test"
    given = ({"mine": retriever, "other": other}, [task], tmp_path / "out")
    found = evaluate_tasks(*given, protocol="documents", rerankers={"again": retriever, "else": other})
    [first, alone, same, changed] = [
        found[name][f"{collection.name}-test"] for name in ("mine", "other", "mine + again", "mine + else")
    ]
    assert same.per_query == first.per_query, "a retriever does not change its own order"
    assert changed.per_query["recall@100"] == first.per_query["recall@100"]
    assert changed.per_query["mrr@100"] != first.per_query["mrr@100"]
    searched = load_rankings(tmp_path / "out" / "other" / f"{collection.name}-test")
    candidates = load_rankings(tmp_path / "out" / "mine" / f"{collection.name}-test")
    for query, ranking in load_rankings(tmp_path / "out" / "mine + else" / f"{collection.name}-test").items():
        assert [*ranking][:40] != [*candidates[query]][:40]
        alike = {name: score for name, score in searched[query].items() if name in ranking}
        assert {name: ranking[name] for name in alike} == pytest.approx(alike, abs=1e-4), "as that retriever ranks them"
    assert alone.metrics.keys() == changed.metrics.keys()


def test_bm25_finds_words(tmp_path: Path) -> None:
    collection = write_dataset(tmp_path / "beir", passages=30)
    found = run_protocol(Documents(collection, "test"), "bm25", tmp_path / "out", name="BM25")
    assert found.metrics["mrr@100"] == 1
    assert found.per_query["recall@100"]["q1"] == 1
    assert found.per_query["recall@100"]["q0"] == 0.5  # the other one shares no word with the query


def searching(matrix: Floats, asked: list[int]) -> Search:
    """A search that has all scores, and notes how deep it was asked to go."""

    def search(queries: Sequence[str], k: int) -> tuple[Floats, Indices]:
        asked.append(k)
        rows = matrix[[int(query) for query in queries]]
        indices = np.argsort(-rows, axis=1)[:, :k]
        scores = np.take_along_axis(rows, indices, axis=1)
        return scores, np.where(np.isfinite(scores), indices, -1)

    return search


def test_search_goes_as_deep_as_100_documents_take() -> None:
    """The first query sees 900 passages of one document before any other."""
    documents = ["big"] * 900 + [f"D{at:03d}" for at in range(300)]
    matrix = np.random.default_rng(0).standard_normal((3, 1200), dtype=np.float32)
    matrix[0, :900] += 100
    matrix[2, 50:] = -np.inf  # 50 passages, of one document, are all that can be found
    asked: list[int] = []
    rankings = rank_documents(searching(matrix, asked), {"a": "0", "b": "1", "c": "2"}, documents)
    assert asked == [200, 400, 800, 1600]
    for query, row in zip("ab", matrix, strict=False):
        best: dict[str, float] = {}
        for document, score in zip(documents, row.tolist(), strict=True):
            best[document] = max(score, best.get(document, -math.inf))
        assert rankings[query] == dict(sorted(best.items(), key=lambda item: -item[1])[:100])
    assert rankings["c"] == {"big": matrix[2, :50].max()}


def test_fewer_documents_than_100_are_all_ranked() -> None:
    asked: list[int] = []
    matrix = np.random.default_rng(0).standard_normal((1, 90), dtype=np.float32)
    rankings = rank_documents(searching(matrix, asked), {"q": "0"}, [f"D{at}" for at in range(90)])
    assert asked == [200]
    assert len(rankings["q"]) == 90


def test_scores_with_ties_and_without_documents() -> None:
    generator = random.Random(0)
    names = [f"D{at}" for at in range(100)]
    qrels = {f"q{at}": {name: generator.randint(0, 3) for name in generator.sample(names, 9)} for at in range(50)}
    rankings = {
        query: {name: float(generator.randint(0, 5)) for name in generator.sample(names, generator.randint(1, 100))}
        for query in qrels
    }
    qrels |= {"nothing": {"D1": 1}, "absent": {"D1": 1}}
    rankings["nothing"] = {}
    values = score_queries(qrels, rankings, METRICS)
    for query, grades in qrels.items():
        found = tuple(values[metric][query] for metric in METRICS)
        assert found == pytest.approx(by_definition(grades, rankings.get(query, {}))), query


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q0\tp0\t0", "has a relevant document"),
        ("q0\tnosuch\t1", "'nosuch' for query 'q0'"),
        ("nosuch\tp0\t1", "query 'nosuch'"),
    ],
)
def test_judgements_of_unknown_things(line: str, message: str, tmp_path: Path) -> None:
    collection = write_dataset(tmp_path / "beir")
    (collection / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{line}\n")
    with pytest.raises(InputError, match=message):
        run_protocol(Documents(collection, "test"), "bm25", tmp_path / "out", name="bad")
