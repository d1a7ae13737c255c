"""Indexes as they are asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_retriever import write_retriever

from hf_dense.data.collections import load_qrels
from hf_dense.evaluation.result import load_rankings
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.experiments.asked import fused_weight, measure
from hf_dense.search.fusion import fuse
from hf_dense.search.index import SearchIndex, build_index
from hf_dense.storage.output import Output


@pytest.fixture(scope="module")
def index(collection: Path, tmp_path_factory: pytest.TempPathFactory) -> SearchIndex:
    model = write_retriever(tmp_path_factory.mktemp("model") / "retriever")
    return SearchIndex.load(build_index(model, collection, model.parent / "index"), model)


def test_an_index_finds_what_an_evaluation_of_its_model_finds(
    index: SearchIndex, collection: Path, tmp_path: Path
) -> None:
    found = measure(index, collection, "test", 1.0, Output(tmp_path / "own"), "arm")
    expected = evaluate_retriever(index.retriever, collection, "test", name="arm", out=tmp_path / "mteb")
    assert found.metrics == pytest.approx({name: expected.metrics[name] for name in found.metrics}, abs=1e-6)
    measure(index, collection, "test", 0.0, Output(tmp_path / "words"), "BM25")
    evaluate_retriever("bm25", collection, "test", name="BM25", out=tmp_path / "mteb-words")
    whole = load_rankings(tmp_path / "mteb-words")
    for query, scores in load_rankings(tmp_path / "words").items():
        assert list(scores) == [name for name, score in whole[query].items() if score > 0]


def test_a_measurement_is_read_back_only_for_its_own_model_and_weight(
    index: SearchIndex, collection: Path, tmp_path: Path
) -> None:
    out = Output(tmp_path / "own")
    first = measure(index, collection, "test", 1.0, out, "arm")
    assert measure(index, collection, "test", 1.0, out, "another name").metrics == first.metrics
    with pytest.raises(ValueError, match="another"):
        measure(index, collection, "test", 0.5, out, "arm")
    model = write_retriever(tmp_path / "other", seed=1)
    other = SearchIndex.load(build_index(model, collection, tmp_path / "index"), model)
    with pytest.raises(ValueError, match="another model"):
        measure(other, collection, "test", 1.0, out, "arm")


def test_the_weight_is_the_best_of_all_on_the_queries_it_is_chosen_by(
    index: SearchIndex, collection: Path, tmp_path: Path
) -> None:
    for weight in (0.0, 1.0):
        measure(index, collection, "dev", weight, Output(tmp_path / f"{weight}"), "arm")
    dense, lexical = (load_rankings(tmp_path / f"{weight}") for weight in (1.0, 0.0))
    qrels = load_qrels(collection, "dev")
    weight = fused_weight(tmp_path / "1.0", tmp_path / "0.0", collection, "dev")
    worth = {
        tried: measure(index, collection, "dev", tried, Output(tmp_path / f"{tried}"), "arm").metrics["ndcg@10"]
        for tried in (0.0, weight, 1.0)
    }
    assert worth[weight] == max(worth.values())
    kept = load_rankings(tmp_path / f"{weight}")
    for query in qrels:
        fused = fuse(dense[query], lexical.get(query, {}), weight)
        chosen = {name: fused[name] for name in kept[query]}
        assert kept[query] == pytest.approx(chosen, abs=1e-6), "asked as it was chosen"
    assert fused_weight(tmp_path / "1.0", tmp_path / "1.0", collection, "dev") == 0.5, "of equals the middle one"
