"""Every method's ready demo configuration, on the documentation of Python, on one process and on two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from launched import launch

from hf_dense.commands.recipes import read_configs
from hf_dense.data.python_docs.collection import build_python_docs
from hf_dense.methods import METHODS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STEPS, CONTRASTED = 100, 200  # a contrast falls slowly


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpus") / "python_docs"
    return build_python_docs(out, packages=["numpy", "torch"], length=48, progress=False)


def without_dropout(sizes: dict[str, Any]) -> str:
    """Sizes of a model that drops nothing: what is dropped would differ between one process and two."""
    return json.dumps({**sizes, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})


def train(method: str, corpus: Path, output: Path, processes: int, **more: Any) -> list[dict[str, float]]:
    """Run the demo configuration's command for fewer steps; the losses that it logs."""
    demo = read_configs([method, "demo"])
    options = {
        "corpus": corpus,
        "out": output,
        "per_device_train_batch_size": demo["per_device_train_batch_size"] // processes,
        "backbone_config": without_dropout(demo["backbone_config"]),
        "logging_steps": 10,
        "eval_strategy": "no",
        "save_strategy": "no",
        "disable_tqdm": "true",
        "use_cpu": "true",
        **more,
    }
    if "generator" in demo:
        options["generator"] = without_dropout(demo["generator"])
    flags = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
    command = [ROOT / "examples" / "pretrain.py", "--config", method, "--config", "demo", *flags]
    done = launch(*command, processes=processes, timeout=900)
    assert done.returncode == 0, done.stderr
    history = json.loads((output / "trainer_state.json").read_text())["log_history"]
    return [entry for entry in history if "loss" in entry]


@pytest.mark.parametrize("method", METHODS)
def test_every_loss_falls_and_two_processes_do_what_one_does(method: str, corpus: Path, tmp_path: Path) -> None:
    steps = CONTRASTED if METHODS[method].config().contrasts else STEPS
    one, two = (train(method, corpus, tmp_path / str(processes), processes, max_steps=steps) for processes in (1, 2))
    assert [entry["step"] for entry in one] == [entry["step"] for entry in two] == list(range(10, steps + 1, 10))
    losses = [name for name in one[0] if name.endswith("loss")]
    assert len(losses) > 1
    for name in losses:
        first, last = one[0][name], sum(entry[name] for entry in one[-3:]) / 3
        assert last < 0.99 * first, f"{name}: {first} -> {last}"
    # A generator's draw turns over with the last bit of a probability, and with that of a score the position to which a
    # bag sends its gradient: the runs part by one token then.
    tolerance = {"simlm": 0.05, "dupmae": 0.1}.get(method, 1e-3)
    for alone, together in zip(one, two, strict=True):
        for name in losses:
            assert together[name] == pytest.approx(alone[name], abs=tolerance), f"{name} at step {alone['step']}"


def test_two_processes_read_a_stream_as_one_does(corpus: Path, tmp_path: Path) -> None:
    streamed = {"streaming": "true", "max_steps": 50}
    one, two = (train("retromae", corpus, tmp_path / str(processes), processes, **streamed) for processes in (1, 2))
    assert one[-1]["loss"] < one[0]["loss"]
    for alone, together in zip(one, two, strict=True):
        assert together["loss"] == pytest.approx(alone["loss"], abs=1e-3), f"step {alone['step']}"


def test_two_processes_contrast_means_as_one_does(corpus: Path, tmp_path: Path) -> None:
    given = {"bottleneck": "mean", "max_steps": 50}
    one, two = (train("cocondenser", corpus, tmp_path / str(processes), processes, **given) for processes in (1, 2))
    assert one[-1]["encoder_contrast_loss"] < one[0]["encoder_contrast_loss"]
    for alone, together in zip(one, two, strict=True):
        for name in [name for name in alone if not name.endswith("_per_second")]:
            assert together[name] == pytest.approx(alone[name], abs=1e-3), f"{name} at step {alone['step']}"
