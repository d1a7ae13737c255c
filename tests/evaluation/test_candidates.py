"""MIND's metrics, against scikit-learn, MIND's own script and a loop; and the ranking of candidates."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sklearn.metrics import ndcg_score, roc_auc_score  # type: ignore[import-untyped]
from tiny_retriever import (
    random_words,
    write_cross_encoder,
    write_dataset,
    write_retriever,
)

from hf_dense.data.collections import load_corpus, load_qrels, query_texts
from hf_dense.data.supervision import build_collection
from hf_dense.errors import InputError
from hf_dense.evaluation.candidates import METRICS, Candidates, score_candidates
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.runner import run_protocol


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a folder of MIND: 25 impressions of 8 readers, of which two have candidates of one class."""
    folder = tmp_path_factory.mktemp("mind")
    generator, words = random.Random(0), random_words(50)
    news = [
        f"N{at}\tsports\tsoccer\t{' '.join(generator.choices(words, k=2))}\t{' '.join(generator.choices(words, k=3))}"
        for at in range(40)
    ]
    histories = [" ".join(f"N{at}" for at in generator.sample(range(40), 3)) for _ in range(8)]
    impressions = []
    for at in range(25):
        candidates = generator.sample(range(30), generator.randint(2, 20))
        clicks = [1, 0] + [generator.randint(0, 1) for _ in candidates[2:]]
        if at in (7, 11):
            clicks = [int(at == 7)] * len(candidates)
        judged = " ".join(f"N{name}-{click}" for name, click in zip(candidates, clicks, strict=True))
        impressions.append(f"{at}\tU{at % 8}\t11/11/2019 9:00:00 AM\t{histories[at % 8]}\t{judged}")
    (folder / "news.tsv").write_text("\n".join(news) + "\n")
    (folder / "behaviors.tsv").write_text("\n".join(impressions) + "\n")
    return build_collection(str(folder), folder / "collection", "mind", "dev")


def in_a_loop(grades: dict[str, int], scores: dict[str, float]) -> dict[str, float]:
    pairs = [
        1.0 if scores[one] > scores[other] else 0.5 if scores[one] == scores[other] else 0.0
        for one in grades
        for other in grades
        if grades[one] > 0 >= grades[other]
    ]
    order = sorted(grades, key=lambda name: (scores[name], name), reverse=True)
    reciprocal = [1 / rank for rank, name in enumerate(order, start=1) if grades[name] > 0]
    values = {"auc": sum(pairs) / len(pairs), "mrr": sum(reciprocal) / len(reciprocal)}
    for depth in (5, 10):
        gained = sum(1 / np.log2(rank + 1) for rank, name in enumerate(order[:depth], start=1) if grades[name] > 0)
        best = sum(1 / np.log2(rank + 1) for rank in range(1, min(depth, len(reciprocal)) + 1))
        values[f"ndcg@{depth}"] = gained / best
    return values


def draw(generator: random.Random, ties: bool) -> tuple[dict[str, int], dict[str, float]]:
    names = [f"N{at}" for at in range(generator.randint(2, 30))]
    grades = dict(zip(names, [1, 0] + [generator.randint(0, 1) for _ in names[2:]], strict=True))
    values = generator.choices(range(4), k=30) if ties else generator.sample(range(1000), 30)
    return grades, dict(zip(names, map(float, values), strict=False))


@pytest.mark.parametrize("ties", [False, True])
def test_metrics_are_those_of_a_loop(ties: bool) -> None:
    generator = random.Random(0)
    for _ in range(300):
        grades, scores = draw(generator, ties)
        assert score_candidates(grades, scores) == pytest.approx(in_a_loop(grades, scores))


@pytest.mark.parametrize("ties", [False, True])
def test_metrics_are_those_of_scikit_learn_and_of_mind(ties: bool) -> None:
    generator = random.Random(1)
    for _ in range(100):
        grades, scores = draw(generator, ties)
        found = score_candidates(grades, scores)
        names = list(grades)
        labels, values = np.array([grades[name] for name in names]), np.array([scores[name] for name in names])
        assert found["auc"] == pytest.approx(roc_auc_score(labels, values))
        # scikit-learn means over the orders of ties: it is given those ranks that ours are broken into.
        order = sorted(names, key=lambda name: (scores[name], name))
        ranks = np.array([order.index(name) for name in names])
        for depth in (5, 10):
            assert found[f"ndcg@{depth}"] == pytest.approx(ndcg_score([labels], [ranks], k=depth))
        sorted_labels = np.take(labels, np.argsort(ranks)[::-1])  # as in MIND's evaluate.py
        assert found["mrr"] == pytest.approx(np.sum(sorted_labels / (np.arange(len(labels)) + 1)) / np.sum(labels))


def test_all_tied_is_chance() -> None:
    assert score_candidates({"a": 1, "b": 0, "c": 0}, dict.fromkeys("abc", 1.0))["auc"] == 0.5


def test_grades_above_one_are_clicks() -> None:
    assert score_candidates({"a": 2, "b": 0}, {"a": 1.0, "b": 2.0})["ndcg@5"] == pytest.approx(1 / np.log2(3))


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_candidates_are_ranked_by_the_model(collection: Path, similarity: str, tmp_path: Path) -> None:
    folder = write_retriever(tmp_path / "model", similarity=similarity)
    found = run_protocol(Candidates(collection, "dev"), folder, tmp_path / "out", name="tiny", batch_size=7)
    model = SentenceTransformer(str(folder))
    texts = {row["id"]: f"{row['title']} {row['text']}" for row in load_corpus(collection)}
    queries = query_texts(collection)
    expected: dict[str, dict[str, float]] = {metric: {} for metric in METRICS}
    for query, grades in load_qrels(collection, "dev").items():
        if len(set(grades.values())) == 2:
            scores = model.similarity(model.encode(queries[query]), model.encode([texts[name] for name in grades]))[0]
            for metric, value in in_a_loop(grades, dict(zip(grades, scores.tolist(), strict=True))).items():
                expected[metric][query] = value
    assert len(expected["auc"]) == 23
    for metric, values in expected.items():
        assert found.per_query[metric] == pytest.approx(values)
        assert found.metrics[metric] == pytest.approx(np.mean(list(values.values())))
    assert RetrievalResult.load(tmp_path / "out") == found
    assert json.loads((tmp_path / "out" / "counts.json").read_text()) == {"impressions": 23, "left_out": 2}
    assert not (tmp_path / "out.partial").exists()


def test_candidates_are_ranked_by_a_cross_encoder(collection: Path, tmp_path: Path) -> None:
    write_cross_encoder(tmp_path / "base")
    found = run_protocol(Candidates(collection, "dev"), tmp_path / "base", tmp_path / "out", name="tiny")
    model = CrossEncoder(str(tmp_path / "base"), activation_fn=torch.nn.Identity())
    texts = {row["id"]: f"{row['title']} {row['text']}" for row in load_corpus(collection)}
    queries = query_texts(collection)
    grades = load_qrels(collection, "dev")
    for query, auc in found.per_query["auc"].items():
        scores = model.predict([(queries[query], texts[name]) for name in grades[query]])
        expected = in_a_loop(grades[query], dict(zip(grades[query], scores.tolist(), strict=True)))
        assert auc == pytest.approx(expected["auc"], abs=1e-6)
    assert len(found.per_query["auc"]) == 23
    pairs = [(queries[query], texts[name]) for query in found.per_query["auc"] for name in grades[query]]
    read = model.tokenizer([query for query, _ in pairs], [text for _, text in pairs], truncation=True, max_length=64)
    assert found.origin["tokens"] == sum(map(len, read["input_ids"]))
    assert found.origin["settings"]["longest text"] == "64 tokens"
    assert not {"dimensions", "query_seconds", "search_seconds"} & found.origin.keys(), "of retrievers alone"


def test_every_text_is_encoded_once(
    collection: Path, retriever: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []  # but for the queries that are timed one at a time
    model = SentenceTransformer(str(retriever))
    for role in ("encode_document", "encode_query"):
        encode = getattr(model, role)
        monkeypatch.setattr(
            model,
            role,
            lambda texts, encode=encode, **rest: (
                read.extend(texts if isinstance(texts, list) else ()) or encode(texts, **rest)
            ),
        )
    run_protocol(Candidates(collection, "dev"), model, tmp_path / "out", name="tiny")
    assert len(read) == len(set(read)) > 8 + 20


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["q0\tp0\t1", "q0\tp1\t1"], "No query of split 'test'"),
        (["q0\tp0\t1", "q0\tnosuch\t0"], "'nosuch' for query 'q0'"),
        (["nosuch\tp0\t1", "nosuch\tp1\t0"], "query 'nosuch'"),
    ],
)
def test_judgements_that_cannot_be_used(lines: list[str], message: str, retriever: Path, tmp_path: Path) -> None:
    collection = write_dataset(tmp_path / "beir")
    (collection / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    with pytest.raises(InputError, match=message):
        run_protocol(Candidates(collection, "test"), retriever, tmp_path / "out", name="bad")
