"""The main job on real text, small: documentation in, measured retrievers and answers out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from manifests import manifest_of

from hf_dense.data.python_docs.collection import build_python_docs
from hf_dense.errors import InputError
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.experiments.comparison import Settings, Variant, VariantResult, run_bm25, run_variant, train_variant
from hf_dense.experiments.comparison_report import compare_to, format_table, write_report
from hf_dense.experiments.fused import fuse_best, measure_by_index, place_of
from hf_dense.search.index import SearchIndex
from hf_dense.storage.output import Output

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
        queries=200,
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
    for path in write_report(results, settings, {"no_pretraining": comparisons}, work / "report"):
        assert path.stat().st_size > 1000
    facts = json.loads((work / "report" / "results.json").read_text())
    assert {"commit", "seed", "hardware", "versions", "data", "results", "settings"} <= set(facts)
    assert set(facts["against_no_pretraining"]) == set(comparisons)


def test_a_pre_trained_start_logs_its_losses(results: list[VariantResult]) -> None:
    for result in results[2:]:
        assert {"loss", "encoder_loss", "decoder_loss"} <= set(result.pretraining_history[0])
    assert results[1].pretraining_history == []


def test_a_model_names_the_pairs_that_it_was_fine_tuned_on(work: Path, settings: Settings, results: object) -> None:
    assert manifest_of(work / "RetroMAE" / "finetuned" / "model").sources["pairs"] == f"{settings.collection}:train"


def test_a_finished_run_is_read_back(work: Path, settings: Settings, results: list[VariantResult]) -> None:
    again = run_variant(settings, PRETRAINED[0], work / "RetroMAE")
    assert again == results[2]


def test_other_settings_are_refused(work: Path, settings: Settings, results: list[VariantResult]) -> None:
    with pytest.raises(InputError, match="another seed"):
        run_variant(replace(settings, seed=1), PRETRAINED[0], work / "RetroMAE")


def test_the_best_on_dev_answers_questions_together_with_bm25(
    work: Path, settings: Settings, results: list[VariantResult]
) -> None:
    output = Output(work)
    asked = [
        measure_by_index(
            settings, train_variant(settings, variant, work / variant.name), place_of(variant.name, output)
        )
        for variant in [BASELINE, *PRETRAINED]
    ]
    for result, evaluated in zip(asked, results[1:], strict=True):
        assert result.model == evaluated.model
        for metric, values in result.retrieval.per_query.items():
            found = evaluated.retrieval.per_query[metric]
            differing = [query for query, value in values.items() if abs(value - found[query]) > 1e-6]
            assert len(differing) <= len(values) // 20, "as MTEB finds it, but for scores that differ by rounding alone"
    fused = fuse_best(settings, asked, work)
    on_dev = {
        result.name: evaluate_retriever(
            result.model or "", settings.collection, "dev", name="", out=work / result.name / "d"
        )
        for result in asked
    }
    assert on_dev[fused.best.name].metrics["ndcg@10"] == max(found.metrics["ndcg@10"] for found in on_dev.values())
    write_report([results[0], *asked, fused.both], settings, {}, work / "report of both")
    assert fused.both.name == f"{fused.best.name} + BM25"
    words, both = (result.retrieval.per_query["mrr@10"] for result in (results[0], fused.both))
    assert both.keys() == words.keys()
    words, both = (result.retrieval.metrics for result in (results[0], fused.both))
    assert both["ndcg@10"] > fused.best.retrieval.metrics["ndcg@10"], "BM25 knows more than ten steps of training teach"
    assert both["ndcg@10"] > 0.9 * words["ndcg@10"]
    index = SearchIndex.load(Path(fused.best.model or "") / "index")
    assert index.weight == fused.index.weight < 1, "a search that names no weight asks both"
    assert index.search("sort an array along an axis", 3) == fused.index.search("sort an array along an axis", 3)
    assert fuse_best(settings, asked, work).both == fused.both
