"""Which checkpoint a run resumes from, what decides that it may, and that it ends as if it had never stopped."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from launched import launch
from safetensors.torch import load_file, save_file
from sentence_transformers import (
    CrossEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tiny_retriever import random_words, tiny_config, tiny_tokenizer, write_cross_encoder, write_retriever
from transformers import (
    BertForMaskedLM,
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)

from hf_dense.errors import InputError
from hf_dense.storage.checkpoints import checkpoint_to_resume, decisive, newest_checkpoint, occupy_training, train
from hf_dense.storage.occupied import Occupied
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

KINDS = ("transformers", "sentence", "cross")
ARGUMENTS: dict[str, Any] = {
    "transformers": TrainingArguments,
    "sentence": SentenceTransformerTrainingArguments,
    "cross": CrossEncoderTrainingArguments,
}


def make_arguments(directory: Path, kind: str = "transformers", **changes: Any) -> Any:
    """Arguments of a run that ends amid an epoch: of 12 rows, 3 steps are one."""
    values = {
        "output_dir": str(directory),
        "max_steps": 5,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "save_strategy": "steps",
        "save_steps": 2,
        "logging_steps": 1,
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "ddp_find_unused_parameters": kind == "sentence",  # a pooler that nothing reads
        **changes,
    }
    return ARGUMENTS[kind](**values)


def write_start(directory: Path, kind: str) -> str:
    """The model that trainers begin with, written where it is not there."""
    if not directory.exists():
        if kind == "sentence":
            write_retriever(directory)
        else:
            write_cross_encoder(directory, seed=1)
    return str(directory)


def make_trainer(directory: Path, kind: str, *callbacks: TrainerCallback, **changes: Any) -> Trainer:
    """One of the three trainers, with dropout, in `directory`."""
    given: dict[str, Any] = {
        "args": make_arguments(directory, kind, **changes),
        "callbacks": list(callbacks),
    }
    words = random_words(24)
    start = write_start(directory.parent / kind, kind)
    torch.manual_seed(1)  # of a model from scratch, and of poolers
    if kind == "transformers":
        tokens = [tiny_tokenizer()(word)["input_ids"] for word in words[:12]]
        rows = Dataset.from_list([{"input_ids": ids, "labels": ids} for ids in tokens])
        return Trainer(BertForMaskedLM(tiny_config()), train_dataset=rows, eval_dataset=rows, **given)
    pairs = {"sentence1": words[:12], "sentence2": words[12:]}
    if kind == "sentence":
        model: Any = SentenceTransformer(start, device="cpu")
        rows = Dataset.from_dict(pairs)
        loss: Any = MultipleNegativesRankingLoss(model)
        return SentenceTransformerTrainer(model=model, train_dataset=rows, eval_dataset=rows, loss=loss, **given)
    model = CrossEncoder(start, device="cpu")
    rows = Dataset.from_dict({**pairs, "label": [random.Random(row).random() for row in range(12)]})
    loss = BinaryCrossEntropyLoss(model)
    return CrossEncoderTrainer(model=model, train_dataset=rows, eval_dataset=rows, loss=loss, **given)


def same(first: Trainer, second: Trainer) -> bool:
    """Compare the weights bit by bit."""
    one, two = first.model.state_dict(), second.model.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def curves(trainer: Trainer) -> list[dict[str, float]]:
    """What a run logged of its losses."""
    return [
        {name: row[name] for name in ("step", "loss", "eval_loss") if name in row}
        for row in trainer.state.log_history
        if "loss" in row or "eval_loss" in row
    ]


class Killed(TrainerCallback):
    """Dies when the checkpoint of a step has been saved."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


BEST = {
    "eval_strategy": "steps",
    "eval_steps": 2,
    "eval_on_start": True,
    "load_best_model_at_end": True,
    "metric_for_best_model": "eval_loss",
    "greater_is_better": True,  # the first one, that is
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Trainer]:
    """The trainer of a kind, which was trained to its end; each is trained once."""

    @cache
    def trained(kind: str, best: bool) -> Trainer:
        whole = make_trainer(tmp_path_factory.mktemp("whole"), kind, **(BEST if best else {}))
        train(whole, None)
        return whole

    return trained


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("step", "changes"),
    [
        pytest.param(4, {}, id="4-last"),
        pytest.param(5, BEST, id="5-best"),
        *(pytest.param(step, {}, id=f"{step}-last", marks=pytest.mark.slow) for step in (2, 5)),
        *(pytest.param(step, BEST, id=f"{step}-best", marks=pytest.mark.slow) for step in (2, 4)),
    ],
)
def test_a_run_killed_anywhere_ends_as_an_undisturbed_one(
    tmp_path: Path, undisturbed: Callable[[str, bool], Trainer], kind: str, step: int, changes: dict[str, Any]
) -> None:
    whole = undisturbed(kind, bool(changes))
    with pytest.raises(KeyboardInterrupt):
        train(make_trainer(tmp_path / "cut", kind, Killed(step), **changes), None)
    newest = newest_checkpoint(tmp_path / "cut")
    assert newest == tmp_path / "cut" / f"checkpoint-{step}"
    resumed = make_trainer(tmp_path / "cut", kind, **changes)
    train(resumed, newest)
    assert same(resumed, whole)
    assert curves(resumed) == curves(whole)
    means = {"train_loss", "train_samples_per_second", "train_steps_per_second"}
    assert means & whole.state.log_history[-1].keys()
    assert not means & resumed.state.log_history[-1].keys(), "a part divided by the whole is no mean"
    assert resumed.state.global_step == whole.state.global_step == 5
    assert resumed.state.num_train_epochs == whole.state.num_train_epochs == 2
    best = resumed.state.best_model_checkpoint
    assert best == (str(tmp_path / "cut" / "checkpoint-2") if changes else None)


def test_a_checkpoint_that_was_being_deleted_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(make_trainer(tmp_path / "cut", "transformers", Killed(5), save_total_limit=1), None)
    (tmp_path / "cut" / "checkpoint-4" / "trainer_state.json").unlink()
    newest = newest_checkpoint(tmp_path / "cut")
    train(make_trainer(tmp_path / "cut", "transformers", save_total_limit=1), newest)
    assert [*(tmp_path / "cut").glob("checkpoint-*")] == [newest]


@pytest.mark.parametrize("step", [2, 3])
def test_patience_is_not_begun_anew(tmp_path: Path, step: int) -> None:
    """A run that stops when two evaluations brought nothing better does so although it was killed after the first."""
    changes = {**BEST, "max_steps": 9, "save_steps": 1, "eval_steps": 1, "eval_on_start": False}
    whole = make_trainer(tmp_path / "whole", "transformers", EarlyStoppingCallback(2), **changes)
    train(whole, None)
    assert whole.state.global_step == 3
    with pytest.raises(KeyboardInterrupt):
        train(make_trainer(tmp_path / "cut", "transformers", EarlyStoppingCallback(2), Killed(step), **changes), None)
    resumed = make_trainer(tmp_path / "cut", "transformers", EarlyStoppingCallback(2), **changes)
    train(resumed, newest_checkpoint(tmp_path / "cut"))
    assert resumed.state.global_step == 3
    assert same(resumed, whole)


TWICE = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from test_checkpoints import Killed, make_trainer, newest_checkpoint, train

directory, kinds = Path(sys.argv[1]), sys.argv[2].split(",")
for kind, name, callbacks in [(kind, *case) for kind in kinds for case in (("whole", []), ("cut", [Killed(5)]))]:
    name = f"{name}-{kind}"
    try:
        trainer = make_trainer(directory / name, kind, *callbacks, per_device_train_batch_size=2)
        train(trainer, None)
        trainer.save_model()
    except KeyboardInterrupt:
        trainer.accelerator.wait_for_everyone()
        trainer = make_trainer(directory / name, kind, per_device_train_batch_size=2)
        train(trainer, newest_checkpoint(directory / name))
        trainer.save_model()
    trainer.accelerator.wait_for_everyone()
"""


@pytest.mark.slow
def test_two_processes_killed_after_the_last_checkpoint(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    for kind in KINDS:
        write_start(tmp_path / kind, kind)
    script = tmp_path / "twice.py"
    script.write_text(TWICE)
    here = Path(__file__).parent
    done = launch(script, tmp_path, ",".join(KINDS), here, here.parent)
    assert done.returncode == 0, done.stderr
    for kind in KINDS:
        one, two = (load_file(tmp_path / f"{name}-{kind}" / "model.safetensors") for name in ("whole", "cut"))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one), kind


def write_checkpoint(directory: Path, complete: bool = True) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    save_file({"weight": torch.zeros(1)}, directory / "model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({}, directory / name)
    if complete:
        (directory / "trainer_state.json").write_text("{}")
    return directory


def begin(path: Path, text: str = "a", kind: str = "training", overwrite: bool = False, **changes: Any) -> Occupied:
    """A training of something in a directory."""
    output = Output(path, overwrite=overwrite)
    return occupy_training(output, kind, {}, {"corpus": Source("c", text)}, make_arguments(path, **changes))


def chosen(path: Path, wanted: str | None = None, **given: Any) -> str | None:
    """The checkpoint that a run goes on from."""
    with begin(path, resume_from_checkpoint=wanted, **given) as work:
        return checkpoint_to_resume(work, wanted)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was killed."""
    with begin(tmp_path / "run"):
        write_checkpoint(tmp_path / "run" / "checkpoint-9")
        write_checkpoint(tmp_path / "run" / "checkpoint-10")
        write_checkpoint(tmp_path / "run" / "checkpoint-11", complete=False)
        for name in ("best", "12-copy", "9.bak"):
            write_checkpoint(tmp_path / "run" / f"checkpoint-{name}")
    return tmp_path / "run"


@pytest.mark.parametrize("word", [None, "none", "last", "true", "True"])
def test_a_run_goes_on_from_its_newest_complete_checkpoint(run: Path, word: str | None) -> None:
    assert chosen(run, word) == str(run / "checkpoint-10")


def test_a_run_starts_anew_where_that_is_asked_for_or_nothing_is_there(tmp_path: Path, run: Path) -> None:
    assert chosen(run, "false") is None
    assert chosen(tmp_path / "other") is None


def test_a_checkpoint_may_be_named(tmp_path: Path, run: Path) -> None:
    for place in (run, tmp_path / "other"):
        assert chosen(place, str(run / "checkpoint-9")) == str(run / "checkpoint-9")


@pytest.mark.parametrize("word", ["last", "{tmp}/none/checkpoint-1", "{tmp}/run/checkpoint-11"])
def test_a_checkpoint_that_is_not_there_is_refused_before_anything_is_written(
    tmp_path: Path, run: Path, word: str
) -> None:
    with pytest.raises(InputError, match=r"no(t a)? complete checkpoint"):
        chosen(tmp_path / "other", word.format(tmp=tmp_path), overwrite=True)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"text": "b"}, r"is of a run with another corpus \(c, whose content has changed\)"),
        ({"learning_rate": 1e-4}, r"another learning_rate \(0.001, now 0.0001\)"),
        ({"seed": 7}, r"another seed \(42, now 7\)"),
        ({"max_steps": 50}, r"another max_steps \(5, now 50\)"),
        ({"per_device_train_batch_size": 8}, r"other would .* 4 rows a step, .* 8 \(per_device_\w+ 8 x 1 processes x"),
        ({"kind": "pre-training"}, r"another kind of run \(training\)"),
    ],
)
def test_another_runs_checkpoint_is_refused(tmp_path: Path, run: Path, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        chosen(tmp_path / "other", str(run / "checkpoint-9"), **given)
    assert not (tmp_path / "other").exists()


def test_a_checkpoint_that_nothing_is_known_of_is_refused(tmp_path: Path) -> None:
    named = write_checkpoint(tmp_path / "elsewhere" / "checkpoint-1")
    with pytest.raises(InputError, match="nothing says what run it is of"):
        chosen(tmp_path / "run", str(named))


def test_a_run_is_not_replaced_where_its_checkpoint_is_asked_for(run: Path) -> None:
    for word in ("last", str(run / "checkpoint-9")):
        with pytest.raises(InputError, match=r"made from another corpus \(c, whose content has changed\)"):
            chosen(run, word, text="b", overwrite=True)
    assert (run / "checkpoint-9").exists()
    for name in ("best", "12-copy", "9.bak"):
        shutil.rmtree(run / f"checkpoint-{name}")
    assert chosen(run, text="b", overwrite=True) is None
    assert not (run / "checkpoint-9").exists()


def test_what_decides_on_the_result(tmp_path: Path) -> None:
    """Equal for what is only logged, kept or fast; another value for what changes the weights."""
    before = decisive(make_arguments(tmp_path))
    for same_result in (
        {"output_dir": str(tmp_path / "other")},
        {"logging_steps": 3, "save_steps": 4, "save_total_limit": 1, "disable_tqdm": False},
        {"dataloader_num_workers": 2, "per_device_eval_batch_size": 1, "gradient_checkpointing": True},
        {"num_train_epochs": 9, "resume_from_checkpoint": "last", "hub_model_id": "me/it"},
    ):
        assert decisive(make_arguments(tmp_path, **same_result)) == before
    for name, value in {
        "max_steps": 6,
        "learning_rate": 1e-4,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.1,
        "weight_decay": 0.01,
        "optim": "adafactor",
        "adam_beta2": 0.98,
        "max_grad_norm": 2.0,
        "label_smoothing_factor": 0.1,
        "bf16": True,
        "seed": 1,
        "data_seed": 1,
        "dataloader_drop_last": True,
        "gradient_accumulation_steps": 2,
        "eval_strategy": "epoch",
        "train_sampling_strategy": "group_by_length",
    }.items():
        after = decisive(make_arguments(tmp_path, **{name: value}))
        assert name in {key for key in after if after[key] != before.get(key)}, name


def test_what_is_saved_decides_on_the_best_checkpoint(tmp_path: Path) -> None:
    one, two = (decisive(make_arguments(tmp_path, **{**BEST, "save_steps": steps})) for steps in (2, 4))
    assert (one["save_steps"], two["save_steps"]) == (2, 4)


def test_functions_among_the_arguments_are_known_by_name(tmp_path: Path) -> None:
    found = decisive(make_arguments(tmp_path, "sentence", batch_sampler=random_words))
    assert found["batch_sampler"] == "tiny_retriever.random_words"


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "trainer_state.json"])
def test_a_broken_checkpoint_is_passed_over_and_not_taken_where_it_is_named(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_trainer(tmp_path / "cut", "transformers", max_steps=2, save_steps=1).train()
    newest, before = (tmp_path / "cut" / f"checkpoint-{step}" for step in (2, 1))
    assert newest_checkpoint(tmp_path / "cut") == newest
    content = (newest / name).read_bytes()
    (newest / name).write_bytes(content[: len(content) // 2])
    assert newest_checkpoint(tmp_path / "cut") == before
    assert f"{newest} is passed over: {name} is broken" in caplog.text
    with begin(tmp_path / "other") as work, pytest.raises(InputError, match=f"{name} is broken"):
        checkpoint_to_resume(work, str(newest))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_checkpoint_without_what_a_training_goes_on_with_is_passed_over(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The Trainer would go on with what is there, and end with other weights."""
    before, newest = (write_checkpoint(tmp_path / f"checkpoint-{step}") for step in (1, 2))
    (newest / name).unlink()
    assert newest_checkpoint(tmp_path) == before
    assert f"{newest} is passed over: {name} is broken, cut off or gone." in caplog.text


def test_a_run_that_kept_only_models_is_trained_anew(
    tmp_path: Path, undisturbed: Callable[[str, bool], Trainer]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(make_trainer(tmp_path / "cut", "transformers", Killed(4), save_only_model=True), None)
    again = make_trainer(tmp_path / "cut", "transformers", save_only_model=True)
    train(again, newest_checkpoint(tmp_path / "cut"))
    assert same(again, undisturbed("transformers", False))


def test_a_checkpoint_that_lacks_what_another_process_was_to_write_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for step, ranks in ((1, (0, 1)), (2, (0,))):
        checkpoint = write_checkpoint(tmp_path / f"checkpoint-{step}")
        for rank in ranks:
            torch.save(torch.get_rng_state(), checkpoint / f"rng_state_{rank}.pth")
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-1"
    assert "checkpoint-2 is passed over: rng_state_1.pth is broken, cut off or gone." in caplog.text


@pytest.mark.parametrize("way", ["transformers", "sentence"])
def test_a_copy_of_a_checkpoint_is_not_deleted_with_the_old_ones(tmp_path: Path, way: str) -> None:
    """Whether it was there before, or is made while the training runs."""

    class Copied(TrainerCallback):
        def on_save(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
            newest = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            shutil.copytree(newest, newest.with_name(f"{newest.name}-copy"))

    trainer = make_trainer(tmp_path, way, Copied(), save_steps=2, save_total_limit=1)
    write_checkpoint(tmp_path / "checkpoint-1-copy")
    train(trainer, None)
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {
        "checkpoint-1-copy",
        "checkpoint-2-copy",
        "checkpoint-4-copy",
        "checkpoint-5-copy",
        "checkpoint-5",
    }
    assert trainer.args.save_total_limit == 1


@pytest.mark.parametrize(
    ("limit", "kept"),
    [(1, {2}), (2, {2, 5}), (3, {2, 4, 5}), (0, {1, 2, 3, 4, 5}), (-1, {1, 2, 3, 4, 5}), (None, {1, 2, 3, 4, 5})],
)
def test_the_best_checkpoint_and_the_newest_ones_are_kept(tmp_path: Path, limit: int | None, kept: set[int]) -> None:
    """Those that a Trainer itself would keep, the best one being that of the second step."""

    class Second(TrainerCallback):
        def on_evaluate(
            self, args: TrainingArguments, state: TrainerState, control: Any, metrics: Any, **__: Any
        ) -> None:
            metrics["eval_loss"] = -abs(state.global_step - 2.0)

    changes = {**BEST, "save_steps": 1, "eval_steps": 1, "eval_on_start": False, "save_total_limit": limit}
    for name, run in (("ours", lambda trainer: train(trainer, None)), ("theirs", lambda trainer: trainer.train())):
        run(make_trainer(tmp_path / name, "transformers", Second(), **changes))
        there = {int(path.name.removeprefix("checkpoint-")) for path in (tmp_path / name).glob("checkpoint-*")}
        assert there == kept, name


def test_a_run_that_was_moved_keeps_its_best_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(make_trainer(tmp_path / "cut", "transformers", Killed(4), save_total_limit=2, **BEST), None)
    moved = (tmp_path / "cut").rename(tmp_path / "moved")
    trainer = make_trainer(moved, "transformers", save_total_limit=2, **BEST)
    train(trainer, newest_checkpoint(moved))
    assert trainer.state.best_model_checkpoint == str(moved / "checkpoint-2")
    assert {path.name for path in moved.glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-5"}


@pytest.mark.parametrize("step", [2, 4, 5])
@pytest.mark.parametrize("copied", [False, True])
def test_a_run_that_goes_on_elsewhere_ends_with_its_own_best_weights(
    tmp_path: Path, undisturbed: Callable[[str, bool], Trainer], step: int, copied: bool
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(make_trainer(tmp_path / "cut", "transformers", Killed(step), **BEST), None)
    if copied:
        shutil.copytree(tmp_path / "cut", tmp_path / "elsewhere")
        for weights in (tmp_path / "cut").glob("checkpoint-*/model.safetensors"):
            save_file({name: value + 1 for name, value in load_file(weights).items()}, weights, {"format": "pt"})
    else:
        (tmp_path / "cut").rename(tmp_path / "elsewhere")
    resumed = make_trainer(tmp_path / "elsewhere", "transformers", **BEST)
    train(resumed, newest_checkpoint(tmp_path / "elsewhere"))
    assert same(resumed, undisturbed("transformers", True))


@pytest.mark.parametrize("best", [1, 3])
def test_a_run_goes_on_whose_best_step_was_not_saved(tmp_path: Path, best: int) -> None:
    class Best(TrainerCallback):
        def on_evaluate(
            self, args: TrainingArguments, state: TrainerState, control: Any, metrics: Any, **__: Any
        ) -> None:
            metrics["eval_loss"] = -abs(state.global_step - best)

    changes = {**BEST, "save_steps": 2, "eval_steps": 1, "eval_on_start": False}
    whole = make_trainer(tmp_path / "whole", "transformers", Best(), **changes)
    train(whole, None)
    with pytest.raises(KeyboardInterrupt):
        train(make_trainer(tmp_path / "cut", "transformers", Killed(4), Best(), **changes), None)
    moved = (tmp_path / "cut").rename(tmp_path / "moved")
    resumed = make_trainer(moved, "transformers", Best(), **changes)
    train(resumed, newest_checkpoint(moved))
    assert same(resumed, whole)


def test_a_run_whose_best_checkpoint_is_gone_does_not_go_on(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(make_trainer(tmp_path / "cut", "transformers", Killed(4), **BEST), None)
    newest = (tmp_path / "cut" / "checkpoint-4").rename(tmp_path / "checkpoint-4")
    with pytest.raises(InputError, match=r"its best weights so far, is gone; copy it too"):
        train(make_trainer(tmp_path / "other", "transformers", **BEST), newest)


def test_a_best_checkpoint_by_a_figure_that_is_not_there_is_refused(tmp_path: Path) -> None:
    changes = {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True}
    trainer = make_trainer(tmp_path, "sentence", metric_for_best_model="ndcg", **changes)
    with pytest.raises(InputError, match=r"'eval_ndcg', which is not found in the evaluation metrics.*'eval_loss'"):
        train(trainer, None)
