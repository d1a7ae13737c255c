"""From a corpus to a checkpoint; a killed run ends as an uninterrupted one; bad input leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_backbones import BACKBONES
from tiny_pretraining import METHODS, same_weights, tiny_arguments, tiny_model, tiny_options, weights, write_corpus
from tiny_retriever import spaced_tokenizer, tiny_config, tiny_tokenizer
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer, BertForMaskedLM

from hf_dense.errors import InputError
from hf_dense.pretraining import pretrain as pretrain_module
from hf_dense.pretraining.pretrain import pretrain
from hf_dense.pretraining.trainer import PreTrainer

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from tiny_pretraining import tiny_arguments, tiny_options
from hf_dense.pretraining import pretrain as module
from hf_dense.pretraining.trainer import PreTrainer

class Killed(PreTrainer):
    def training_step(self, *given, **named):
        if self.state.global_step == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_step(*given, **named)

module.PreTrainer = Killed
directory = Path(sys.argv[1])
options = tiny_options(directory, "retromae")
module.pretrain(options, tiny_arguments(directory / "killed", save_strategy="steps", save_steps=3))
"""


class Interrupted(PreTrainer):
    """Dies at the beginning of step 9, as far as the files can tell."""

    def training_step(self, *given: Any, **named: Any) -> Any:
        if self.state.global_step == 8:
            raise KeyboardInterrupt
        return super().training_step(*given, **named)


def saving(directory: Path, name: str, **changes: Any) -> Any:
    return tiny_arguments(directory / name, **{"save_strategy": "steps", "save_steps": 3, **changes})


@pytest.mark.parametrize("method", METHODS)
def test_a_run_saves_encoder_decoders_and_tokenizer(tmp_path: Path, method: str) -> None:
    output = tmp_path / "out"
    trainer = pretrain(tiny_options(tmp_path, method), tiny_arguments(output, max_steps=4))
    assert same_weights(trainer.model.state_dict(), AutoModelForPreTraining.from_pretrained(output).state_dict())
    encoder = AutoModel.from_pretrained(output)
    assert same_weights(trainer.model.encoder.state_dict(), encoder.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(output)
    assert tokenizer.get_vocab() == tiny_tokenizer().get_vocab()
    assert tokenizer.model_max_length == 32
    assert (output / "trainer_state.json").is_file()
    names = {name for entry in trainer.state.log_history for name in entry}
    losses = ["", *(f"{name}_" for name in trainer.model.config.weights)]
    assert {f"{prefix}{name}loss" for prefix in ("", "eval_") for name in losses} <= names


@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_family_of_backbones_can_be_pre_trained(tmp_path: Path, backbone: str) -> None:
    options = tiny_options(tmp_path, "retromae", backbone=str(tmp_path / "start"), max_length=20)
    AutoModelForMaskedLM.from_config(BACKBONES[backbone](0.1)).save_pretrained(tmp_path / "start")
    kinds = {"roberta": "bytes", "modernbert": "bytes", "xlm-roberta": "sentences"}
    texts = [json.loads(line)["text"] for line in Path(options.corpus).read_text().splitlines()]
    kind = kinds.get(backbone)
    tokenizer = spaced_tokenizer(texts, kind) if kind else tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path / "start")
    options.tokenizer = None
    trainer = pretrain(options, tiny_arguments(tmp_path / "out", max_steps=2))
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses
    assert all(0 < loss < 100 for loss in losses)


def test_a_backbone_that_numbers_positions_from_its_padding_takes_shorter_texts(tmp_path: Path) -> None:
    AutoModelForMaskedLM.from_config(BACKBONES["roberta"](0.1)).save_pretrained(tmp_path / "start")
    options = tiny_options(tmp_path, backbone=str(tmp_path / "start"), max_length=24)
    with pytest.raises(InputError, match="max_length is 24; the backbone takes texts of 4 to 23 tokens"):
        pretrain(options, tiny_arguments(tmp_path / "out"))


def test_a_tokenizer_is_trained_on_the_corpus_when_none_is_named(tmp_path: Path) -> None:
    options = tiny_options(tmp_path, tokenizer=None, vocab_size=120)
    trainer = pretrain(options, tiny_arguments(tmp_path / "out", max_steps=1))
    assert trainer.model.config.vocab_size == 120
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) == 120


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        pretrain(tiny_options(tmp_path), tiny_arguments(tmp_path / name, max_steps=3, seed=seed))
    assert same_weights(weights(tmp_path / "first"), weights(tmp_path / "again"))
    assert not same_weights(weights(tmp_path / "first"), weights(tmp_path / "other"))


def test_a_run_continues_from_a_checkpoint_of_its_own_and_of_another_method(tmp_path: Path) -> None:
    pretrain(tiny_options(tmp_path, "cotmae"), tiny_arguments(tmp_path / "first", max_steps=2))
    for method in ("cotmae", "retromae"):
        options = tiny_options(tmp_path, method, backbone=str(tmp_path / "first"), tokenizer=None, backbone_config=None)
        pretrain(options, tiny_arguments(tmp_path / method, max_steps=1, learning_rate=0.0))
        first, last = weights(tmp_path / "first"), weights(tmp_path / method)
        shared = [name for name in first if method == "cotmae" or not name.startswith("decoders.")]
        assert all(torch.equal(first[name], last[name]) for name in shared)


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_run_ends_with_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    whole = pretrain(tiny_options(tmp_path, method), saving(tmp_path, "whole"))
    assert whole.state.epoch > 1, "the run must cross into a second visit of the corpus"
    assert whole.model.config.backbone_config.hidden_dropout_prob > 0
    with monkeypatch.context() as patched:
        patched.setattr(pretrain_module, "PreTrainer", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            pretrain(tiny_options(tmp_path, method), saving(tmp_path, "cut"))
    assert sorted(path.name for path in (tmp_path / "cut").glob("checkpoint-*")) == ["checkpoint-3", "checkpoint-6"]
    resumed = pretrain(tiny_options(tmp_path, method), saving(tmp_path, "cut", resume_from_checkpoint="last"))
    assert same_weights(weights(tmp_path / "cut"), weights(tmp_path / "whole"))
    for name in ("loss", "encoder_loss", "decoder_loss", "eval_loss"):
        curves = [[row[name] for row in run.state.log_history if name in row] for run in (whole, resumed)]
        assert curves[0] == curves[1]


def test_an_interrupted_run_with_accumulation_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    pretrain(tiny_options(tmp_path), saving(tmp_path, "whole", **cut))
    with monkeypatch.context() as patched:
        patched.setattr(pretrain_module, "PreTrainer", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            pretrain(tiny_options(tmp_path), saving(tmp_path, "cut", **cut))
    pretrain(tiny_options(tmp_path), saving(tmp_path, "cut", resume_from_checkpoint="true", **cut))
    assert same_weights(weights(tmp_path / "cut"), weights(tmp_path / "whole"))


def test_a_run_resumes_at_the_end_of_a_visit(tmp_path: Path) -> None:
    """A checkpoint that falls between two visits of the corpus goes on with the second one's masks and order."""
    whole = pretrain(tiny_options(tmp_path), tiny_arguments(tmp_path / "whole"))
    steps = int(whole.state.max_steps / whole.state.epoch)
    changes = {"save_strategy": "steps", "save_steps": steps, "resume_from_checkpoint": None}
    first = pretrain(tiny_options(tmp_path), tiny_arguments(tmp_path / "cut", **changes))
    assert (tmp_path / "cut" / f"checkpoint-{steps}").is_dir()
    assert first.state.epoch == whole.state.epoch
    named = str(tmp_path / "cut" / f"checkpoint-{steps}")
    pretrain(tiny_options(tmp_path), tiny_arguments(tmp_path / "resumed", resume_from_checkpoint=named))
    assert same_weights(weights(tmp_path / "resumed"), weights(tmp_path / "whole"))


@pytest.mark.slow
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    pretrain(tiny_options(tmp_path), saving(tmp_path, "whole"))
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(here), str(here.parent)], env=os.environ, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "config.json").exists()
    # The kill may also fall into the writing of a checkpoint, which then has no trainer state.
    shutil.copytree(tmp_path / "killed" / "checkpoint-6", tmp_path / "killed" / "checkpoint-7")
    (tmp_path / "killed" / "checkpoint-7" / "trainer_state.json").unlink()
    pretrain(tiny_options(tmp_path), saving(tmp_path, "killed", resume_from_checkpoint="last"))
    assert same_weights(weights(tmp_path / "killed"), weights(tmp_path / "whole"))


def test_an_incomplete_newest_checkpoint_is_passed_over(tmp_path: Path) -> None:
    pretrain(tiny_options(tmp_path), saving(tmp_path, "out", max_steps=6))
    (tmp_path / "out" / "checkpoint-6" / "trainer_state.json").unlink()
    final = weights(tmp_path / "out")
    resumed = pretrain(tiny_options(tmp_path), saving(tmp_path, "out", max_steps=6, resume_from_checkpoint="last"))
    assert same_weights(weights(tmp_path / "out"), final)
    assert [row["step"] for row in resumed.state.log_history if "loss" in row] == [1, 2, 3, 4, 5, 6]


def test_resuming_another_methods_run_is_refused(tmp_path: Path) -> None:
    pretrain(tiny_options(tmp_path, "cotmae"), saving(tmp_path, "out", max_steps=3))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    for resume in ("last", str(tmp_path / "out" / "checkpoint-3"), None):
        with pytest.raises(InputError, match="holds a 'cotmae' model, not 'retromae'"):
            pretrain(tiny_options(tmp_path), saving(tmp_path, "out", resume_from_checkpoint=resume))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


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
    ({"backbone_config": {"model_type": "gpt2"}}, "'gpt2' are not supported"),
    ({"backbone_config": "{not json"}, "must be JSON"),
    ({"backbone_config": "[1]"}, "must be a mapping"),
    ({"max_length": 3}, "max_length is 3; the backbone takes texts of 4 to 64 tokens"),
    ({"max_length": 65}, "max_length is 65"),
    ({"decoders": {"decoder": {"depth": 1}}}, "'decoder' has no field 'depth'; it has: view, encoder, layers"),
    ({"decoders": {"decoder": {"view": {"ratio": 0.1}}}}, "has no field 'ratio'"),
    ({"decoders": '{"decoder": {"stream": "river"}}'}, "stream is 'river'; allowed: inputs, bottleneck"),
    ({"decoders": {"decoder": 3}}, "decoder"),
    ({"encoders": {"encoder": {"view": {"rate": 1.5}}}}, "rate is 1.5"),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD, ids=[f"{next(iter(c))}-{i}" for i, (c, _) in enumerate(BAD)])
def test_bad_input_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "short.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    if "{tmp}/unmasked" in changes.values():
        tokenizer = tiny_tokenizer()
        tokenizer.mask_token = None
        tokenizer.save_pretrained(tmp_path / "unmasked")
    if "{tmp}/small" in changes.values():
        BertForMaskedLM(tiny_config(vocab_size=20)).save_pretrained(tmp_path / "small")
    given = {
        name: value.replace("{tmp}", str(tmp_path)) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    if "backbone" in given:
        given["backbone_config"] = None
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
    trainer = pretrain(options, training)
    assert trainer.state.global_step == 2
    assert not [entry for entry in trainer.state.log_history if "eval_loss" in entry]


def test_held_out_documents_without_a_usable_row_do_not_stop_the_run(tmp_path: Path) -> None:
    """Documents of one passage have no neighbours; a few of them may be all that is held out."""
    corpus = write_corpus(tmp_path / "mixed.jsonl", passages=40)
    lone = [json.dumps({"text": "a b c", "document": f"lone{row}", "position": 0}) for row in range(400)]
    rows = corpus.read_text() + "\n".join(lone) + "\n"
    corpus.write_text(rows)
    trainer = pretrain(
        tiny_options(tmp_path, "cotmae", corpus=str(corpus), held_out=0.005),
        tiny_arguments(tmp_path / "out", max_steps=1),
    )
    assert trainer.state.global_step == 1
