from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from json_lines import write_lines
from mteb.results import TaskResult
from pyarrow import parquet
from sentence_transformers import SentenceTransformer
from tiny_retriever import write_retriever

from hf_dense import InputError
from hf_dense.data.collections import load_corpus, load_qrels, load_queries
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.evaluation.measures import METRICS, score_queries
from hf_dense.evaluation.result import RetrievalResult, load_rankings
from hf_dense.evaluation.retrieval import build_task, evaluate_retriever
from hf_dense.search.first_stage import open_search
from hf_dense.storage.manifest import MANIFEST


def brute_force(retriever: Path, dataset: Path) -> dict[str, dict[str, float]]:
    """Compute the three metrics from the full ranking, by their definitions."""
    model = SentenceTransformer(str(retriever))
    corpus, queries, qrels = load_corpus(dataset), load_queries(dataset), load_qrels(dataset, "test")
    texts = [f"{row['title']} {row['text']}".strip() for row in corpus]
    scores = model.encode(queries["text"][:]) @ model.encode(texts).T
    ids = np.array(corpus["id"][:])
    values: dict[str, dict[str, float]] = {metric: {} for metric in METRICS}
    for query, row in zip(queries["id"], scores, strict=True):
        hits = [qrels[query].get(passage, 0) for passage in ids[np.argsort(-row)]]
        ideal = sum(1 / np.log2(rank + 2) for rank in range(min(10, sum(hits))))
        values["ndcg@10"][query] = sum(hit / np.log2(rank + 2) for rank, hit in enumerate(hits[:10])) / ideal
        values["mrr@10"][query] = max((hit / (rank + 1) for rank, hit in enumerate(hits[:10])), default=0)
        values["recall@100"][query] = sum(hits[:100]) / sum(hits)
    return values


def test_metrics_per_query_equal_their_definition_and_average_to_mtebs(
    retriever: Path, dataset: Path, tmp_path: Path
) -> None:
    result = evaluate_retriever(retriever, dataset, "test", name="random", out=tmp_path / "out")

    expected = brute_force(retriever, dataset)
    for metric in METRICS:
        assert result.per_query[metric] == pytest.approx(expected[metric], abs=1e-6), metric
        mean = np.mean(list(result.per_query[metric].values()))
        assert result.metrics[metric] == pytest.approx(mean, abs=6e-6), metric
    assert 0.2 < result.metrics["recall@100"] < 1
    assert len(result.per_query["mrr@10"]) == 40
    assert RetrievalResult.load(tmp_path / "out") == result
    tokenizer, passages, asked = (
        SentenceTransformer(str(retriever)).tokenizer,
        load_corpus(dataset),
        load_queries(dataset),
    )
    read = [*(f"{row['title']} {row['text']}".strip() for row in passages), *asked["text"]]
    lengths = [len(ids) for ids in tokenizer(read, truncation=True, max_length=32)["input_ids"]]
    assert result.origin["tokens"] == sum(lengths)
    assert 0 < result.origin["query_seconds"] < result.seconds
    assert 0 < result.origin["search_seconds"] < result.seconds
    assert (result.origin["passages"], result.origin["bytes_per_passage"]) == (300, 4 * 32)
    assert 2**26 < result.origin["peak_memory"] < 2**36


def test_bm25_finds_the_passages_that_share_a_word(dataset: Path, tmp_path: Path) -> None:
    result = evaluate_retriever("bm25", dataset, "test", name="BM25", out=tmp_path / "out")

    assert result.metrics["mrr@10"] == 1
    for metric in METRICS:
        mean = np.mean(list(result.per_query[metric].values()))
        assert result.metrics[metric] == pytest.approx(mean, abs=6e-6), metric


def test_bm25_finds_accents_however_they_are_written(tmp_path: Path) -> None:
    rows = {"corpus": [("a", "übung"), ("b", "u"), ("c", "bung")], "queries": [("q", "u\u0308bung")]}
    for name, texts in rows.items():
        lines = [json.dumps({"_id": key, "title": "", "text": text}) for key, text in texts]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    result = evaluate_retriever("bm25", tmp_path, "test", name="BM25", out=tmp_path / "out")
    assert result.metrics["mrr@10"] == 1
    assert load_rankings(tmp_path / "out", 10)["q"].keys() == {"a"}


def test_second_local_model_does_not_get_the_scores_of_the_first(
    retriever: Path, dataset: Path, tmp_path: Path
) -> None:
    other = write_retriever(tmp_path / "other", seed=1)
    results = [
        evaluate_retriever(model, dataset, "test", name="same name", out=tmp_path / str(index))
        for index, model in enumerate([retriever, other, retriever])
    ]
    assert results[0].metrics == results[2].metrics
    assert results[0].metrics != results[1].metrics


def test_rankings_and_mtebs_scores_are_kept(retriever: Path, dataset: Path, tmp_path: Path) -> None:
    result = evaluate_retriever(retriever, dataset, "test", name="kept", out=tmp_path / "out")

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        MANIFEST,
        "rankings.parquet",
        "result.json",
        "scores.json",
    ]
    found = TaskResult.from_disk(tmp_path / "out" / "scores.json").scores["test"][0]
    for metric in (*METRICS, "recall@1000"):
        assert found[metric.replace("@", "_at_")] == pytest.approx(result.metrics[metric], abs=1e-5), metric
    rankings: dict[str, dict[str, float]] = {}
    for row in parquet.read_table(tmp_path / "out" / "rankings.parquet").to_pylist():
        rankings.setdefault(row["query-id"], {})[row["corpus-id"]] = row["score"]
        assert row["rank"] == len(rankings[row["query-id"]])
    assert {len(ranking) for ranking in rankings.values()} == {300}
    again = score_queries(load_qrels(dataset, "test"), rankings)
    assert again == result.per_query


def test_a_thousand_passages_of_a_query_are_kept_and_read_as_deep_as_wanted(tmp_path: Path) -> None:
    scores = {f"p{at}": at % 500 / 7 for at in range(1100)}
    RetrievalResult("deep", "test", {}, {}, 0.0).save(tmp_path, {"q": scores, "none": {}, "other": {"p1": -1.0}})
    best = sorted(scores, key=lambda passage: (scores[passage], passage), reverse=True)
    assert load_rankings(tmp_path) == {
        "q": {passage: scores[passage] for passage in best[:1000]},
        "other": {"p1": -1.0},
    }
    assert [*load_rankings(tmp_path, 7)["q"]] == best[:7]


def test_only_queries_with_a_relevant_passage_count(dataset: Path) -> None:
    task = build_task(dataset, "test")
    data = task.dataset["default"]["test"]
    assert set(data["queries"]["id"]) == set(data["relevant_docs"])
    assert len(data["corpus"]) == 300


def test_score_queries_by_hand() -> None:
    qrels = {"first": {"a": 1}, "third": {"c": 1, "z": 1}, "beyond": {"k": 1}, "unranked": {"a": 1}}
    ranking = {passage: 1.0 - rank / 100 for rank, passage in enumerate("abcdefghijklm")}
    values = score_queries(qrels, dict.fromkeys(("first", "third", "beyond"), ranking))
    assert values["mrr@10"] == pytest.approx({"first": 1, "third": 1 / 3, "beyond": 0, "unranked": 0})
    assert values["recall@100"] == pytest.approx({"first": 1, "third": 0.5, "beyond": 1, "unranked": 0})
    assert values["ndcg@10"]["third"] == pytest.approx(0.5 / (1 + 1 / np.log2(3)))


def test_an_evaluation_does_not_replace_a_model(retriever: Path, dataset: Path) -> None:
    with pytest.raises(InputError, match="another kind of output"):
        evaluate_retriever("bm25", dataset, "test", name="BM25", out=retriever)
    assert (retriever / "modules.json").is_file()


def test_no_result_to_load(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no evaluation result .*result.json\.$"):
        RetrievalResult.load(tmp_path)
    (tmp_path / "mine" / "task").mkdir(parents=True)
    (tmp_path / "mine" / "task" / "result.json").write_text("{}")
    for place in (tmp_path, tmp_path / "mine"):
        with pytest.raises(InputError, match=r"no evaluation result .*; .*mine/task has one"):
            RetrievalResult.load(place)


def test_queries_without_words_and_judgements_of_unknown_passages_are_named(dataset: Path, tmp_path: Path) -> None:
    folder = tmp_path / "beir"
    shutil.copytree(dataset, folder)
    lines = (folder / "queries.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    (folder / "queries.jsonl").write_text("\n".join([json.dumps({**first, "text": " "}), *lines[1:]]))
    with pytest.raises(InputError, match=f"The query '{first['_id']}' of .* is empty"):
        build_task(folder, "test")
    (folder / "queries.jsonl").write_text("\n".join(lines))
    with (folder / "qrels" / "test.tsv").open("a") as qrels:
        qrels.write(f"\n{first['_id']}\tnowhere\t1\n")
    with pytest.raises(InputError, match=f"name 'nowhere' for query '{first['_id']}', which is not in the corpus"):
        build_task(folder, "test")


def test_a_retriever_without_a_tokenizer_is_refused(retriever: Path, dataset: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(retriever, bare, ignore=shutil.ignore_patterns("tokenizer*", "vocab*", "special_tokens*"))
    with pytest.raises(InputError, match="tokenizer"):
        evaluate_retriever(bare, dataset, "test", name="bare", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_bm25_reads_passages_by_their_language(tmp_path: Path) -> None:
    towns, query = ("Stadt", "Insel", "Städte", "Dörfer", "Küste"), "was wird aus dem Haus in der Stadt"
    said = "Die Häuser der {} wurden nicht von den Leuten verkauft, und sie sind noch da."
    rows = [{"_id": town, "text": said.format(town)} for town in towns]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": query}))
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tStadt\t1\n")
    evaluate_retriever("bm25", tmp_path, "test", name="bm25", out=tmp_path / "out")
    found = load_rankings(tmp_path / "out")["q"]
    assert found["Stadt"] == found["Städte"] > found["Insel"] == found["Küste"] > 0, "Städte and Häuser have stems"
    (scores,), _ = open_search("bm25", PassageTexts(load_corpus(tmp_path)), tmp_path / "words", 8)([query], 5)
    assert sorted(found.values()) == pytest.approx(sorted(scores.tolist()))


def test_bm25_gets_nothing_for_what_it_has_not_found(dataset: Path, tmp_path: Path) -> None:
    shutil.copytree(dataset, tmp_path / "data")
    rows = [json.loads(line) for line in (tmp_path / "data" / "queries.jsonl").read_text().splitlines()]
    asked = [{**row, "text": "nowheretobefound"} for row in rows]
    write_lines(tmp_path / "data" / "queries.jsonl", asked)
    result = evaluate_retriever("bm25", tmp_path / "data", "test", name="bm25", out=tmp_path / "out")
    assert result.metrics["recall@100"] == result.metrics["mrr@10"] == 0.0
    assert len(result.per_query["mrr@10"]) == 40
