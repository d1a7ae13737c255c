"""What kinds of indexes find: measured against the exact search, with the figures of an evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.image import imread
from tiny_retriever import write_dataset

from hf_dense.commands.main import main
from hf_dense.data.collections import load_corpus, load_qrels
from hf_dense.errors import InputError
from hf_dense.evaluation.index_kinds import compare_kinds
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.search.approximate import CandidateIndex
from hf_dense.search.dense import Floats, Indices, Vectors
from hf_dense.search.index import SearchIndex, build_index


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, retriever: Path, dataset: Path) -> SearchIndex:
    return SearchIndex.load(
        build_index(retriever, dataset, tmp_path_factory.mktemp("index") / "of", kind="int8"), retriever
    )


def test_figures_are_those_of_an_evaluation(index: SearchIndex, retriever: Path, dataset: Path, tmp_path: Path) -> None:
    rows = {row.kind: row for row in compare_kinds(index, dataset, "test")}
    assert list(rows) == ["exact", "hnsw", "ivfpq", "int8", "binary"]
    measured = evaluate_retriever(retriever, dataset, "test", name="mine", out=tmp_path / "out").metrics
    assert rows["exact"].ndcg_10 == pytest.approx(measured["ndcg@10"], abs=1e-6)
    assert rows["exact"].recall_100 == pytest.approx(measured["recall@100"], abs=1e-6)
    assert (rows["exact"].found_10, rows["exact"].found_100, rows["exact"].bytes) == (1, 1, 0)
    assert rows["hnsw"].found_10 > 0.99
    dimensions = next(iter(index.vectors)).shape[1]
    assert dimensions <= rows["int8"].bytes < 2 * dimensions < rows["hnsw"].bytes
    assert all(row.milliseconds > 0 for row in rows.values())


def test_what_is_not_found_is_counted(index: SearchIndex, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = CandidateIndex.search

    def half(self: CandidateIndex, queries: Floats, k: int, vectors: Vectors) -> tuple[Floats, Indices]:
        scores, rows = search(self, queries, k, vectors)
        rows[:, k // 2 :] = -1
        return scores, rows

    monkeypatch.setattr(CandidateIndex, "search", half)
    exact, halved = compare_kinds(index, dataset, "test", ["int8"])
    assert (halved.found_10, halved.found_100) == (pytest.approx(0.5, abs=0.02), pytest.approx(0.5, abs=0.02))
    assert halved.recall_100 < exact.recall_100


def test_what_cannot_be_compared(retriever: Path, dataset: Path, index: SearchIndex, tmp_path: Path) -> None:
    few = write_dataset(tmp_path / "few", passages=40, queries=4)
    small = SearchIndex.load(build_index(retriever, few, tmp_path / "index"), retriever)
    assert [row.kind for row in compare_kinds(small, few, "test")] == ["exact", "hnsw", "int8", "binary"]
    with pytest.raises(InputError, match="has 40 passages; ivfpq learns from at least 256"):
        compare_kinds(small, few, "test", ["ivfpq"])
    with pytest.raises(InputError, match="The kind of index is 'tree'"):
        compare_kinds(index, dataset, "test", ["tree"])
    with pytest.raises(InputError, match="which is not in the corpus"):
        compare_kinds(small, dataset, "test")
    with pytest.raises(InputError, match="dev"):
        compare_kinds(index, dataset, "dev")


def test_passages_that_read_otherwise_than_the_judged_ones_are_named(
    retriever: Path, index: SearchIndex, dataset: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compare_kinds(index, dataset, "test", ["int8"])
    assert "read otherwise" not in caplog.text
    rows = load_corpus(dataset)
    (relevant, *_), *_ = load_qrels(dataset, "test").values()
    changed = rows.map(lambda row: {"text": "cut otherwise"} if row["id"] == relevant else {})
    other = SearchIndex.load(build_index(retriever, changed, tmp_path / "index"), retriever)
    compare_kinds(other, dataset, "test", ["int8"])
    assert f"1 of 54 relevant passages of {dataset} read otherwise in the index" in caplog.text


def test_the_command_draws_them(
    index: SearchIndex, retriever: Path, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["analyse", "kinds", str(index.directory), str(dataset), "--model", str(retriever), "--kinds", "int8"]
    main([*words, "--out", str(tmp_path / "out")])
    assert "kind int8  found_10 " in capsys.readouterr().out
    figures = json.loads((tmp_path / "out" / "kinds.json").read_text(encoding="utf-8"))
    assert [row["kind"] for row in figures["rows"]] == ["exact", "int8"]
    assert figures["provenance"]["data"]["content_hash"]
    assert imread(tmp_path / "out" / "kinds.png").shape[1] > 1000
    main([*words, "--out", str(tmp_path / "out")])
    assert "is there already" in capsys.readouterr().out
