"""Fine-tuning with a batch size that is found: measured once, recorded, and kept by a run that goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from imagined_memory import batch_of, imagine
from test_biencoder import arguments, killed_after, weights
from test_biencoder_lists import lists
from tiny_retriever import random_words, write_dataset, write_retriever

from hf_dense.commands.main import main
from hf_dense.errors import InputError
from hf_dense.finetuning import biencoder
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.finetuning.pipeline import Pipeline, run_pipeline


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_retriever(tmp_path_factory.mktemp("retriever") / "cosine", similarity="cosine")


@pytest.fixture(scope="module")
def pairs() -> Dataset:
    words = random_words(50)
    return Dataset.from_dict({"query": words, "passage": [f"{word} a" for word in words]})


def automatic(out: Path, **changes: Any) -> BiencoderTrainingArguments:
    return arguments(out, **{"per_device_train_batch_size": "auto", "max_steps": 4, **changes})


def test_it_trains_as_with_the_number_that_is_found(
    retriever: Path, pairs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = imagine(monkeypatch, rows=16)
    found = finetune(retriever, pairs, automatic(tmp_path / "auto"))
    assert batch_of(tmp_path / "auto") == batch_of(found) == 16
    assert memory.sizes == [2, 4]
    named = finetune(retriever, pairs, automatic(tmp_path / "named", per_device_train_batch_size=16))
    assert all(torch.equal(part, weights(named)[name]) for name, part in weights(found).items())


def test_a_busier_machine_does_not_change_a_run_that_is_there(
    retriever: Path, pairs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6}
    imagine(monkeypatch, rows=16)
    whole = finetune(retriever, pairs, automatic(tmp_path / "whole", **options))
    with killed_after(3):
        finetune(retriever, pairs, automatic(tmp_path / "killed", **options))
    busy = imagine(monkeypatch, rows=4)
    resumed = finetune(retriever, pairs, automatic(tmp_path / "killed", **options))
    assert all(torch.equal(part, weights(whole)[name]) for name, part in weights(resumed).items())
    before = (tmp_path / "whole" / "model" / "model.safetensors").stat().st_mtime_ns
    assert finetune(retriever, pairs, automatic(tmp_path / "whole", **options, overwrite=True)) == whole
    assert (whole / "model.safetensors").stat().st_mtime_ns == before, "it is done"
    elsewhere = {**options, "max_steps": 6, "resume_from_checkpoint": str(tmp_path / "killed" / "checkpoint-4")}
    finetune(retriever, pairs, automatic(tmp_path / "elsewhere", **elsewhere))
    assert batch_of(tmp_path / "elsewhere") == 16
    assert busy.sizes == [], "nothing was measured"
    with pytest.raises(InputError, match=r"was made from another learning_rate.*--overwrite"):
        finetune(retriever, pairs, automatic(tmp_path / "whole", **options, learning_rate=1e-4))
    finetune(retriever, pairs, automatic(tmp_path / "whole", **options, learning_rate=1e-4, overwrite=True))
    assert batch_of(tmp_path / "whole") == 4, "a run that is replaced is found one anew"


@pytest.mark.parametrize(("passages", "chunk", "sizes"), [(3, None, [2, 4]), (3, 3, [8, 16])])
def test_lists_and_chunks(
    retriever: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passages: int, chunk: int | None, sizes: list[int]
) -> None:
    memory = imagine(monkeypatch, rows=1000)
    made = lists(passages, scored=True)
    finetune(retriever, made, automatic(tmp_path / "run", distillation="kl", chunk=chunk, max_steps=1))
    assert batch_of(tmp_path / "run") == 32, "of 48 lists"
    assert memory.sizes[:2] == sizes


def test_what_is_measured_fills_the_length_of_the_model(
    retriever: Path, pairs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imagine(monkeypatch, rows=4)
    lengths: list[int] = []
    forward = biencoder.ListLoss.forward

    def look(self: Any, features: Any, teacher: Any = None) -> Any:
        lengths.append(features[1]["input_ids"].shape[1])
        return forward(self, features, teacher)

    monkeypatch.setattr(biencoder.ListLoss, "forward", look)
    finetune(retriever, pairs, automatic(tmp_path / "run", max_steps=1))
    assert lengths == [32, 32, 7], "two measured steps, and one of the training"


def test_a_batch_has_no_more_rows_than_different_texts(
    retriever: Path, pairs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imagine(monkeypatch, rows=1000)
    repeated = Dataset.from_dict({"query": pairs["query"][:10] * 5, "passage": pairs["passage"][:]})
    finetune(retriever, repeated, automatic(tmp_path / "run", max_steps=1))
    assert batch_of(tmp_path / "run") == 8
    finetune(retriever, pairs, automatic(tmp_path / "steps", max_steps=1, gradient_accumulation_steps=2))
    assert batch_of(tmp_path / "steps") == 2 * 16, "of 50 pairs, 25 at once"


def test_real_memory_is_measured(retriever: Path, pairs: Dataset, tmp_path: Path) -> None:
    finetune(retriever, pairs, automatic(tmp_path / "run", max_steps=1))
    assert batch_of(tmp_path / "run") == 32


def test_it_is_asked_for_in_a_flag_a_file_and_a_section(
    retriever: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imagine(monkeypatch, rows=8)
    data = str(write_dataset(tmp_path / "data", passages=60, queries=30))
    words = ["finetune", "--model", str(retriever), "--collection", data, "--use_cpu", "true", "--max_steps", "1"]
    (tmp_path / "auto.yaml").write_text("per_device_train_batch_size: auto\n")
    config = ["--config", str(tmp_path / "auto.yaml")]
    main([*words, "--per_device_train_batch_size", "auto", "--out", str(tmp_path / "flag")])
    main([*words, *config, "--out", str(tmp_path / "file")])
    main([*words, *config, "--per-device-train-batch-size=4", "--out", str(tmp_path / "number")])
    assert [batch_of(tmp_path / name) for name in ("flag", "file", "number")] == [8, 8, 4]
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--per_device_train_batch_size", "large", "--out", str(tmp_path / "large")])
    assert "invalid int value: 'large'" in capsys.readouterr().err
    section = {"per_device_train_batch_size": "auto", "passages": 2, "max_steps": 1, "use_cpu": True}
    given = {"collection": data, "model": str(retriever), "out": str(tmp_path / "stages"), "bm25": {"depth": 9}}
    run_pipeline(Pipeline(**given, retriever1=section))
    assert batch_of(tmp_path / "stages" / "retriever1") == 8
    with pytest.raises(InputError, match="reranker has per_device_train_batch_size: 'auto', which is no number"):
        run_pipeline(Pipeline(**given, retriever1=section, retriever2=section, reranker=section))


def test_several_processes_need_a_number(
    retriever: Path, pairs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BiencoderTrainingArguments, "world_size", 2)
    with pytest.raises(InputError, match="auto is found by one process; start one, or name a number"):
        finetune(retriever, pairs, automatic(tmp_path / "run"))
    assert not json.dumps([str(path) for path in tmp_path.iterdir()]).count("run")
