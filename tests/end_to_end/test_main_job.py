"""The main job on real text, small: documentation in, measured retrievers and answers out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from hf_dense.data.collections import load_corpus
from hf_dense.data.python_docs.collection import build_python_docs
from hf_dense.errors import InputError
from hf_dense.experiments.comparison import Settings, Variant, VariantResult, run_bm25, run_variant
from hf_dense.experiments.comparison_report import compare_to, format_table, write_report
from hf_dense.search.index import SearchIndex, build_index

pytestmark = pytest.mark.slow
BASELINE = Variant("no pre-training")
PRETRAINED = [Variant("RetroMAE", method="retromae"), Variant("CoT-MAE", method="cotmae")]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("main_job")


@pytest.fixture(scope="module")
def settings(work: Path) -> Settings:
    collection = build_python_docs(work / "python_docs", packages=["numpy"], length=48, progress=False)
    return Settings(
        collection=str(collection),
        hidden=64,
        vocabulary=2000,
        labelled=200,
        pretraining={"max_steps": 10, "logging_steps": 5, "save_strategy": "steps", "save_steps": 5},
        finetuning={"max_steps": 10, "per_device_train_batch_size": 16, "learning_rate": 1e-3, "temperature": 0.05},
    )


@pytest.fixture(scope="module")
def results(work: Path, settings: Settings) -> list[VariantResult]:
    runs = [run_variant(settings, variant, work / variant.name) for variant in [BASELINE, *PRETRAINED]]
    return [run_bm25(settings, work / "bm25"), *runs]


def test_every_retriever_is_measured(work: Path, settings: Settings, results: list[VariantResult]) -> None:
    assert [result.name for result in results] == ["BM25", "no pre-training", "RetroMAE", "CoT-MAE"]
    assert results[0].retrieval.metrics["mrr@10"] > 0.2  # BM25 finds documentation by its words
    comparisons = compare_to(results[1], results, "mrr@10")
    assert set(comparisons) == {"BM25", "RetroMAE", "CoT-MAE"}
    assert len(format_table(results).splitlines()) == 6
    for path in write_report(results, settings, comparisons, work / "report"):
        assert path.stat().st_size > 1000
    facts = json.loads((work / "report" / "results.json").read_text())
    assert {"commit", "seed", "hardware", "versions", "data", "results", "settings"} <= set(facts)


def test_a_pre_trained_start_logs_its_losses(results: list[VariantResult]) -> None:
    for result in results[2:]:
        assert {"loss", "encoder_loss", "decoder_loss"} <= set(result.pretraining_history[0])
    assert results[1].pretraining_history == []


def test_a_finished_run_is_read_back(work: Path, settings: Settings, results: list[VariantResult]) -> None:
    again = run_variant(settings, PRETRAINED[0], work / "RetroMAE")
    assert again == results[2]


def test_other_settings_are_refused(work: Path, settings: Settings, results: list[VariantResult]) -> None:
    with pytest.raises(InputError, match="another seed"):
        run_variant(replace(settings, seed=1), PRETRAINED[0], work / "RetroMAE")


def test_the_model_answers_questions(work: Path, settings: Settings, results: list[VariantResult]) -> None:
    model = results[1].model
    assert model is not None
    assert SentenceTransformer(model).get_embedding_dimension() == 64
    index = SearchIndex.load(build_index(model, load_corpus(settings.collection), work / "index"), model)
    assert len(index.search("sort an array along an axis", 3)) == 3
