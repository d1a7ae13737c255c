"""The stages, one after the other: each made once, gone on with after a kill, refused where another run's."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pyarrow import parquet
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from tiny_retriever import random_words, tiny_config, tiny_tokenizer, write_encoder
from transformers import ElectraConfig, ElectraForSequenceClassification

from hf_dense.commands.main import main
from hf_dense.errors import InputError
from hf_dense.experiments.pipeline_results import measure_stages
from hf_dense.finetuning import pipeline as pipeline_module
from hf_dense.finetuning.biencoder import _BiencoderTrainer, load_history
from hf_dense.finetuning.pipeline import Pipeline, run_pipeline

STAGES = ("bm25", "retriever1", "mined1", "retriever2", "mined2", "reranker", "scores", "distilled")


def write_collection(folder: Path) -> Path:
    """120 passages of words; a query is two words of its passage."""
    generator, words = random.Random(0), random_words(60)
    texts = [" ".join(generator.choices(words, k=6)) for _ in range(120)]
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": f"p{at}", "title": "", "text": text} for at, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"_id": f"q{at}", "text": " ".join(text.split()[:2])} for at, text in enumerate(texts[:80])]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    for split, span in (("train", range(60)), ("dev", range(60, 80))):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{at}\tp{at}\t1" for at in span)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def write_base(folder: Path) -> Path:
    torch.manual_seed(0)
    sizes = {key: getattr(tiny_config(), key) for key in ("vocab_size", "hidden_size", "num_hidden_layers")}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 64, "embedding_size": 32, "max_position_embeddings": 96}
    ElectraForSequenceClassification(ElectraConfig(**sizes, num_labels=1)).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    training = {
        "max_steps": 6,
        "per_device_train_batch_size": 8,
        "passages": 3,
        "learning_rate": 1e-3,
        "temperature": 0.1,
        "logging_steps": 1,
        "save_steps": 2,
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return {
        "collection": str(write_collection(tmp_path / "collection")),
        "encoder": str(write_encoder(tmp_path / "encoder")),
        "output_dir": str(tmp_path / "run"),
        "max_length": 48,
        "bm25": {"depth": 20},
        "retriever1": training,
        "mined": {"depth": 20},
        "retriever2": training,
        "reranker": {
            **{key: value for key, value in training.items() if key != "temperature"},
            "base": str(write_base(tmp_path / "base")),
            "max_length": 64,
            "kept": 2,
        },
        "distilled": {**training, "distillation": "kl", "contrast": "simlm", "depth": 10},
    }


def files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_all_stages_are_made_once_and_measured(given: dict[str, Any], tmp_path: Path) -> None:
    pipeline = Pipeline.of(given)
    models = run_pipeline(pipeline)
    assert list(models) == ["retriever1", "retriever2", "reranker", "distilled"]
    run = tmp_path / "run"
    assert {path.stem for path in (run / "stages").glob("*.json")} == {"encoder", *STAGES}
    for name in ("retriever1", "retriever2", "distilled"):
        assert SentenceTransformer(str(models[name])).similarity_fn_name == "cosine"
    assert CrossEncoder(str(models["reranker"])).predict([("a", "b")]).shape == (1,)
    scored = parquet.read_table(run / "scores" / "negatives" / "train.parquet").to_pylist()
    assert all(row["positive_scores"] and len(row["negative_scores"]) == len(row["negatives"]) for row in scored)
    before = files(run)
    assert run_pipeline(pipeline) == models
    assert files(run) == before, "nothing is made twice"
    table = measure_stages(pipeline, models, "dev")
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == ["bm25", *models]
    facts = json.loads((run / "results.json").read_text())
    assert facts["results"][2]["before"] == "retriever1"
    assert facts["results"][2]["queries"] == 20
    assert {"low", "high", "p_value"} <= facts["results"][2]["against before"]["mrr@10"].keys()
    assert (run / "metrics.png").stat().st_size > 1000
    with pytest.raises(InputError, match="'train' was trained on; measure on another"):
        measure_stages(pipeline, models, "train")


@pytest.mark.parametrize("stage", ["retriever1", "mined1", "reranker", "scores", "distilled"])
def test_a_killed_stage_is_gone_on_with(given: dict[str, Any], tmp_path: Path, stage: str) -> None:
    whole = run_pipeline(Pipeline.of({**given, "output_dir": str(tmp_path / "whole")}))
    function = {"retriever1": "finetune", "distilled": "finetune", "reranker": "train_reranker"}
    function |= {"mined1": "mine_negatives", "scores": "score_lists"}
    with pytest.MonkeyPatch.context() as patch:
        real, calls = getattr(pipeline_module, function[stage]), []

        def dies(*arguments: Any, **named: Any) -> Any:
            calls.append(arguments)
            place = str(tmp_path / "run" / stage)
            if place in str(arguments) + str(named):
                if stage in ("retriever1", "distilled"):
                    step = _BiencoderTrainer.training_step
                    left = iter(range(4))
                    patch.setattr(
                        _BiencoderTrainer,
                        "training_step",
                        lambda *inner: step(*inner) if next(left, None) is not None else killed(),
                    )
                    return real(*arguments, **named)
                killed()
            return real(*arguments, **named)

        patch.setattr(pipeline_module, function[stage], dies)
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(Pipeline.of(given))
    assert json.loads((tmp_path / "run" / "stages" / f"{stage}.json").read_text())["seconds"] is None
    models = run_pipeline(Pipeline.of(given))
    for name, model in models.items():
        first, second = (load_file(folder / "model.safetensors") for folder in (model, whole[name]))
        assert all(torch.equal(first[key], second[key]) for key in second), name


def killed() -> Any:
    raise KeyboardInterrupt


def test_the_best_checkpoint_on_held_out_queries_is_kept(given: dict[str, Any], tmp_path: Path) -> None:
    given = {**given, "tuning": 0.3, "tuning_passages": 50, "distilled": None}
    for name in ("retriever1", "retriever2", "reranker"):
        given[name] = (
            {**given[name], "eval_steps": 2, "patience": 5} if name != "reranker" else {**given[name], "eval_steps": 2}
        )
    run_pipeline(Pipeline.of(given))
    for name in ("retriever1", "reranker"):
        state = json.loads((tmp_path / "run" / name / "trainer_state.json").read_text())
        key = "eval_tuning_cosine_mrr@10" if name == "retriever1" else "eval_tuning_mrr@10"
        measured = [row[key] for row in state["log_history"] if key in row]
        assert len(measured) == 3
        assert state["best_metric"] == max(measured)


def test_negatives_are_mined_again_while_training(given: dict[str, Any], tmp_path: Path) -> None:
    given = {**given, "reranker": None, "distilled": None}
    given["retriever2"] = {**given["retriever2"], "max_steps": 16, "refresh": 1, "start": "retriever1"}
    whole = run_pipeline(Pipeline.of(given))["retriever2"]
    run = tmp_path / "run" / "retriever2"
    assert sorted(path.name for path in run.glob("refresh-*")) == ["refresh-1", "refresh-2"], "7 steps are a visit"
    first, second = (parquet.read_table(run / f"refresh-{at}/negatives/train.parquet").to_pylist() for at in (1, 2))
    assert [row["negatives"] for row in first] != [row["negatives"] for row in second]
    with pytest.MonkeyPatch.context() as patch:
        step, left = _BiencoderTrainer.training_step, iter(range(10 + 6))  # retriever1 takes six of them
        patch.setattr(
            _BiencoderTrainer,
            "training_step",
            lambda *inner: step(*inner) if next(left, None) is not None else killed(),
        )
        again = {**given, "output_dir": str(tmp_path / "again")}
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(Pipeline.of(again))
    resumed = run_pipeline(Pipeline.of(again))["retriever2"]
    expected, found = (load_file(folder / "model.safetensors") for folder in (whole, resumed))
    assert all(torch.equal(expected[key], found[key]) for key in expected)


def test_a_share_of_the_queries(given: dict[str, Any], tmp_path: Path) -> None:
    given = {**given, "fraction": 0.5, "retriever2": None, "reranker": None, "distilled": None}
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_module, "finetune", lambda model, lists, *rest, **named: seen.append(len(lists)))
        run_pipeline(Pipeline.of(given))
    assert 18 < seen[0] < 42


def test_another_runs_stages_are_left_alone(given: dict[str, Any], tmp_path: Path) -> None:
    given = {**given, "retriever2": None, "reranker": None, "distilled": None}
    run_pipeline(Pipeline.of(given))
    before = files(tmp_path / "run")
    other = {**given, "retriever1": {**given["retriever1"], "learning_rate": 1e-4}}
    with pytest.raises(InputError, match=r"retriever1 was made with another learning_rate; choose another output_dir"):
        run_pipeline(Pipeline.of(other))
    with (tmp_path / "collection" / "corpus.jsonl").open("a") as stream:
        stream.write('{"_id": "new", "title": "", "text": "one more"}\n')
    with pytest.raises(InputError, match=r"bm25 was made with another corpus.jsonl"):
        run_pipeline(Pipeline.of(given))
    assert files(tmp_path / "run") == before
    (tmp_path / "foreign" / "bm25").mkdir(parents=True)
    with pytest.raises(InputError, match="bm25 exists and was not made by this pipeline"):
        run_pipeline(Pipeline.of({**given, "output_dir": str(tmp_path / "foreign")}))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"retriever2": None}, "The section reranker needs retriever2"),
        ({"reranker": None}, "The section distilled needs reranker"),
        ({"retriever1": {"learning": 1}}, "The section retriever1 has the key 'learning', which is no option of it"),
        ({"mined": {"width": 1}}, "The section mined has the key 'width'"),
        ({"retriever1": {"refresh": 1}}, "refresh belongs to the section retriever2, not to retriever1"),
        (
            {"retriever2": {"start": "bm25"}, "reranker": None, "distilled": None},
            "starts from the encoder or from retriever1",
        ),
        ({"tuning": 1.0}, "tuning is 1.0"),
        ({"colection": "x"}, "The section pipeline has the key 'colection'"),
        ({"encoder": None}, "does not say encoder"),
        ({"bm25": [1]}, "The section bm25 must hold"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Pipeline.of({**given, **changes})


@pytest.mark.slow
def test_two_processes_go_through_all_stages(given: dict[str, Any], tmp_path: Path) -> None:
    for name in ("retriever1", "retriever2", "reranker", "distilled"):
        given[name] = {**given[name], "per_device_train_batch_size": 4}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(given))
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--main_process_port", "0", "-m", "hf_dense.commands.main", "finetune", str(tmp_path / "pipeline.yaml")]
    done = subprocess.run(launch, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "| distilled |" in done.stdout
    histories = [load_history(tmp_path / "run" / name) for name in ("retriever1", "distilled")]
    for name in ("retriever1", "retriever2", "reranker", "distilled"):
        given[name] = {**given[name], "per_device_train_batch_size": 8}
    run_pipeline(Pipeline.of({**given, "output_dir": str(tmp_path / "one")}))
    for name, history in zip(("retriever1", "distilled"), histories, strict=True):
        alone = [row["loss"] for row in load_history(tmp_path / "one" / name) if "loss" in row]
        assert [row["loss"] for row in history if "loss" in row] == pytest.approx(alone, rel=0.2)


def test_from_the_command_line(given: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {**given, "retriever2": None, "reranker": None, "distilled": None, "output_dir": "elsewhere"}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(given))
    main(["finetune", str(tmp_path / "pipeline.yaml"), "--output_dir", str(tmp_path / "run")])
    assert "| retriever1 |" in capsys.readouterr().out
