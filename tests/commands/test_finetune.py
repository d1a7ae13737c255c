"""`hf-dense finetune`: one training, or the stages of a configuration."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path

import pytest
from manifests import manifest_of
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from tiny_retriever import write_dataset, write_encoder, write_retriever

from hf_dense.commands import finetune
from hf_dense.commands.main import main
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments

FEW = ["--max_steps", "3", "--per_device_train_batch_size", "4", "--use_cpu", "true", "--disable_tqdm", "true"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data")


def mistake(words: list[str | Path], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["finetune", *map(str, words)])
    assert stopped.value.code == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    return line


def test_one_training_takes_the_trainers_flags(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--model", str(write_retriever(tmp_path / "retriever")), "--collection", str(data)]
    main(["finetune", *given, "--out", str(tmp_path / "out"), *FEW, "--seed", "5", "--temperature", "0.1"])
    model = tmp_path / "out" / "model"
    assert f"fine-tuned on 27 pairs for 0.5 epochs, is in {model}" in capsys.readouterr().out
    assert SentenceTransformer(str(model)).similarity_fn_name == "dot"


def test_losses_are_no_part_of_what_came_out(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--model", str(write_retriever(tmp_path / "retriever")), "--collection", str(data)]
    main(["finetune", *given, "--out", str(tmp_path / "out"), *FEW[:-2], "--logging_steps", "1"])
    found = capsys.readouterr()
    assert len(found.out.splitlines()) == 1
    assert "'loss'" in found.err


def test_a_card_names_the_collection_and_the_splits_of_pairs(data: Path, tmp_path: Path) -> None:
    given = ["--model", str(write_retriever(tmp_path / "retriever")), "--collection", str(data)]
    held_out = ["--eval_strategy", "steps", "--dev_split", "test", "--per_device_eval_batch_size", "4"]
    main(["finetune", *given, "--out", str(tmp_path / "out"), *FEW, *held_out])
    model = tmp_path / "out" / "model"
    sources = manifest_of(model).sources
    assert (sources["pairs"], sources["held-out pairs"]) == (f"{data}:train", f"{data}:test")
    assert f"pairs {data}:train" in (model / "README.md").read_text()


def test_lists_of_directories_are_joined(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--model", str(write_retriever(tmp_path / "retriever")), "--collection", str(data), "--passages", "3"]
    lists = [str(tmp_path / f"depth{depth}") for depth in (4, 6)]
    for depth, out in zip("46", lists, strict=True):
        main(["data", "negatives", str(data), "--depth", depth, "--out", out])
    words = [*given, "--out", str(tmp_path / "out"), *FEW, "--lists"]
    main(["finetune", *words, *lists])
    assert "on 20 lists" in capsys.readouterr().out
    manifest = manifest_of(tmp_path / "out")
    assert [manifest.sources[what] for what in ("lists", "lists 2")] == lists
    assert "was made from" in mistake([*words, lists[1]], capsys)
    scored = tmp_path / "scores"
    main(["data", "scores", str(data), "--lists", *lists, "--model", "bm25", "--depth", "5", "--out", str(scored)])
    assert "Scored lists of depth4 and depth6" in (scored / "README.md").read_text()
    other = write_dataset(tmp_path / "other", passages=50)
    refused = mistake([*words, *lists, "--collection", other], capsys)
    assert f"The training lists in {lists[0]} were made from {data}, whose content is another" in refused


def test_queries_that_are_measured_and_trained_on_are_counted_before_the_training(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = ["--model", str(write_retriever(tmp_path / "retriever")), "--collection", str(data), *FEW]
    main(["finetune", *given, "--out", str(tmp_path / "out"), "--measure_on", "test"])
    assert "20 of the 20 queries of test are asked in train, too, but for case and white space" in caplog.text


@pytest.mark.slow
def test_sections_make_it_a_pipeline(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = {"max_steps": 2, "per_device_train_batch_size": 4, "passages": 2, "logging_steps": 1}
    sections = {"max_length": 16, "bm25": {"depth": 9}, "retriever1": {**few, "use_cpu": True}, "out": "elsewhere"}
    (tmp_path / "mine.yaml").write_text(json.dumps(sections))  # JSON is YAML
    (tmp_path / "more.yaml").write_text("retriever1: {learning_rate: 1e-3}\n")
    configs = ["--config", str(tmp_path / "mine.yaml"), "--config", str(tmp_path / "more.yaml")]
    given = ["--model", str(write_encoder(tmp_path / "encoder")), "--collection", str(data)]
    words = [*configs, *given, "--out", str(tmp_path / "run")]
    assert "split 'train' is trained on; measure on another" in mistake([*words, "--measure_on", "train"], capsys)
    assert "split 'later'" in mistake([*words, "--measure_on", "later"], capsys)
    (data / "qrels" / "later.tsv").write_text("query-id\tcorpus-id\tscore\n")
    assert "No query of split 'later'" in mistake([*words, "--measure_on", "later"], capsys)
    (data / "qrels" / "later.tsv").unlink()
    assert "--lists is of one training" in mistake([*words, "--lists", "x"], capsys)
    assert "--max_steps is of one training" in mistake([*words, "--max_steps", "3"], capsys)
    assert "no collection nowhere" in mistake([*words, "--measure_on", "test", "--keep", "nowhere"], capsys)
    assert not (tmp_path / "run").exists(), "all of that before anything is trained"
    (tmp_path / "more.yaml").write_text("measure_on: test\nretriever1: {learning_rate: 1e-3}\n")
    main(["finetune", *words, "--keep", f"{write_dataset(tmp_path / 'other', passages=50)}:test"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows] == ["| ", "| ---", "| bm25", "| untouched", "| retriever1"]
    facts = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [row["before"] for row in facts["results"][1:]] == ["bm25", "untouched"]
    assert all(row["kept"]["queries"] == 20 for row in facts["results"])
    assert (tmp_path / "run" / "retriever1" / "model").is_dir()
    assert not Path("elsewhere").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--collection", "{data}", "--out", "x"], "Name the model with --model"),
        (["--model", "m", "--collection", "{data}"], "Name the directory to write with --out"),
        (["--model", "m", "--collection", "{data}", "--out", "x", "--encoder", "m"], "'--encoder' is no option"),
        (["--model", "m", "--collection", "{data}", "--fraction", "0.5"], "--fraction is of the stages of a config"),
        (["--model", "m", "--collection", "{data}", "--passages", "3"], "--passages says nothing without --lists"),
        (["--config", "own", "--config", "nowhere.yaml"], "nowhere.yaml does not exist"),
        (["--config", "retromae"], "has the key 'method', which is no option here"),
    ],
)
def test_mistakes(words: list[str], message: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in mistake([word.replace("{data}", str(data)) for word in words], capsys)


def test_an_unknown_key_of_a_pipeline_is_refused_with_what_is_like_it(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("extends: own\ncolection: x\n")
    found = mistake(["--config", tmp_path / "mine.yaml", "--collection", data, "--model", "m"], capsys)
    assert "has the key 'colection', which is no option here; did you mean collection?" in found


def test_the_help_names_every_option_of_its_own() -> None:
    parser = argparse.ArgumentParser(prog="hf-dense finetune")
    finetune.add_arguments(parser)
    said = parser.format_help()
    theirs = {one.name for one in fields(SentenceTransformerTrainingArguments)}
    own = {one.name for one in fields(BiencoderTrainingArguments)} - theirs
    assert {"distillation", "untied"} <= own
    assert not [name for name in own if f"--{name}" not in said]
