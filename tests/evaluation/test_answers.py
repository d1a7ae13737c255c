"""Questions answered by what is found, against loops over the whole ranking."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sentence_transformers import SentenceTransformer
from tiny_retriever import random_words, write_dataset, write_retriever

from hf_dense.data.answers import has_answer
from hf_dense.data.collections import load_answers, load_corpus, load_queries
from hf_dense.data.supervision import build_collection
from hf_dense.errors import InputError
from hf_dense.evaluation import answers as answers_module
from hf_dense.evaluation.answers import Answers, answer_rank
from hf_dense.evaluation.benchmark import evaluate_tasks
from hf_dense.evaluation.result import RANKINGS_FILE, RetrievalResult, load_rankings
from hf_dense.evaluation.runner import run_protocol
from hf_dense.search.first_stage import open_search

WORDS = random_words(40, seed=3)
PASSAGES = 150
DEPTHS = (2, 10)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queries q0 to q29 of which every fifth has no answer, q3 has one that is only in titles; 20 are judged."""
    folder = tmp_path_factory.mktemp("answers") / "collection"
    generator = random.Random(0)
    corpus = [
        {"id": f"p{at}", "title": "onlytitle", "text": " ".join(generator.choices(WORDS, k=6))}
        for at in range(PASSAGES)
    ]
    queries = [
        {
            "id": f"q{at}",
            "text": generator.choice(WORDS),
            "answers": [] if at % 5 == 4 else [" ".join(generator.choices(WORDS, k=1 + at % 2)), "nowhere"],
        }
        for at in range(30)
    ]
    queries[3]["answers"] = ["onlytitle"]
    judgements = [{"query-id": f"q{at}", "corpus-id": "p0", "score": 0} for at in range(20)]
    empty = pa.schema([("query-id", pa.string()), ("corpus-id", pa.string()), ("score", pa.int32())]).empty_table()
    for name, table in {
        "corpus/part": pa.Table.from_pylist(corpus),
        "queries/part": pa.Table.from_pylist(queries),
        "qrels/test": pa.Table.from_pylist(judgements),
        "qrels/dev": empty,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, folder / f"{name}.parquet")
    return folder


@pytest.fixture
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers_module, "DEPTHS", DEPTHS)


def in_a_loop(retriever: Path, collection: Path, queries: set[str]) -> dict[str, dict[str, float]]:
    model, corpus = SentenceTransformer(str(retriever)), load_corpus(collection)
    vectors = model.encode([f"{row['title']} {row['text']}" for row in corpus])
    values: dict[str, dict[str, float]] = {f"answer_recall@{depth}": {} for depth in DEPTHS}
    for row in parquet.read_table(collection / "queries").to_pylist():
        if row["id"] in queries and row["answers"]:
            order = np.argsort(-(vectors @ model.encode(row["text"])))
            for depth in DEPTHS:
                held = [has_answer(corpus[int(place)]["text"], row["answers"]) for place in order[:depth]]
                values[f"answer_recall@{depth}"][row["id"]] = float(any(held))
    return values


def test_passages_that_may_answer_are_ordered_anew(collection: Path, retriever: Path, tmp_path: Path) -> None:
    other, task = write_retriever(tmp_path / "other", seed=7), f"{collection}:test"
    given = ({"mine": retriever}, [task], tmp_path / "out")
    found = evaluate_tasks(*given, protocol="answers", rerankers={"again": retriever, "else": other})
    first, same, changed = (results["collection-test"] for results in found.values())
    assert same.per_query == first.per_query, "a retriever does not change its own order"
    assert changed.per_query["answer_recall@100"] == first.per_query["answer_recall@100"]
    assert changed.per_query["answer_recall@20"] != first.per_query["answer_recall@20"]
    answers, texts = load_answers(collection), {row["id"]: row["text"] for row in load_corpus(collection)}
    for query, ranking in load_rankings(tmp_path / "out" / "mine + else" / "collection-test").items():
        held = any(has_answer(texts[name], answers[query]) for name in [*ranking][:20])
        assert changed.per_query["answer_recall@20"][query] == held


@pytest.mark.usefixtures("shallow")
def test_recall_is_that_of_a_loop_over_the_judged_queries(collection: Path, retriever: Path, tmp_path: Path) -> None:
    found = run_protocol(Answers(collection, "test"), retriever, tmp_path / "out", name="tiny", batch_size=7)
    expected = in_a_loop(retriever, collection, {f"q{at}" for at in range(20)})
    assert found.per_query == expected
    assert len(expected["answer_recall@2"]) == 16  # the others have no answers
    assert expected["answer_recall@10"]["q3"] == 0
    for metric, values in expected.items():
        assert found.metrics[metric] == pytest.approx(np.mean(list(values.values())))
    assert 0 < found.metrics["answer_recall@2"] < found.metrics["answer_recall@10"] < 1
    costs = {"passages", "tokens", "bytes_per_passage", "query_seconds", "search_seconds", "peak_memory"}
    assert all(found.origin[cost] > 0 for cost in costs)
    assert RetrievalResult.load(tmp_path / "out") == found
    kept = parquet.read_table(tmp_path / "out" / RANKINGS_FILE).to_pylist()
    assert len(kept) == 16 * max(DEPTHS)
    best = next(row["corpus-id"] for row in kept if row["query-id"] == "q0" and row["rank"] == 1)
    model, corpus = SentenceTransformer(str(retriever)), load_corpus(collection)
    similar = model.encode([f"onlytitle {text}" for text in corpus["text"]]) @ model.encode(
        load_queries(collection)[0]["text"]
    )
    assert best == corpus["id"][int(np.argmax(similar))]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.usefixtures("shallow")
def test_a_split_without_judgements_asks_all_queries(collection: Path, retriever: Path, tmp_path: Path) -> None:
    found = run_protocol(Answers(collection, "dev"), retriever, tmp_path / "out", name="tiny")
    assert found.per_query == in_a_loop(retriever, collection, set(load_answers(collection)))
    assert len(found.per_query["answer_recall@2"]) == 24


def test_it_takes_what_was_built_of_questions_and_answers(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("what is a cat\t['an animal', 'a pet']\nwhere is rome\t['Italy']\n")
    (tmp_path / "passages.jsonl").write_text(
        "".join(
            json.dumps({"id": str(at), "title": "", "text": text}) + "\n"
            for at, text in enumerate(["A cat is a pet.", "Rome is old.", "Italy is a country."])
        )
    )
    built = build_collection(
        str(tmp_path / "test.csv"), tmp_path / "nq", "dpr", "test", corpus=str(tmp_path / "passages.jsonl")
    )
    found = run_protocol(Answers(built, "test"), "bm25", tmp_path / "out", name="BM25")
    # Nothing in the third passage is asked for: it is not found, though there is room for it.
    assert found.metrics == {"answer_recall@20": 0.5, "answer_recall@100": 0.5}


def test_bm25_finds_nothing_for_words_that_are_nowhere(tmp_path: Path) -> None:
    search = open_search("bm25", ["cat dog", "dog house", "zebra"], tmp_path, 8)
    scores, indices = search(["dog", "unheard", "the"], 10)
    assert sorted(indices[0].tolist()) == [-1, 0, 1]
    assert (indices[1:] == -1).all()
    assert (scores[1:] == 0).all()


def test_ranks_of_answers() -> None:
    texts = ["a cat", "a dog", "", "the dog and the cat"]
    for found, answers, rank in (
        ([1, 0, 3], ["cat"], 2),
        ([2, 1, 0], ["cow", "dog"], 2),
        ([], ["cat"], float("inf")),
        ([3], ["cat and"], float("inf")),
    ):
        assert answer_rank((texts[index] for index in found), answers) == rank


def test_a_collection_without_answers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="answers"):
        Answers(write_dataset(tmp_path / "beir"), "test")


def test_no_query_with_an_answer(collection: Path, tmp_path: Path) -> None:
    folder = tmp_path / "unanswered"
    for name in ("corpus", "queries", "qrels"):
        (folder / name).mkdir(parents=True)
    parquet.write_table(parquet.read_table(collection / "corpus"), folder / "corpus" / "part.parquet")
    parquet.write_table(
        pa.Table.from_pylist([{"id": "q4", "query-id": "q4", "corpus-id": "p0", "score": 1}]).select(
            ["query-id", "corpus-id", "score"]
        ),
        folder / "qrels" / "test.parquet",
    )
    parquet.write_table(parquet.read_table(collection / "queries"), folder / "queries" / "part.parquet")
    with pytest.raises(InputError, match="No query of split 'test'"):
        run_protocol(Answers(folder, "test"), "bm25", tmp_path / "out", name="bad")


def test_a_question_that_nothing_was_found_for_counts_0_where_answers_are_ordered_anew(
    collection: Path, retriever: Path, tmp_path: Path
) -> None:
    shutil.copytree(collection, tmp_path / "data")
    file = tmp_path / "data" / "queries" / "part.parquet"
    rows = parquet.read_table(file).to_pylist()
    rows[0]["text"] = "nowheretobefound"
    parquet.write_table(pa.Table.from_pylist(rows), file)
    out = tmp_path / "out"
    evaluate_tasks(
        {"bm25": "bm25"}, [f"{tmp_path / 'data'}:test"], out, protocol="answers", rerankers={"r": str(retriever)}
    )
    found = RetrievalResult.load(out / "bm25 + r" / "data-test")
    assert found.per_query["answer_recall@20"]["q0"] == 0.0
    assert sum(found.per_query["answer_recall@20"].values()) > 0
