"""Filtered collections: who stays is what an exhaustive search or the cross-encoder says, and all else is as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from huggingface_hub import HfApi
from json_lines import write_lines
from manifests import manifest_of
from pyarrow import parquet
from sentence_transformers import CrossEncoder
from tiny_retriever import random_words, write_cross_encoder, write_retriever

from hf_dense.data import hub_names
from hf_dense.data.collections import content_hash, load_corpus, load_qrels, load_queries
from hf_dense.data.schemas import TRAINING
from hf_dense.errors import InputError
from hf_dense.finetuning import filtering, scoring
from hf_dense.finetuning.filtering import filter_collection
from hf_dense.hub.loading import load_retriever

WORDS = random_words(120)
TEXTS = {f"p{at}": " ".join(WORDS[4 * at : 4 * at + 4]) for at in range(30)}
# The words of each query are those of its first passage, where the number is even.
QUERIES = {f"q{at}": " ".join(TEXTS[f"p{at if at % 2 == 0 else at + 10}"].split()[:2]) for at in range(12)}
TRAIN = {f"q{at}": {f"p{at}": 1} for at in range(9)} | {"q9": {"p1": 1, "p19": 2, "p3": 0}, "q10": {"p2": 0}}
TEST = {"q1": {"p1": 1}, "q11": {"p11": 1}}
FOUND = {"q0", "q2", "q4", "q6", "q8", "q9"}  # by BM25; q9 by one of its two passages


def write_collection(folder: Path) -> Path:
    """A BEIR folder, whose queries have one more column, with training lists."""
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": name, "title": "", "text": text} for name, text in TEXTS.items()]
    queries = [{"_id": name, "text": text, "kind": f"kind {name}"} for name, text in QUERIES.items()]
    for table, rows in (("corpus", corpus), ("queries", queries)):
        write_lines(folder / f"{table}.jsonl", rows)
    for split, graded in (("train", TRAIN), ("test", TEST)):
        lines = [f"{query}\t{name}\t{grade}" for query, grades in graded.items() for name, grade in grades.items()]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    (folder / "negatives").mkdir()
    row = {"negatives": ["p29"], "positive_scores": [], "negative_scores": []}
    rows = [{"query_id": name, "query": QUERIES[name], "positives": [*grades], **row} for name, grades in TRAIN.items()]
    table = pa.Table.from_pylist(rows, schema=TRAINING.arrow_schema)
    parquet.write_table(table, folder / "negatives" / "train.parquet")
    return folder


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_collection(tmp_path_factory.mktemp("collection") / "data")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cross_encoder(tmp_path_factory.mktemp("teacher") / "model")


def logits(teacher: Path) -> dict[str, float]:
    """The best score of each training query."""
    model = CrossEncoder(str(teacher), activation_fn=torch.nn.Identity())
    relevant = {query: [name for name, grade in grades.items() if grade > 0] for query, grades in TRAIN.items()}
    return {
        query: float(max(model.predict([(QUERIES[query], TEXTS[name]) for name in names])))
        for query, names in relevant.items()
        if names
    }


def test_queries_that_miss_their_passage_go_with_their_lists(collection: Path, tmp_path: Path) -> None:
    out = filter_collection(collection, tmp_path / "out", within=1)
    assert load_qrels(out, "train") == {name: grades for name, grades in TRAIN.items() if name in FOUND | {"q10"}}
    assert load_qrels(out, "test") == TEST
    assert load_corpus(out).to_dict() == load_corpus(collection).to_dict()
    kept = [name for name in QUERIES if name in {*FOUND, "q10", "q11", "q1"}]  # q1 is judged in test too
    assert parquet.read_table(out / "queries").to_pylist() == [
        {"id": name, "text": QUERIES[name], "kind": f"kind {name}"} for name in kept
    ]
    lists = parquet.read_table(out / "negatives" / "train.parquet").column("query_id").to_pylist()
    assert set(lists) == FOUND | {"q10"}
    card = (out / "README.md").read_text()
    assert "| queries of train | 7 |" in card
    assert "| queries of train that do not find a passage within 1 | 4 |" in card
    assert "favour" not in card
    again = filter_collection(out, tmp_path / "again", within=1)
    assert content_hash(again) != content_hash(collection)
    assert load_qrels(again, "train") == load_qrels(out, "train")
    assert (again / "corpus" / "part-00000.parquet").read_bytes() == (
        out / "corpus" / "part-00000.parquet"
    ).read_bytes()


def test_a_collection_of_the_hub_is_filtered_as_its_directory(
    hub_here: HfApi, collection: Path, tmp_path: Path
) -> None:
    hub_names._fetched.cache_clear()
    hub_here.create_repo("someone/judged", repo_type="dataset", exist_ok=True)
    hub_here.upload_folder(repo_id="someone/judged", repo_type="dataset", folder_path=collection)
    found = filter_collection("someone/judged", tmp_path / "found", within=1)
    expected = filter_collection(collection, tmp_path / "expected", within=1)
    assert content_hash(found) == content_hash(expected)
    lists = [parquet.read_table(out / "negatives" / "train.parquet") for out in (found, expected)]
    assert lists[0] == lists[1]
    manifest = manifest_of(found)
    assert manifest.sources["lists"] == manifest.sources["collection"] == "someone/judged"
    hub_names._fetched.cache_clear()


def test_other_splits_are_filtered_when_they_are_named(collection: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No query of split 'test' would be left: out go 2 that do not find a passage"):
        filter_collection(collection, tmp_path / "out", ["test"], within=1)
    out = filter_collection(collection, tmp_path / "out", ["test", "train"], within=len(TEXTS), by=[tiny(tmp_path)])
    assert load_qrels(out, "test") == TEST, "an exhaustive search finds all"
    assert "favour the models" in (out / "README.md").read_text()


def tiny(tmp_path: Path) -> Path:
    return write_retriever(tmp_path / "retriever", seed=1)


def test_a_query_stays_when_any_retriever_finds_its_passage(collection: Path, tmp_path: Path) -> None:
    model = load_retriever(tiny(tmp_path))
    names = list(TEXTS)
    scores = model.similarity(model.encode_query([*QUERIES.values()]), model.encode_document([*TEXTS.values()])).numpy()
    first = {query: {names[at] for at in np.argsort(-row)[:3]} for query, row in zip(QUERIES, scores, strict=True)}
    dense = {query for query, grades in TRAIN.items() if any(grades[name] > 0 for name in first[query] & grades.keys())}
    assert dense - FOUND, "or this says nothing"
    assert FOUND - dense
    for by, expected in (([model], dense), (["bm25", model], dense | FOUND)):
        out = filter_collection(collection, tmp_path / f"out{len(by)}", within=3, by=by)
        assert set(load_qrels(out, "train")) == expected | {"q10"}


def test_a_cross_encoder_reads_what_the_search_has_left(
    collection: Path, teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = logits(teacher)
    least = float(np.median([best[name] for name in FOUND]))
    out = filter_collection(collection, tmp_path / "alone", teacher=teacher, least=least)
    assert set(load_qrels(out, "train")) == {name for name, score in best.items() if score >= least} | {"q10"}

    monkeypatch.setattr(scoring, "_PIECE", 2)
    scored, done = scoring._scored, []

    def killed(*given: Any) -> pa.Table:
        done.append(given)
        if len(done) == 2:
            raise KeyboardInterrupt
        return scored(*given)

    options: dict[str, Any] = {"within": 1, "teacher": teacher, "least": least}
    monkeypatch.setattr(scoring, "_scored", killed)
    with pytest.raises(KeyboardInterrupt):
        filter_collection(collection, tmp_path / "both", **options)
    with monkeypatch.context() as patch:
        patch.setattr(filtering, "open_search", None)  # what was found is not searched again
        out = filter_collection(collection, tmp_path / "both", **options)
    assert len(done) == 4, "six queries are three pieces, one of them read twice"
    kept = {name for name in FOUND if best[name] >= least}
    assert set(load_qrels(out, "train")) == kept | {"q10"}
    manifest = manifest_of(out)
    counts = manifest.facts["counts"]
    assert counts["queries of train that do not find a passage within 1"] == 4
    assert counts[f"queries of train that the cross-encoder scores below {least}"] == len(FOUND) - len(kept) > 0
    assert not (tmp_path / "both.partial").exists()


def test_a_document_is_found_by_any_of_its_passages(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    rows = [
        {"id": name, "title": "", "text": text, "document": f"d{at // 3}"}
        for at, (name, text) in enumerate(TEXTS.items())
    ]
    for name in ("corpus", "queries", "qrels"):
        (folder / name).mkdir(parents=True)
    for part in (0, 1):
        parquet.write_table(pa.Table.from_pylist(rows[15 * part :][:15]), folder / "corpus" / f"part-{part}.parquet")
    parquet.write_table(
        pa.table({"id": ["a", "b"], "text": [TEXTS["p5"], TEXTS["p6"]]}), folder / "queries" / "0.parquet"
    )
    qrels = pa.table({"query-id": ["a", "b"], "corpus-id": ["d1", "d1"], "score": pa.array([1, 1], pa.int32())})
    parquet.write_table(qrels, folder / "qrels" / "train.parquet")
    out = filter_collection(folder, tmp_path / "out", within=1)
    assert load_qrels(out, "train") == {"a": {"d1": 1}}
    assert load_queries(out)["id"][:] == ["a"]
    assert [file.name for file in sorted((out / "corpus").iterdir())] == ["part-0.parquet", "part-1.parquet"]
    assert not (out / "negatives").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Say what queries must do"),
        ({"within": 0}, "within is 0; it is a number of first passages"),
        ({"within": 1, "by": []}, "Name a retriever"),
        ({"within": 1, "by": ["nowhere/at/all"]}, "nowhere/at/all"),
        ({"within": 1, "splits": ["train", "train"]}, "name each once"),
        ({"within": 1, "splits": ["dev"]}, "no relevance judgements for split 'dev'; it has test, train"),
        ({"within": 1, "batch_size": 0}, "batch_size is 0"),
        ({"teacher": "nowhere/at/all"}, "nowhere/at/all"),
        (
            {"teacher": True, "least": 99.0},
            "No query of split 'train' would be left: out go 10 that the cross-encoder scores below 99.0",
        ),
    ],
)
def test_bad_input_leaves_nothing_behind(
    options: dict[str, Any], message: str, collection: Path, teacher: Path, tmp_path: Path
) -> None:
    if options.get("teacher") is True:
        options = {**options, "teacher": teacher}
    with pytest.raises(InputError, match=message):
        filter_collection(collection, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_other_lists_or_another_k_are_refused(collection: Path, tmp_path: Path) -> None:
    copy = write_collection(tmp_path / "data")
    filter_collection(copy, tmp_path / "out", within=1)
    with pytest.raises(InputError, match=r"made from another within \(1, now 2\)"):
        filter_collection(copy, tmp_path / "out", within=2)
    table = parquet.read_table(copy / "negatives" / "train.parquet")
    parquet.write_table(table.slice(1), copy / "negatives" / "train.parquet")
    with pytest.raises(InputError, match="made from other lists"):
        filter_collection(copy, tmp_path / "out", within=1)
