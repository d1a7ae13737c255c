"""MTEB searches with our model what it finds with its own wrapper, and a killed search goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from sentence_transformers import SentenceTransformer
from tiny_retriever import write_hybrid, write_retriever
from watched import Watched

from hf_dense import InputError
from hf_dense.data.collections import load_corpus, load_queries
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.evaluation.documents import Documents
from hf_dense.evaluation.mteb_model import SearchingRetriever
from hf_dense.evaluation.retrieval import Passages, build_task, evaluate_retriever
from hf_dense.evaluation.runner import run_protocol
from hf_dense.search import dense as vectors
from hf_dense.search.hybrid import bytes_per_passage

DENSE, SPARSE = 8, 20


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hybrid(tmp_path_factory.mktemp("hybrid"), DENSE, SPARSE)


def predictions(model: Any, task: AbsTaskRetrieval, folder: Path) -> dict[str, dict[str, float]]:
    """What MTEB finds with a model, of which the first 1,000 of each query."""
    mteb.evaluate(model, task, cache=None, prediction_folder=folder, co2_tracker=False, encode_kwargs={"batch_size": 8})
    written = json.loads((folder / task.prediction_file_name).read_text())
    found: dict[str, dict[str, float]] = written["default"]["test"]
    return found


def with_instructions(data: dict[str, Any]) -> None:
    rows = data["queries"]
    data["queries"] = rows.add_column("instruction", ["abc" if at % 2 else "" for at in range(len(rows))])


def with_candidates(data: dict[str, Any]) -> None:
    names = data["corpus"]["id"][:]
    data["top_ranked"] = {query: names[at : at + 7] for at, query in enumerate(data["queries"]["id"])}


@pytest.mark.parametrize("change", [lambda data: None, with_instructions, with_candidates])
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_it_finds_what_mtebs_own_wrapper_finds(
    dataset: Path, tmp_path: Path, similarity: str, change: Callable[[dict[str, Any]], None]
) -> None:
    loaded = SentenceTransformer(str(write_retriever(tmp_path / "model", similarity=similarity)))
    loaded.prompts = {"query": "ask ", "document": "read "}
    tasks = [build_task(dataset, "test") for _ in range(2)]
    for task in tasks:
        change(task.dataset["default"]["test"])
    theirs = predictions(loaded, tasks[0], tmp_path / "theirs")
    ours = predictions(SearchingRetriever(loaded, tmp_path / "work"), tasks[1], tmp_path / "ours")
    assert ours.keys() == theirs.keys()
    assert len(theirs) == 40
    for query, found in theirs.items():
        assert ours[query] == pytest.approx(found, abs=1e-5)


def test_queries_that_are_no_texts_are_refused(dataset: Path, retriever: Path, tmp_path: Path) -> None:
    model = SearchingRetriever(SentenceTransformer(str(retriever)), tmp_path)
    model.index(load_corpus(dataset))
    talk = Dataset.from_dict({"id": ["q"], "text": [["hello", "what is a cat"]]})
    with pytest.raises(InputError, match="no texts"):
        model.search(talk, hf_split="test", hf_subset="default", top_k=3, encode_kwargs={"batch_size": 8})


def test_a_killed_evaluation_goes_on_with_its_vectors(
    dataset: Path, retriever: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "BLOCK", 128)
    whole = evaluate_retriever(retriever, dataset, "test", name="whole", out=tmp_path / "whole")
    model = SentenceTransformer(str(retriever))
    watched = Watched(model, monkeypatch, most=128)
    with pytest.raises(KeyboardInterrupt):
        evaluate_retriever(model, dataset, "test", name="cut", out=tmp_path / "cut")
    assert not (tmp_path / "cut").exists()
    watched.go_on()
    again = evaluate_retriever(model, dataset, "test", name="cut", out=tmp_path / "cut")
    assert watched.counts == [64, 64, 44], "the block that was whole is not encoded again"
    assert again.per_query == whole.per_query
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "whole"]


@pytest.mark.parametrize("protocol", [Passages.load, Documents])
def test_hybrid_vectors_are_searched_sparse(dataset: Path, hybrid: Path, tmp_path: Path, protocol: Any) -> None:
    result = run_protocol(protocol(dataset, "test"), hybrid, tmp_path / "out", name="hybrid")
    model = SentenceTransformer(str(hybrid), trust_remote_code=True)
    corpus, queries = load_corpus(dataset), load_queries(dataset)
    scores = model.encode_query(queries["text"][:]) @ model.encode_document(list(PassageTexts(corpus))).T
    relevant = build_task(dataset, "test").dataset["default"]["test"]["relevant_docs"]
    metric = "recall@100"
    for query, row in zip(queries["id"], scores, strict=True):
        best = {corpus["id"][place] for place in np.argsort(-row)[:100]}
        wanted = {passage for passage, grade in relevant[query].items() if grade > 0}
        assert result.per_query[metric][query] == pytest.approx(len(best & wanted) / len(wanted))
    assert 0 < result.metrics[metric] < 1
    assert result.origin["bytes_per_passage"] == bytes_per_passage(DENSE, SPARSE, 100)
    assert result.origin["search_seconds"] > 0
