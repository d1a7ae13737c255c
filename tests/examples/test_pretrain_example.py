"""The script as a user starts it: one process or two, good input and bad, with a Hub to publish to."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from json_lines import write_lines
from launched import launch
from safetensors.torch import load_file
from tiny_pretraining import NO_DROPOUT
from tiny_retriever import LETTERS, tiny_tokenizer

from hf_dense.commands.main import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCRIPT = str(ROOT / "examples" / "pretrain.py")
DDP = ROOT / "examples" / "accelerate" / "ddp.yaml"


def write_inputs(directory: Path, passages: int = 64) -> None:
    """Write a corpus, a tokenizer, and the options of a run as a YAML file."""
    generator = random.Random(0)
    rows = [
        {
            "text": " ".join("".join(generator.choices(LETTERS, k=3)) for _ in range(generator.randint(3, 9))),
            "document": f"d{row // 2}",
            "position": row % 2,
        }
        for row in range(passages)
    ]
    write_lines(directory / "corpus.jsonl", rows)
    tiny_tokenizer().save_pretrained(directory / "tokenizer")
    options = {
        "method": "retromae",
        "corpus": str(directory / "corpus.jsonl"),
        "tokenizer": str(directory / "tokenizer"),
        "backbone_config": NO_DROPOUT,
        "max_length": 32,
        "held_out": 0.1,
        "max_steps": 4,
        "learning_rate": "1e-3",
        "logging_steps": 1,
        "adam_epsilon": 1e-4,  # else Adam makes steps of the learning rate of gradients that are rounding alone
        "save_strategy": "no",
        "per_device_eval_batch_size": 4,  # does not divide the held-out texts
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
    }
    (directory / "run.yaml").write_text(json.dumps(options))  # JSON is YAML


def run(directory: Path, *arguments: str, **environment: str) -> Any:
    """Run the script on the inputs in `directory`."""
    command = [sys.executable, SCRIPT, "--config", str(directory / "run.yaml"), *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, cwd=directory, capture_output=True, text=True, check=False
    )


def losses(output: Path) -> list[list[float]]:
    """The logged losses of every step."""
    history = json.loads((output / "trainer_state.json").read_text())["log_history"]
    names = ("loss", "encoder_loss", "decoder_loss", "grad_norm")
    return [[entry[name] for name in names] for entry in history if "loss" in entry]


def evaluation(output: Path) -> list[float]:
    """The last evaluation's losses."""
    history = json.loads((output / "trainer_state.json").read_text())["log_history"]
    last = [entry for entry in history if "eval_loss" in entry][-1]
    return [last[name] for name in ("eval_loss", "eval_encoder_loss", "eval_decoder_loss")]


@pytest.mark.parametrize(("passages", "held_out"), [(64, 0.1), (36, 0.3)])  # of the second an epoch ends amid a step
def test_two_processes_do_what_one_does_with_twice_the_batch(tmp_path: Path, passages: int, held_out: float) -> None:
    write_inputs(tmp_path, passages)
    given = ["--config", str(tmp_path / "run.yaml"), "--held_out", str(held_out), "--per_device_train_batch_size"]
    main(["pretrain", *given, "8", "--out", str(tmp_path / "one")])
    done = launch(SCRIPT, *given, "4", "--out", tmp_path / "two", processes=2, config=DDP)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"Saved retromae to {tmp_path / 'two'}") == 1
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == len(two) == 4
    for first, second in zip(one, two, strict=True):
        assert second == pytest.approx(first, abs=1e-4)
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("one", "two")]
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        assert (tensor - weights[1][name]).abs().max() < 5e-5, name
    held = [evaluation(tmp_path / name) for name in ("one", "two")]
    assert held[1] == pytest.approx(held[0], abs=1e-4), "no held-out text may count twice"


BAD = {
    "unknown method": (["--method", "bert"], "Unknown method 'bert'"),
    "missing corpus": (["--corpus", "nowhere/at/all.jsonl"], "does not exist"),
    "absent column": (["--text_column", "body"], "no column 'body'"),
    "length": (["--max_length", "2"], "max_length is 2"),
    "nothing to resume": (["--resume_from_checkpoint", "last"], "no complete checkpoint"),
    "unknown field": (["--decoders", '{"decoder": {"depth": 1}}'], "no field 'depth'"),
    "missing file": (["--config", "nowhere.yaml"], "nowhere.yaml does not exist"),
    "wrong type": (["--max_steps", "many"], "--max_steps"),
}


@pytest.mark.parametrize(("arguments", "sentence"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_inputs(tmp_path)
    configured = [] if arguments[0] == "--config" else ["--config", str(tmp_path / "run.yaml")]
    with pytest.raises(SystemExit) as stopped:
        main(["pretrain", *configured, "--out", str(tmp_path / "out"), *arguments])
    assert stopped.value.code == 2
    check_refusal(capsys.readouterr().err, sentence)
    assert not (tmp_path / "out").exists()


def test_the_script_refuses_bad_input_as_the_command_does(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    arguments, sentence = BAD["unknown method"]
    done = run(tmp_path, "--out", str(tmp_path / "out"), *arguments)
    assert done.returncode == 2, done.stderr
    check_refusal(done.stderr, sentence)


def check_refusal(errors: str, sentence: str) -> None:
    """Raise an `AssertionError` unless one line says what is wrong."""
    assert "Traceback" not in errors
    [error] = [line for line in errors.splitlines() if "error: " in line]
    assert sentence in error


LOAD = """
import sys
sys.modules["hf_dense"] = None
from transformers import AutoModel, AutoTokenizer
name = "someone/tiny-retromae"
tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
model = AutoModel.from_pretrained(name, trust_remote_code=True)
print(model.backbone.embeddings.word_embeddings.weight.sum().item())
print(tuple(model(**tokenizer(["abc d"], return_tensors="pt")).pooler_output.shape))
"""


def test_the_result_is_published(tmp_path: Path, hub_url: str) -> None:
    write_inputs(tmp_path)
    settings = {
        "HF_ENDPOINT": hub_url,
        "HF_TOKEN": "hf_anything",
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    arguments = ["--out", "out", "--push_to_hub", "true", "--hub_model_id", "someone/tiny-retromae"]
    done = run(tmp_path, *arguments, **settings, HF_HOME=str(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    environment = {**os.environ, **settings, "HF_HOME": str(tmp_path / "other")}
    load = [sys.executable, "-c", LOAD]
    loaded = subprocess.run(load, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr
    total, shape = loaded.stdout.splitlines()[-2:]
    saved = load_file(tmp_path / "out" / "model.safetensors")
    words = saved["encoder.backbone.embeddings.word_embeddings.weight"]
    assert float(total) == pytest.approx(words.sum().item(), rel=1e-5)
    assert shape == "(1, 32)"
