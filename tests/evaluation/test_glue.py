"""GLUE: metrics by hand, tasks fine-tuned in seconds, resumed, and failing one by one."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from datasets import Dataset
from json_lines import write_lines
from pyarrow import parquet
from tiny_backbones import BACKBONES
from tiny_retriever import LETTERS, tiny_tokenizer, write_checkpoint, write_encoder
from transformers import AutoModel

from hf_dense import InputError, RetroMAEConfig, RetroMAEForPreTraining
from hf_dense.evaluation import glue
from hf_dense.evaluation.glue import TASKS, Run, best, evaluate_glue, load_task
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.tables import format_glue
from hf_dense.storage.manifest import MANIFEST

QUICK = {"max_steps": 1, "per_device_train_batch_size": 4, "disable_tqdm": True}
LEARN = {"num_train_epochs": 6, "per_device_train_batch_size": 16, "disable_tqdm": True}
METRICS = {
    "cola/matthews_correlation",
    "mrpc/accuracy",
    "mrpc/f1",
    "stsb/pearson",
    "stsb/spearmanr",
    "qqp/accuracy",
    "qqp/f1",
    "mnli/accuracy_matched",
    "mnli/accuracy_mismatched",
    "qnli/accuracy",
    "sst2/accuracy",
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder") / "model")


def rows_of(task: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Texts whose label can be seen: how many of the letters a and b they hold."""
    generator, spec = random.Random(seed), TASKS[task]
    rows = []
    for at in range(count):
        label = generator.random() * 5 if spec.classes == 1 else generator.randrange(spec.classes)
        seen = round(label) if spec.classes == 1 else 3 * label
        letters = ["a"] * seen + generator.choices(LETTERS[2:], k=8 - seen)
        rows.append({**{column: " ".join(letters) for column in spec.texts}, "label": label, "idx": at})
    return rows


def write_task(folder: Path, task: str, suffix: str = ".jsonl", train: int = 16, validation: int = 12) -> None:
    (folder / task).mkdir(parents=True, exist_ok=True)
    for seed, split in enumerate(("train", *TASKS[task].validation)):
        rows, file = rows_of(task, validation if seed else train, seed), folder / task / f"{split}{suffix}"
        if suffix == ".parquet":
            parquet.write_table(pa.Table.from_pylist(rows), file)
        else:
            write_lines(file, rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glue")
    for at, task in enumerate(TASKS):
        write_task(folder, task, (".parquet", ".jsonl")[at % 2])
    return folder


def test_all_tasks_of_a_pretraining_checkpoint(data: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint")
    out = tmp_path / "out"
    found = evaluate_glue(
        tmp_path / "checkpoint",
        list(TASKS),
        name="tiny",
        out=out,
        data_dir=data,
        max_length=24,
        arguments=QUICK,
    )
    assert set(found.metrics) == METRICS
    assert (found.name, found.split, found.per_query) == ("tiny", "validation", {})
    assert str(RetrievalResult.load(out)) == str(found)  # a correlation may be no number
    for task in TASKS:
        alone = RetrievalResult.load(out / task / "2e-05-seed0")
        assert {f"{task}/{metric}" for metric in alone.metrics} <= METRICS
    assert {path.name for path in out.iterdir()} == {*TASKS, "result.json", MANIFEST}


def test_an_encoder_that_is_kept_in_16_bits_is_trained_in_32(encoder: Path, data: Path, tmp_path: Path) -> None:
    half = AutoModel.from_pretrained(encoder).to(torch.bfloat16)
    half.save_pretrained(tmp_path / "half")
    half.float().save_pretrained(tmp_path / "whole")
    figures = []
    for name in ("half", "whole"):
        tiny_tokenizer().save_pretrained(tmp_path / name)
        given = {"name": name, "out": tmp_path / f"of-{name}", "data_dir": data, "max_length": 24, "arguments": LEARN}
        figures.append(evaluate_glue(tmp_path / name, ["stsb"], **given).metrics)
    assert figures[0] == figures[1]


@pytest.mark.parametrize("task", ["cola", "stsb"])
def test_an_encoder_that_gives_its_hidden_states_is_measured(task: str, data: Path, tmp_path: Path) -> None:
    """As a hybrid retriever's does: its predictions are one of several outputs."""
    model = AutoModel.from_pretrained(write_encoder(tmp_path / "model"))
    model.config.output_hidden_states = True
    model.save_pretrained(tmp_path / "model")
    assert set(run(tmp_path / "model", [task], tmp_path / "out", data).metrics) <= METRICS


def test_what_is_to_be_seen_is_learnt(encoder: Path, tmp_path: Path) -> None:
    for task in ("mnli", "stsb"):
        write_task(tmp_path / "data", task, train=160, validation=40)
    found = evaluate_glue(
        encoder,
        ["mnli", "stsb"],
        name="tiny",
        out=tmp_path / "out",
        data_dir=tmp_path / "data",
        max_length=24,
        learning_rates=[3e-3],
        arguments=LEARN,
    )
    assert found.metrics["mnli/accuracy_matched"] > 0.9
    assert found.metrics["mnli/accuracy_mismatched"] > 0.9
    assert found.metrics["stsb/pearson"] > 0.8
    assert found.metrics["stsb/spearmanr"] > 0.8


@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_family_of_backbones_gets_a_head(backbone: str, data: Path, tmp_path: Path) -> None:
    model = RetroMAEForPreTraining(RetroMAEConfig(backbone_config=BACKBONES[backbone](0.1)))
    model.save_pretrained(tmp_path / "checkpoint")
    tiny_tokenizer().save_pretrained(tmp_path / "checkpoint")
    found = evaluate_glue(
        tmp_path / "checkpoint",
        ["sst2"],
        name=backbone,
        out=tmp_path / "out",
        data_dir=data,
        max_length=16,
        arguments=QUICK,
    )
    assert set(found.metrics) == {"sst2/accuracy"}


def run(encoder: Path, tasks: list[str], out: Path, data: Path | None, **changes: Any) -> RetrievalResult:
    options = {"name": "tiny", "max_length": 24, "arguments": QUICK, **changes}
    return evaluate_glue(encoder, tasks, out=out, data_dir=data, **options)


def test_failed_tasks_do_not_lose_the_others_and_finished_ones_are_not_run_again(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, some = tmp_path / "out", tmp_path / "some"
    write_task(some, "sst2")
    (some / "cola").mkdir()
    for split in ("train", "validation"):
        (some / "cola" / f"{split}.jsonl").write_text('{"text": "a", "label": 0}\n')
    with pytest.raises(
        InputError, match=r"^2 of 3 tasks failed.* cola \(.*no column 'sentence'\); mrpc \(.*has no train"
    ) as error:
        run(encoder, ["cola", "mrpc", "sst2"], out, some)
    assert "\n" not in str(error.value)
    assert {path.name for path in out.iterdir()} == {"sst2", "cola-error.txt", "mrpc-error.txt", MANIFEST}
    assert "Traceback" in (out / "mrpc-error.txt").read_text()
    before = RetrievalResult.load(out / "sst2" / "2e-05-seed0")

    started = []
    plain = glue._run_task
    monkeypatch.setattr(glue, "_run_task", lambda start, task, *rest: started.append(task) or plain(start, task, *rest))
    found = run(encoder, ["cola", "mrpc", "sst2"], out, data)
    assert started == ["cola", "mrpc"]
    assert found.metrics["sst2/accuracy"] == before.metrics["accuracy"]
    assert {path.name for path in out.iterdir()} == {"cola", "mrpc", "sst2", "result.json", MANIFEST}
    assert str(run(encoder, ["cola", "mrpc", "sst2"], out, data)) == str(found)
    assert started == ["cola", "mrpc"]


def test_an_error_of_training_is_one_of_its_task(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Trainer(glue.Trainer):
        def train(self, *arguments: Any, **options: Any) -> Any:
            if self.model.config.num_labels == 3:
                raise RuntimeError("CUDA out of memory.\nMore of it.")
            return super().train(*arguments, **options)

    monkeypatch.setattr(glue, "Trainer", Trainer)
    with pytest.raises(InputError, match=r"1 of 2 tasks failed, what is done is kept: mnli \(CUDA out of memory\)\.$"):
        run(encoder, ["mnli", "sst2"], tmp_path / "out", data)
    assert (tmp_path / "out" / "sst2" / "2e-05-seed0" / "result.json").is_file()


def test_a_task_is_the_same_alone_and_after_others(encoder: Path, data: Path, tmp_path: Path) -> None:
    given = {"arguments": {**QUICK, "max_steps": 6}, "learning_rates": [1e-3]}
    together = run(encoder, ["mnli", "stsb"], tmp_path / "together", data, **given)
    alone = run(encoder, ["stsb"], tmp_path / "alone", data, **given)
    assert together.metrics["stsb/pearson"] == alone.metrics["stsb/pearson"]


def test_finished_tasks_of_other_settings_are_refused(encoder: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(encoder, ["sst2"], out, data)
    other = write_encoder(tmp_path / "other", seed=1)
    for changed, options, word in (
        (encoder, {"arguments": {**QUICK, "max_steps": 2}}, "max_steps"),
        (encoder, {"max_length": 20}, "max_length"),
        (other, {}, "encoder"),
    ):
        with pytest.raises(InputError, match=f"(an)?other {word}"):
            run(changed, ["sst2"], out, data, **options)
    write_task(tmp_path / "changed", "sst2", train=20)
    with pytest.raises(InputError, match=r"1 of 1 tasks failed.* was made from another data"):
        run(encoder, ["sst2"], out, tmp_path / "changed")
    assert (out / "sst2" / "2e-05-seed0" / "result.json").is_file()


def test_the_hub_is_read_where_no_directory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, task: str, split: list[str]) -> list[Dataset]:
        assert (name, task) == ("nyu-mll/glue", "mnli")
        return [Dataset.from_list([{"premise": part, "hypothesis": "b", "label": 0}]) for part in split]

    monkeypatch.setattr(glue, "load_dataset", load)
    found = load_task("mnli")
    assert {split: rows["premise"][0] for split, rows in found.items()} == {
        name: name for name in ("train", "validation_matched", "validation_mismatched")
    }


def test_data_that_cannot_be_had(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name a data_dir"):
        load_task("cola")
    with pytest.raises(InputError, match=r"has no train\.parquet or train\.jsonl"):
        load_task("cola", tmp_path)
    assert load_task("cola", data)["validation"].num_rows == 12


def test_the_best_learning_rate_by_the_mean_over_seeds(encoder: Path, data: Path, tmp_path: Path) -> None:
    def result(first: float, second: float) -> RetrievalResult:
        return RetrievalResult("tiny", "validation", {"accuracy": first, "f1": second}, {}, 1.0)

    runs = [Run(1.0, 0, result(0.9, 0.1)), Run(1.0, 1, result(0.1, 0.1)), Run(2.0, 0, result(0.6, 0.4))]
    runs += [Run(2.0, 1, result(0.5, 0.2)), Run(3.0, 0, result(math.nan, 1.0)), Run(3.0, 1, result(1.0, 1.0))]
    assert best(runs) == pytest.approx({"accuracy": 0.55, "f1": 0.3})
    rates = {"learning_rates": [3e-3, 1e-9], "seeds": [0, 1]}
    found = run(encoder, ["sst2"], tmp_path / "out", data, arguments={**QUICK, "max_steps": 8}, **rates)
    runs = found.origin["runs"]["sst2"]
    assert [(one["learning_rate"], one["seed"]) for one in runs] == [(3e-3, 0), (3e-3, 1), (1e-9, 0), (1e-9, 1)]
    means = [sum(one["accuracy"] for one in runs[at : at + 2]) / 2 for at in (0, 2)]
    assert found.metrics["sst2/accuracy"] == pytest.approx(max(means))
    table = format_glue(found)
    assert table.count("| sst2 |") == 5
    assert f"| sst2 | 0.003 | 1 | accuracy {runs[1]['accuracy']:.4f} |" in table
    more = run(encoder, ["sst2"], tmp_path / "out", data, arguments={**QUICK, "max_steps": 8})
    assert len(more.origin["runs"]["sst2"]) == 1, "another rate may be asked for in the same directory"
    assert "learning rate" not in format_glue(more)


def test_bad_input_leaves_nothing(encoder: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for tasks, options, message in (
        (["sst2"], {"learning_rates": []}, "The learning_rates are none; name some"),
        (["sst2"], {"seeds": [1, 1]}, "The seeds are 1, 1; name some, each once"),
        (["sst2"], {"learning_rates": [1e-5, -1.0]}, "A learning rate is -1.0"),
        (["sst2"], {"arguments": {"seed": 3}}, "seed is no argument of one training here; give seeds"),
        (["wnli"], {}, "The tasks are wnli; choose some of cola, mrpc"),
        ([], {}, "The tasks are none"),
        (["cola"], {"arguments": {"nosuch": 1}}, "arguments cannot be used"),
        (["cola"], {"max_length": 65}, "takes from 3 to 64"),
        (["cola"], {"max_length": 2}, "takes from 3 to 64"),
    ):
        with pytest.raises(InputError, match=message):
            run(encoder, tasks, out, data, **options)
    with pytest.raises(InputError, match="no model directory"):
        run(tmp_path / "nosuch", ["cola"], out, data)
    with pytest.raises(InputError, match="is the encoder, and would replace it"):
        run(encoder, ["cola"], encoder, data)
    assert not out.exists()


def test_an_encoder_that_takes_texts_of_any_length(
    encoder: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_dense.evaluation.glue.longest_text", lambda _: math.inf)
    with pytest.raises(InputError, match=r"max_length is 2 tokens; the encoder takes 3 or more\.$"):
        run(encoder, ["cola"], tmp_path / "out", data, max_length=2)
