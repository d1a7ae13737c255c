"""From a corpus to a checkpoint; a killed run ends as an uninterrupted one; bad input leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import launch
from manifests import manifest_of
from tiny_backbones import BACKBONES
from tiny_pretraining import (
    METHODS,
    NO_DROPOUT,
    Interrupted,
    logged,
    same_weights,
    tiny_arguments,
    tiny_model,
    tiny_options,
    weights,
    write_corpus,
)
from tiny_retriever import VOCABULARY, spaced_tokenizer, tiny_config, tiny_tokenizer, write_static, write_two_encoders
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoTokenizer,
    BertForMaskedLM,
    BertTokenizer,
    PreTrainedTokenizerBase,
    T5Config,
)
from transformers.utils import logging

from hf_dense.errors import InputError
from hf_dense.hub import precision
from hf_dense.methods import METHODS as ALL_METHODS
from hf_dense.pretraining import pretrain as pretrain_module
from hf_dense.pretraining.pretrain import PretrainingResult, pretrain
from hf_dense.pretraining.trainer import PreTrainer
from hf_dense.storage.manifest import COMPLETE, RUNNING

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from tiny_pretraining import tiny_arguments, tiny_options
from hf_dense.pretraining import pretrain as module
from hf_dense.pretraining.trainer import PreTrainer

class Killed(PreTrainer):
    def training_step(self, *given, **named):
        if self.state.global_step == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_step(*given, **named)

class KilledAtTheEnd(PreTrainer):
    def evaluate(self, *given, **named):
        if self.is_world_process_zero():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().evaluate(*given, **named)

directory, name = Path(sys.argv[1]), sys.argv[2]
module.PreTrainer = {"killed": Killed, "at_the_end": KilledAtTheEnd}.get(name, PreTrainer)
name = name.removesuffix("_again")
options = tiny_options(directory, "retromae")
changes = {"per_device_train_batch_size": 8 // int(os.environ.get("WORLD_SIZE", 1))}
module.pretrain(options, tiny_arguments(directory / name, save_strategy="steps", save_steps=3, **changes))
"""


class InterruptedAtTheEnd(PreTrainer):
    """Dies when all is trained and the last checkpoint is saved."""

    def evaluate(self, *given: Any, **named: Any) -> Any:
        raise KeyboardInterrupt


def saving(directory: Path, name: str, **changes: Any) -> Any:
    return tiny_arguments(directory / name, **{"save_strategy": "steps", "save_steps": 3, **changes})


def interrupt(
    monkeypatch: pytest.MonkeyPatch, options: Any, training: Any, trainer: type[PreTrainer] = Interrupted
) -> None:
    """Run until it dies."""
    with monkeypatch.context() as patched:
        patched.setattr(pretrain_module, "PreTrainer", trainer)
        with pytest.raises(KeyboardInterrupt):
            pretrain(options, training)


def contents(directory: Path) -> dict[str, tuple[int, int]]:
    """When what was written, and how much."""
    files = ((path.relative_to(directory).as_posix(), path.stat()) for path in directory.rglob("*") if path.is_file())
    return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in files}


@pytest.mark.parametrize("method", METHODS)
def test_a_run_saves_encoder_decoders_and_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    output, made = tmp_path / "out", list[PreTrainer]()

    class Kept(PreTrainer):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(self)

    monkeypatch.setattr(pretrain_module, "PreTrainer", Kept)
    result = pretrain(tiny_options(tmp_path, method), tiny_arguments(output, max_steps=4))
    (trainer,) = made
    assert same_weights(trainer.model.state_dict(), AutoModelForPreTraining.from_pretrained(output).state_dict())
    encoder = AutoModel.from_pretrained(output)
    assert same_weights(trainer.model.encoder.state_dict(), encoder.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(output)
    assert tokenizer.get_vocab() == tiny_tokenizer().get_vocab()
    assert tokenizer.model_max_length == 32
    assert (result.path, result.done) == (output, False)
    assert result.history == trainer.state.log_history
    names = {name for entry in result.history for name in entry}
    losses = ["", *(f"{name}_" for name in trainer.model.config.weights)]
    assert {f"{prefix}{name}loss" for prefix in ("", "eval_") for name in losses} <= names


def test_queries_beyond_those_asked_for_are_not_read(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in write_corpus(tmp_path / "corpus.jsonl").read_text().splitlines()]
    short = "".join(json.dumps({**row, "queries": row["queries"][:1]}) + "\n" for row in rows)
    (tmp_path / "short.jsonl").write_text(short)
    few = tiny_options(tmp_path, "query_cotmae", corpus=str(tmp_path / "short.jsonl"))
    first = pretrain(few, tiny_arguments(tmp_path / "few", max_steps=2))
    options = tiny_options(tmp_path, "query_cotmae", queries_per_passage=1)
    second = pretrain(options, tiny_arguments(tmp_path / "first", max_steps=2))
    assert same_weights(weights(first.path), weights(second.path))
    with pytest.raises(InputError, match="queries_per_passage"):
        pretrain(replace(options, queries_per_passage=2), tiny_arguments(second.path, max_steps=2))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_family_of_backbones_can_be_pre_trained(tmp_path: Path, backbone: str) -> None:
    options = tiny_options(tmp_path, "retromae", backbone=str(tmp_path / "start"), backbone_config=None, max_length=20)
    AutoModelForMaskedLM.from_config(BACKBONES[backbone](0.1)).save_pretrained(tmp_path / "start")
    kinds = {"roberta": "bytes", "modernbert": "bytes", "xlm-roberta": "sentences"}
    texts = [json.loads(line)["text"] for line in Path(options.corpus).read_text().splitlines()]
    kind = kinds.get(backbone)
    tokenizer = spaced_tokenizer(texts, kind) if kind else tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path / "start")
    options.tokenizer = None
    losses = logged(pretrain(options, tiny_arguments(tmp_path / "out", max_steps=2)).history, "loss")
    assert losses
    assert all(0 < loss < 100 for loss in losses)


@pytest.mark.parametrize("kept", [torch.float16, torch.bfloat16])
def test_a_backbone_that_is_kept_in_16_bits_is_trained_in_32(tmp_path: Path, kept: torch.dtype) -> None:
    half = BertForMaskedLM(tiny_config()).to(kept)
    half.save_pretrained(tmp_path / "half")
    half.float().save_pretrained(tmp_path / "whole")
    options = tiny_options(tmp_path, "simlm", backbone_config=None, generator_weight=0.5)
    short, whole = (
        pretrain(
            replace(options, backbone=str(tmp_path / name), generator=str(tmp_path / name)),
            tiny_arguments(tmp_path / f"of-{name}", max_steps=2),
        )
        for name in ("half", "whole")
    )
    assert same_weights(weights(short.path), weights(whole.path))
    assert {parameter.dtype for parameter in AutoModel.from_pretrained(short.path).parameters()} == {torch.float32}


def test_a_backbone_that_numbers_positions_from_its_padding_takes_shorter_texts(tmp_path: Path) -> None:
    AutoModelForMaskedLM.from_config(BACKBONES["roberta"](0.1)).save_pretrained(tmp_path / "start")
    options = tiny_options(tmp_path, backbone=str(tmp_path / "start"), backbone_config=None, max_length=24)
    with pytest.raises(InputError, match="max_length is 24; the backbone takes texts of 4 to 23 tokens"):
        pretrain(options, tiny_arguments(tmp_path / "out"))


def test_a_tokenizer_is_trained_on_the_corpus_when_none_is_named(tmp_path: Path) -> None:
    options = tiny_options(tmp_path, tokenizer=None, vocab_size=120)
    pretrain(options, tiny_arguments(tmp_path / "out", max_steps=1))
    assert AutoModelForPreTraining.from_pretrained(tmp_path / "out").config.vocab_size == 120
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) == 120


@pytest.mark.parametrize("streaming", [False, True])
def test_a_tokenizer_is_trained_on_a_corpus_with_a_row_without_text(tmp_path: Path, streaming: bool) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    with corpus.open("a") as file:
        file.write('{"text": null, "document": "d0", "position": 9}\n')
    options = tiny_options(tmp_path, tokenizer=None, vocab_size=120, streaming=streaming)
    pretrain(options, tiny_arguments(tmp_path / "out", max_steps=1))
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) == 120


@pytest.mark.parametrize("streaming", [False, True])
def test_one_query_of_each_passage_may_stand_without_a_list(tmp_path: Path, streaming: bool) -> None:
    rows = [json.loads(line) for line in write_corpus(tmp_path / "corpus.jsonl").read_text().splitlines()]
    for name, kind in (("listed", list), ("plain", lambda queries: queries[0])):
        lines = (json.dumps({**row, "queries": kind(row["queries"][:1])}) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
        corpus = str(tmp_path / f"{name}.jsonl")
        options = tiny_options(tmp_path, "query_cotmae", corpus=corpus, streaming=streaming)
        pretrain(options, tiny_arguments(tmp_path / name, max_steps=2))
    assert same_weights(weights(tmp_path / "listed"), weights(tmp_path / "plain"))


@pytest.mark.parametrize("streaming", [False, True])
def test_several_texts_where_one_is_read_are_refused(tmp_path: Path, streaming: bool) -> None:
    (tmp_path / "lists.jsonl").write_text('{"text": "a b", "neighbour": ["c d", "e f"]}\n' * 20)
    options = tiny_options(tmp_path, "cotmae", corpus=str(tmp_path / "lists.jsonl"), streaming=streaming)
    with pytest.raises(InputError, match=r"The column 'neighbour' of the corpus .*holds [Ll]ist"):
        pretrain(options, tiny_arguments(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        pretrain(tiny_options(tmp_path), tiny_arguments(tmp_path / name, max_steps=3, seed=seed))
    assert same_weights(weights(tmp_path / "first"), weights(tmp_path / "again"))
    assert not same_weights(weights(tmp_path / "first"), weights(tmp_path / "other"))


def test_evaluations_change_nothing_of_a_training_with_dropout(tmp_path: Path) -> None:
    plain, watched = (
        pretrain(tiny_options(tmp_path), tiny_arguments(tmp_path / name, max_steps=5, **looking))
        for name, looking in (("plain", {}), ("watched", {"eval_strategy": "steps", "eval_steps": 2}))
    )
    assert len(logged(watched.history, "eval_loss")) == 4  # before the first step and after the last too
    assert logged(watched.history, "loss") == logged(plain.history, "loss")
    assert same_weights(weights(tmp_path / "plain"), weights(tmp_path / "watched"))


def test_a_run_continues_from_a_checkpoint_of_its_own_and_of_another_method(tmp_path: Path) -> None:
    pretrain(tiny_options(tmp_path, "cotmae"), tiny_arguments(tmp_path / "first", max_steps=2))
    for method in ("cotmae", "retromae"):
        options = tiny_options(tmp_path, method, backbone=str(tmp_path / "first"), tokenizer=None, backbone_config=None)
        pretrain(options, tiny_arguments(tmp_path / method, max_steps=1, learning_rate=0.0))
        first, last = weights(tmp_path / "first"), weights(tmp_path / method)
        shared = [name for name in first if method == "cotmae" or not name.startswith("decoders.")]
        assert all(torch.equal(first[name], last[name]) for name in shared)


def test_a_backbone_without_a_tokenizer_is_refused_where_none_is_named(tmp_path: Path) -> None:
    """transformers makes one without tokens there, by which every word of every text is the same."""
    BertForMaskedLM(tiny_config()).save_pretrained(tmp_path / "bare")
    options = tiny_options(tmp_path, tokenizer=None, backbone=str(tmp_path / "bare"), backbone_config=None)
    with pytest.raises(InputError, match=r"There is no tokenizer in .*bare; save one there"):
        pretrain(options, tiny_arguments(tmp_path / "out"))


def test_a_run_without_one_full_batch_is_refused(tmp_path: Path) -> None:
    """The Trainer ends at once, and the weights that it began with would pass for trained ones."""
    arguments = tiny_arguments(tmp_path / "out", per_device_train_batch_size=512, dataloader_drop_last=True)
    with pytest.raises(InputError, match=r"No step was trained: .*, or leave dataloader_drop_last out"):
        pretrain(tiny_options(tmp_path), arguments)
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_a_tokenizer_of_other_tokens_than_the_backbones_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has as many: nothing would fail, and every word be read by the weights of another."""
    pretrain(tiny_options(tmp_path), tiny_arguments(tmp_path / "first", max_steps=1))
    tokens = VOCABULARY
    for name, moved in (("few", 2), ("most", len(tokens) - 5)):  # behind the special ones
        order = [*tokens[:5], *reversed(tokens[5 : 5 + moved]), *tokens[5 + moved :]]
        BertTokenizer(vocab={token: at for at, token in enumerate(order)}).save_pretrained(tmp_path / name)
    few, most = (
        tiny_options(tmp_path, tokenizer=str(tmp_path / name), backbone=str(tmp_path / "first"), backbone_config=None)
        for name in ("few", "most")
    )
    logging.enable_propagation()
    pretrain(few, tiny_arguments(tmp_path / "on", max_steps=1))
    logging.disable_propagation()
    assert f"2 of the {len(tokens)} tokens of {tmp_path}/few are others in {tmp_path}/first" in caplog.text
    with pytest.raises(InputError, match=r"tokens of .*most are others in .*first, whose .*; leave --tokenizer out"):
        pretrain(most, tiny_arguments(tmp_path / "never"))
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=pytest.mark.slow) if name == "master" else name for name in METHODS]
)
def test_an_interrupted_run_ends_with_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    whole = pretrain(tiny_options(tmp_path, method), saving(tmp_path, "whole"))
    assert max(logged(whole.history, "epoch")) > 1, "the run must cross into a second epoch"
    assert AutoModel.from_pretrained(whole.path).config.backbone_config.hidden_dropout_prob > 0
    interrupt(monkeypatch, tiny_options(tmp_path, method), saving(tmp_path, "cut"))
    assert sorted(path.name for path in (tmp_path / "cut").glob("checkpoint-*")) == ["checkpoint-3", "checkpoint-6"]
    manifest = manifest_of(tmp_path / "cut")
    assert manifest.state == RUNNING
    resumed = pretrain(tiny_options(tmp_path, method), saving(tmp_path, "cut"))
    assert same_weights(weights(tmp_path / "cut"), weights(tmp_path / "whole"))
    for name in ("loss", "encoder_loss", "decoder_loss", "eval_loss"):
        assert logged(resumed.history, name) == logged(whole.history, name)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_in_the_precision_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = tiny_options(tmp_path, "retromae")
    monkeypatch.setattr(precision, "is_faster_in_bf16", lambda device: True)
    monkeypatch.setattr(precision, "_SMALL", 0)
    whole = pretrain(options, saving(tmp_path, "whole"))
    interrupt(monkeypatch, options, saving(tmp_path, "killed"))
    monkeypatch.setattr(precision, "is_faster_in_bf16", lambda device: False)
    resumed = pretrain(options, saving(tmp_path, "killed"))
    assert same_weights(weights(whole.path), weights(resumed.path))
    manifest = manifest_of(resumed.path)
    assert (manifest.made_from["precision"], manifest.made_from["bf16"]) == ("bf16", True)
    plain = pretrain(options, saving(tmp_path, "plain"))
    assert not same_weights(weights(whole.path), weights(plain.path))


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("save_steps", [3, 5], ids=["at the last step", "before it"])
def test_a_run_killed_after_its_last_checkpoint_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streaming: bool, save_steps: int
) -> None:
    options = tiny_options(tmp_path, streaming=streaming)
    given = {"save_steps": save_steps, "lr_scheduler_type": "constant"}
    whole = pretrain(options, saving(tmp_path, "whole", **given))
    interrupt(monkeypatch, options, saving(tmp_path, "cut", **given), InterruptedAtTheEnd)
    assert (tmp_path / "cut" / "checkpoint-12").is_dir()
    assert not (tmp_path / "cut" / "config.json").exists()
    resumed = pretrain(options, saving(tmp_path, "cut", **given))
    assert same_weights(weights(tmp_path / "cut"), weights(tmp_path / "whole"))
    for name in ("loss", "eval_loss"):
        assert logged(resumed.history, name) == logged(whole.history, name)


def test_an_interrupted_run_with_accumulation_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    pretrain(tiny_options(tmp_path), saving(tmp_path, "whole", **cut))
    interrupt(monkeypatch, tiny_options(tmp_path), saving(tmp_path, "cut", **cut))
    pretrain(tiny_options(tmp_path), saving(tmp_path, "cut", resume_from_checkpoint="true", **cut))
    assert same_weights(weights(tmp_path / "cut"), weights(tmp_path / "whole"))


@pytest.mark.parametrize("streaming", [False, True])
def test_a_run_goes_on_with_steps_cut_up_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    """Half the processes accumulate two batches in place of one, and end with the weights of all of them."""
    options = tiny_options(tmp_path, backbone_config=NO_DROPOUT, streaming=streaming)
    whole = pretrain(options, saving(tmp_path, "whole"))
    interrupt(monkeypatch, options, saving(tmp_path, "cut"))
    cut = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    resumed = pretrain(options, saving(tmp_path, "cut", **cut))
    assert logged(resumed.history, "loss") == pytest.approx(logged(whole.history, "loss"), abs=1e-4)
    found, wanted = (weights(tmp_path / name) for name in ("cut", "whole"))
    assert all(torch.allclose(found[name], wanted[name], atol=1e-4) for name in wanted)
    assert pretrain(options, saving(tmp_path, "whole", **cut)).done


def test_a_run_resumes_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    """A checkpoint that falls between two epochs goes on with the second one's masks and order."""
    whole = pretrain(tiny_options(tmp_path), tiny_arguments(tmp_path / "whole"))
    steps = round(12 / max(logged(whole.history, "epoch")))
    first = pretrain(tiny_options(tmp_path), saving(tmp_path, "cut", save_steps=steps))
    assert logged(first.history, "epoch")[steps - 1] == 1
    named = str(tmp_path / "cut" / f"checkpoint-{steps}")
    pretrain(tiny_options(tmp_path), tiny_arguments(tmp_path / "resumed", resume_from_checkpoint=named))
    assert same_weights(weights(tmp_path / "resumed"), weights(tmp_path / "whole"))


def run_killed(directory: Path, name: str, processes: int = 2) -> int:
    """Start `KILLED` as its own processes."""
    here, script = Path(__file__).parent, directory / "killed.py"
    script.write_text(KILLED)
    command = [script, directory, name, here, here.parent]
    if processes > 1:
        return launch(*command, processes=processes).returncode
    return subprocess.run([sys.executable, *command], env=os.environ, check=False, timeout=300).returncode


@pytest.mark.slow
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    pretrain(tiny_options(tmp_path), saving(tmp_path, "whole"))
    assert run_killed(tmp_path, "killed", processes=1) == -signal.SIGKILL
    assert not (tmp_path / "killed" / "config.json").exists()
    # The kill may also fall into the writing of a checkpoint, which then has no trainer state.
    shutil.copytree(tmp_path / "killed" / "checkpoint-6", tmp_path / "killed" / "checkpoint-7")
    (tmp_path / "killed" / "checkpoint-7" / "trainer_state.json").unlink()
    pretrain(tiny_options(tmp_path), saving(tmp_path, "killed"))
    assert same_weights(weights(tmp_path / "killed"), weights(tmp_path / "whole"))


@pytest.mark.slow
def test_two_processes_killed_at_the_end_go_on_as_two(tmp_path: Path) -> None:
    tiny_options(tmp_path)  # writes the corpus
    assert run_killed(tmp_path, "whole") == 0
    assert run_killed(tmp_path, "at_the_end") != 0
    assert (tmp_path / "at_the_end" / "checkpoint-12" / "trainer_state.json").is_file()
    assert not (tmp_path / "at_the_end" / "config.json").exists()
    assert run_killed(tmp_path, "at_the_end_again") == 0
    assert same_weights(weights(tmp_path / "at_the_end"), weights(tmp_path / "whole"))
    before = contents(tmp_path)
    assert run_killed(tmp_path, "at_the_end_again") == 0
    after = contents(tmp_path)
    assert {name for name in after if after[name] != before.get(name)} == {"killed.py"}, "it was complete"


def test_an_incomplete_newest_checkpoint_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretrain(tiny_options(tmp_path), saving(tmp_path, "whole"))
    interrupt(monkeypatch, tiny_options(tmp_path), saving(tmp_path, "out"))
    (tmp_path / "out" / "checkpoint-6" / "trainer_state.json").unlink()
    resumed = pretrain(tiny_options(tmp_path), saving(tmp_path, "out", resume_from_checkpoint="last"))
    assert same_weights(weights(tmp_path / "out"), weights(tmp_path / "whole"))
    assert [row["step"] for row in resumed.history if "loss" in row] == list(range(1, 13))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a complete run in `out`."""
    directory = tmp_path_factory.mktemp("finished")
    options = tiny_options(directory, license="mit")
    pretrain(options, saving(directory, "out", max_steps=3), "a command")
    write_corpus(directory / "other.jsonl", seed=1)
    return directory


def again(
    directory: Path, resume: str | None = None, steps: int = 3, rate: float = 1e-3, seed: int = 42, **changes: Any
) -> PretrainingResult:
    """The command of `finished`, with changes."""
    values = {name: str(value).format(tmp=directory) if name == "corpus" else value for name, value in changes.items()}
    given = {"max_steps": steps, "learning_rate": rate, "seed": seed, "resume_from_checkpoint": resume}
    return pretrain(tiny_options(directory, **values), saving(directory, "out", **given))


def test_the_manifest_and_the_card_say_what_it_is(finished: Path) -> None:
    manifest = manifest_of(finished / "out")
    assert (manifest.kind, manifest.state, manifest.licence) == ("pre-training", COMPLETE, "mit")
    assert (manifest.command, manifest.seed, manifest.facts["steps"]) == ("a command", 42, 3)
    assert manifest.sources == {"corpus": str(finished / "corpus.jsonl"), "tokenizer": str(finished / "tokenizer")}
    assert manifest.made_from["config"]["decoders"]["decoder"]["attention"] == "sampled:0.5"
    assert {"model.safetensors", "tokenizer.json", "trainer_state.json", "README.md"} <= set(manifest.files)
    assert "license: mit" in (finished / "out" / "README.md").read_text()


def test_the_same_run_again_is_done(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(finished / "out")
    first = json.loads((finished / "out" / "trainer_state.json").read_text())["log_history"]
    with monkeypatch.context() as patched:
        patched.setattr(pretrain_module, "PreTrainer", None)
        for resume in (None, "last", str(finished / "out" / "checkpoint-3")):
            assert again(finished, resume) == PretrainingResult(finished / "out", first, done=True)
    assert contents(finished / "out") == before


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"corpus": "{tmp}/other.jsonl"}, "another corpus"),
        ({"method": "cotmae"}, r"another method \(retromae, now cotmae\)"),
        ({"rate": 2e-3}, r"another learning_rate \(0.001, now 0.002\)"),
        ({"seed": 7}, r"another seed \(42, now 7\)"),
        ({"steps": 9}, r"another max_steps \(3, now 9\)"),
        ({"max_length": 16}, r"another max_length \(32, now 16\)"),
        ({"held_out": 0.2}, r"another held_out \(0.1, now 0.2\)"),
        ({"decoders": {"decoder": {"weight": 0.5}}}, r"another weight \(1.0, now 0.5\)"),
        ({"bottleneck": "mean"}, r"another bottleneck \(cls, now mean\)"),
        ({"tokenizer": None, "vocab_size": 120}, "another tokenizer"),
    ],
)
@pytest.mark.parametrize("resume", [None, "last", "checkpoint-3"])
def test_another_run_is_refused_with_what_differs(
    finished: Path, changes: dict[str, Any], sentence: str, resume: str | None
) -> None:
    before = contents(finished)
    resume = str(finished / "out" / resume) if resume and "-" in resume else resume
    with pytest.raises(InputError, match=f"was made from {sentence}.*--overwrite"):
        again(finished, resume, **changes)
    assert contents(finished) == before


@pytest.mark.parametrize("method", ALL_METHODS)
def test_methods_differ_in_their_names_before_all_else(finished: Path, method: str) -> None:
    """They read other columns of the corpus, which is the same."""
    if method not in ("retromae", "simlm"):
        with pytest.raises(InputError, match=rf"another method \(retromae, now {method}\)"):
            again(finished, method=method)


def test_a_killed_run_with_another_rate_is_refused_and_replaced_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, tiny_options(tmp_path), saving(tmp_path, "out"))
    other = {"learning_rate": 2e-3, "max_steps": 4}
    with pytest.raises(InputError, match="holds unfinished work made from another max_steps"):
        pretrain(tiny_options(tmp_path), saving(tmp_path, "out", **other))
    assert (tmp_path / "out" / "checkpoint-6").is_dir()
    pretrain(tiny_options(tmp_path, overwrite=True), saving(tmp_path, "out", **other))
    pretrain(tiny_options(tmp_path), saving(tmp_path, "whole", **other))
    assert same_weights(weights(tmp_path / "out"), weights(tmp_path / "whole"))
    assert not (tmp_path / "out" / "checkpoint-6").exists()


def test_other_weights_under_the_same_name_are_another_backbone(tmp_path: Path) -> None:
    for seed in (0, 1):
        tiny_model("cotmae", seed).save_pretrained(tmp_path / "start")
        options = tiny_options(tmp_path, backbone=str(tmp_path / "start"), backbone_config=None)
        if seed:
            with pytest.raises(InputError, match="another backbone"):
                pretrain(options, tiny_arguments(tmp_path / "out", max_steps=1))
        else:
            pretrain(options, tiny_arguments(tmp_path / "out", max_steps=1))
            with pytest.raises(InputError, match="another seed"):
                pretrain(options, tiny_arguments(tmp_path / "out", max_steps=1, seed=7))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"chunk": 4}, "chunk is 4"),
        ({"corpus": "{tmp}/short.jsonl"}, "shorter than 2 tokens"),
        ({"streaming": True, "method": "cocondenser"}, "leave out --streaming"),
    ],
)
def test_a_run_that_cannot_be_replaces_nothing(finished: Path, changes: dict[str, Any], sentence: str) -> None:
    (finished / "short.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    before = contents(finished / "out")
    with pytest.raises(InputError, match=sentence):
        again(finished, overwrite=True, **changes)
    assert contents(finished / "out") == before


def test_arguments_of_the_caller_stay_as_they_are(tmp_path: Path) -> None:
    """Else the same call, in a notebook, would be refused as another one."""
    training = tiny_arguments(tmp_path / "out", max_steps=1)
    before = training.to_dict()
    assert not pretrain(tiny_options(tmp_path), training).done
    assert training.to_dict() == before
    assert pretrain(tiny_options(tmp_path), training).done


@pytest.mark.parametrize("name", ["trainer_state.json", "model.safetensors"])
def test_a_result_that_is_gone_is_not_done(name: str, tmp_path: Path) -> None:
    out, options = tmp_path / "out", {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    pretrain(tiny_options(tmp_path), tiny_arguments(out, **options))
    for checkpoint in out.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    (out / "training_args.bin").unlink()
    assert pretrain(tiny_options(tmp_path), tiny_arguments(out, **options)).done
    (out / name).unlink()
    with pytest.raises(InputError, match=f"{name} is gone, although the training is complete; put it back"):
        pretrain(tiny_options(tmp_path), tiny_arguments(out, **options))
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"cannot be replaced: thesis\.tex is not as hf_dense wrote it"):
        pretrain(tiny_options(tmp_path, overwrite=True), tiny_arguments(out, **options))
    (out / "thesis.tex").unlink()
    assert not pretrain(tiny_options(tmp_path, overwrite=True), tiny_arguments(out, **options)).done
    assert (out / name).is_file()


def test_a_second_run_at_the_same_time_is_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second, first = (tiny_arguments(tmp_path / "out", max_steps=1) for _ in range(2))

    class Second(PreTrainer):
        def evaluate(self, *given: Any, **named: Any) -> Any:
            with pytest.raises(InputError, match="Another run is writing"):
                pretrain(tiny_options(tmp_path), second)
            return super().evaluate(*given, **named)

    monkeypatch.setattr(pretrain_module, "PreTrainer", Second)
    assert not pretrain(tiny_options(tmp_path), first).done


def test_what_is_not_ours_is_not_written_to(tmp_path: Path) -> None:
    options = tiny_options(tmp_path, overwrite=True)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "config.json").write_text("{}")
    before = contents(tmp_path)
    with pytest.raises(InputError, match="was not written by hf_dense"):
        pretrain(options, tiny_arguments(tmp_path / "thesis"))
    with pytest.raises(InputError, match="holds the corpus, and would replace it"):
        pretrain(options, tiny_arguments(tmp_path))
    assert contents(tmp_path) == before


STREAM = """
import json, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from huggingface_hub import create_repo, upload_file
from tiny_pretraining import tiny_arguments, tiny_options
from hf_dense.errors import InputError
from hf_dense.pretraining.pretrain import pretrain

name, work = "someone/streamed", Path(sys.argv[1])
create_repo(name, repo_type="dataset", exist_ok=True)
said = []
for text in ("ab cd ef", "gh ij kl"):
    rows = "".join(json.dumps({"text": f"{text} {'ab' * (row % 5 + 1)}"}) + "\\n" for row in range(60))
    upload_file(path_or_fileobj=rows.encode(), path_in_repo="corpus.jsonl", repo_id=name, repo_type="dataset")
    options = tiny_options(work, corpus=name, streaming=True)
    try:
        said.append(pretrain(options, tiny_arguments(work / "out", max_steps=1)).done)
    except InputError as error:
        said.append(str(error))
    said.append(pretrain(options, tiny_arguments(work / text[:2], max_steps=1)).done)
print(json.dumps({"said": said}))
"""


@pytest.mark.slow
def test_a_stream_of_the_hub_is_known_by_its_revision(hub_client: Any, tmp_path: Path) -> None:
    here = Path(__file__).parent
    said = hub_client(STREAM, str(tmp_path), str(here), str(here.parent))["said"]
    assert said[0] is said[1] is said[3] is False
    assert "was made from another corpus" in said[2]


def unmasked_tokenizer() -> PreTrainedTokenizerBase:
    tokenizer = tiny_tokenizer()
    tokenizer.mask_token = None
    return tokenizer


BAD: list[tuple[dict[str, Any], str]] = [
    (
        {"method": "bert"},
        "Unknown method 'bert'; choose one of: condenser, cocondenser, cotmae",
    ),
    ({"corpus": "{tmp}/missing.jsonl"}, "does not exist"),
    ({"corpus": "{tmp}/empty.jsonl"}, "is empty"),
    ({"corpus": "{tmp}/short.jsonl"}, "shorter than 2 tokens"),
    ({"text_column": "body"}, "no column 'body'"),
    ({"method": "cotmae", "corpus": "{tmp}/short.jsonl"}, "needs the column 'neighbour'"),
    ({"tokenizer": "{tmp}/nowhere"}, "No tokenizer can be loaded from"),
    ({"tokenizer": "{tmp}/unmasked"}, "has no mask token"),
    ({"backbone": "{tmp}/nowhere"}, "No encoder can be loaded from"),
    ({"backbone": "{tmp}/small"}, "tokenizer has 57 tokens but the backbone's vocab_size is 20"),
    ({"backbone_config": {"hidden_size": 32, "vocab_size": 20}}, "tokenizer has 57 tokens but .* vocab_size is 20"),
    ({"backbone_config": {"hidden_size": 33, "num_attention_heads": 2}}, "hidden size"),
    ({"backbone_config": {"num_attention_heads": 0}}, "No encoder can be made of this backbone_config: .*zero"),
    ({"backbone_config": {"hidden_size": "abc"}}, "No encoder can be made of .* 'hidden_size' expected int, got str"),
    ({"backbone_config": {"hidden_act": "foo"}}, "No encoder can be made of this backbone_config: there is no 'foo'."),
    ({"backbone_config": {"model_type": "gpt2"}}, "'gpt2' are not supported"),
    ({"backbone_config": "{not json"}, "must be JSON"),
    ({"backbone_config": "[1]"}, "must be a mapping"),
    (
        {"encoders": {"encoder": {"view": {"sources": ["b"]}}}, "decoders": {"decoder": {"view": {"sources": ["b"]}}}},
        "No encoder or decoder reads the column 'text'",
    ),
    ({"max_length": 3}, "max_length is 3; the backbone takes texts of 4 to 64 tokens"),
    ({"max_length": 65}, "max_length is 65"),
    ({"decoders": {"decoder": {"depth": 1}}}, "'decoder' has no field 'depth'; it has: view, encoder, layers"),
    ({"decoders": {"decoder": {"view": {"ratio": 0.1}}}}, "has no field 'ratio'"),
    ({"decoders": '{"decoder": {"stream": "river"}}'}, "stream is 'river'; allowed: inputs, bottleneck"),
    ({"decoders": {"decoder": 3}}, "decoder"),
    ({"encoders": {"encoder": {"view": {"rate": 1.5}}}}, "rate is 1.5"),
    ({"bottleneck": "max"}, "bottleneck is 'max'; allowed: cls, mean"),
    (
        {"backbone": "{tmp}/plain", "tokenizer": None, "backbone_config": {"nonsense": 1}},
        "backbone_config is of an encoder from scratch, but this starts from .*plain; leave it out",
    ),
    (
        {"vocab_size": 100},
        "vocab_size is of a tokenizer that is trained on the corpus, but that of .*tokenizer is used",
    ),
    ({"backbone": "{tmp}/plain", "tokenizer": None, "vocab_size": 100}, "but that of .*plain is used; leave it out"),
    (
        {"backbone": "{tmp}/two", "tokenizer": None},
        "two encoders, and one is wanted here; name one of them, .*two/",
    ),
    ({"backbone": "{tmp}/t5", "tokenizer": None}, "Backbones of type 't5' are not supported; use: bert, "),
    ({"backbone": "{tmp}/static", "tokenizer": None}, "has no config.json of an encoder beside its modules.json"),
    ({"backbone": "{tmp}/plain", "bottleneck": "max"}, "bottleneck is 'max'; allowed: cls, mean"),
    ({"probe": "{tmp}/nowhere"}, "There is no collection .*nowhere to probe with"),
    ({"probe": "{tmp}/nowhere:dev"}, "There is no collection .*nowhere to probe with"),
    ({"probe": "{tmp}"}, "has no relevance judgements for split 'dev'; it has test"),
    ({"probe": "{tmp}:test"}, r"corpus\.jsonl has a row without id; every row needs its own"),
    ({"probe_steps": 0}, "probe_steps is 0"),
    ({"probe_patience": 2}, "probe_patience goes by a probe, and there is none"),
    ({"probe_keep_best": True}, "probe_keep_best goes by a probe, and there is none"),
    ({"probe_patience": 0}, "probe_patience is 0"),
    ({"queries_per_passage": 5}, "is for methods that read generated queries, and this one reads none"),
    ({"keywords": "{tmp}/words"}, "keywords are for methods that hide keywords, and retromae hides none here"),
    ({"queries_per_passage": 0}, "queries_per_passage is 0; read at least one query"),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD, ids=[f"{next(iter(c))}-{i}" for i, (c, _) in enumerate(BAD)])
def test_bad_input_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "short.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    if "{tmp}/t5" in changes.values():
        T5Config().save_pretrained(tmp_path / "t5")
        unmasked_tokenizer().save_pretrained(tmp_path / "t5")
    if "{tmp}/static" in changes.values():
        write_static(tmp_path / "static")
    if "{tmp}/unmasked" in changes.values():
        unmasked_tokenizer().save_pretrained(tmp_path / "unmasked")
    if "probe" in changes:
        (tmp_path / "qrels").mkdir()
        (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td1\t0\n")
        (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "a"}\n')
    if "{tmp}/plain" in changes.values():
        BertForMaskedLM(tiny_config()).save_pretrained(tmp_path / "plain")
    if "{tmp}/two" in changes.values():
        write_two_encoders(tmp_path / "two")
    if "{tmp}/small" in changes.values():
        BertForMaskedLM(tiny_config(vocab_size=20)).save_pretrained(tmp_path / "small")
    given = {
        name: value.replace("{tmp}", str(tmp_path)) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    if "backbone" in given:
        given.setdefault("backbone_config", None)
    with pytest.raises(InputError, match=sentence) as caught:
        pretrain(tiny_options(tmp_path, **given), tiny_arguments(tmp_path / "out"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_change_that_is_no_mapping_is_refused_when_a_run_is_continued(tmp_path: Path) -> None:
    tiny_model("retromae").save_pretrained(tmp_path / "first")
    options = tiny_options(tmp_path, backbone=str(tmp_path / "first"), backbone_config=None, decoders={"decoder": 3})
    with pytest.raises(InputError):
        pretrain(options, tiny_arguments(tmp_path / "out"))


def test_evaluating_without_held_out_documents_is_left_out(tmp_path: Path) -> None:
    options = tiny_options(tmp_path, held_out=0.0)
    training = tiny_arguments(tmp_path / "out", max_steps=2, eval_strategy="steps", eval_steps=1)
    result = pretrain(options, training)
    assert len(logged(result.history, "loss")) == 2
    assert not logged(result.history, "eval_loss")


def test_held_out_documents_without_a_usable_row_do_not_stop_the_run(tmp_path: Path) -> None:
    """Documents of one passage have no neighbours; a few of them may be all that is held out."""
    corpus = write_corpus(tmp_path / "mixed.jsonl", passages=40)
    lone = [json.dumps({"text": "a b c", "document": f"lone{row}", "position": 0}) for row in range(400)]
    rows = corpus.read_text() + "\n".join(lone) + "\n"
    corpus.write_text(rows)
    result = pretrain(
        tiny_options(tmp_path, "cotmae", corpus=str(corpus), held_out=0.005),
        tiny_arguments(tmp_path / "out", max_steps=1),
    )
    assert len(logged(result.history, "loss")) == 1


@pytest.mark.parametrize(
    ("cores", "streaming", "chosen", "expected"),
    [(16, False, 0, 4), (2, False, 0, 1), (16, True, 0, 1), (16, False, 7, 7)],
)
def test_a_gpus_batches_are_made_beside_it(
    cores: int, streaming: bool, chosen: int, expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    training = saving(tmp_path, "out", dataloader_num_workers=chosen)
    pretrain_module._use_workers(training, streaming)
    assert training.dataloader_num_workers == expected


def test_the_best_checkpoint_is_not_chosen_by_a_loss_that_there_is_not(tmp_path: Path) -> None:
    changes = {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 4, "save_steps": 4}
    arguments = tiny_arguments(tmp_path / "out", save_strategy="steps", **changes)
    with pytest.raises(InputError, match="No document is held out, so no checkpoint can be the best"):
        pretrain(tiny_options(tmp_path, held_out=0.0), arguments)
    arguments = tiny_arguments(tmp_path / "out", save_strategy="steps", metric_for_best_model="eval_mrr", **changes)
    with pytest.raises(InputError, match="is 'eval_mrr'; evaluations have: loss, encoder_loss, decoder_loss"):
        pretrain(tiny_options(tmp_path), arguments)
    assert not (tmp_path / "out").exists()


def test_two_ways_to_choose_the_weights_are_refused(tmp_path: Path) -> None:
    changes = {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 4, "save_steps": 4}
    arguments = tiny_arguments(tmp_path / "out", save_strategy="steps", **changes)
    options = tiny_options(tmp_path, probe=str(tmp_path / "nowhere"), probe_keep_best=True)
    with pytest.raises(InputError, match=r"probe_keep_best and load_best_model_at_end both choose .*; leave one"):
        pretrain(options, arguments)
    assert not (tmp_path / "out").exists()
