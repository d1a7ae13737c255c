"""Every method's ready demo configuration, on the documentation of Python, on one process and on two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from launched import launch

from hf_dense.commands.main import main
from hf_dense.commands.recipes import read_configs
from hf_dense.data.python_docs.collection import build_python_docs
from hf_dense.methods import METHODS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STEPS, CONTRASTED = 100, 150  # a contrast falls slowly
TOGETHER = 30  # steps of two processes


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpus") / "python_docs"
    return build_python_docs(out, packages=["numpy", "torch"], length=48, progress=False)


def without_dropout(sizes: dict[str, Any]) -> str:
    """Sizes of a model that drops nothing: what is dropped would differ between one process and two."""
    return json.dumps({**sizes, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})


def train(method: str, corpus: Path, output: Path, processes: int, steps: int, **more: Any) -> list[dict[str, float]]:
    """Train with the demo configuration for fewer steps, at one rate after ten of them; the losses that it logs.

    One process is this one; several are started as `accelerate launch` starts them.
    """
    demo = read_configs([method, "demo"])
    options = {
        "corpus": corpus,
        "out": output,
        "per_device_train_batch_size": demo["per_device_train_batch_size"] // processes,
        "backbone_config": without_dropout(demo["backbone_config"]),
        "max_steps": steps,
        "lr_scheduler_type": "constant_with_warmup",
        "learning_rate": 1e-3,  # at the demo's, of which nothing is taken off, coCondenser's contrast stays
        "warmup_steps": 10,
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
    words = ["--config", method, "--config", "demo", *flags]
    if processes == 1:
        main(["pretrain", *words])
    else:
        done = launch(ROOT / "examples" / "pretrain.py", *words, processes=processes, timeout=900)
        assert done.returncode == 0, done.stderr
    history = json.loads((output / "trainer_state.json").read_text())["log_history"]
    return [entry for entry in history if "loss" in entry]


@pytest.mark.parametrize("method", METHODS)
def test_every_loss_falls_and_two_processes_do_what_one_does(method: str, corpus: Path, tmp_path: Path) -> None:
    steps = CONTRASTED if METHODS[method].config().contrasts else STEPS
    one = train(method, corpus, tmp_path / "1", 1, steps)
    two = train(method, corpus, tmp_path / "2", 2, TOGETHER)
    assert [entry["step"] for entry in one] == list(range(10, steps + 1, 10))
    assert [entry["step"] for entry in two] == list(range(10, TOGETHER + 1, 10))
    losses = [name for name in one[0] if name.endswith("loss")]
    assert len(losses) > 1
    for name in losses:
        first, last = one[0][name], sum(entry[name] for entry in one[-3:]) / 3
        assert last < 0.99 * first, f"{name}: {first} -> {last}"
    # A generator's draw turns over with the last bit of a probability, and with that of a score the position to which a
    # bag sends its gradient: the runs part by one token then.
    tolerance = {"simlm": 0.05, "dupmae": 0.1}.get(method, 1e-3)
    for alone, together in zip(one, two, strict=False):
        for name in losses:
            assert together[name] == pytest.approx(alone[name], abs=tolerance), f"{name} at step {alone['step']}"


def test_two_processes_read_a_stream_as_one_does(corpus: Path, tmp_path: Path) -> None:
    one, two = (train("retromae", corpus, tmp_path / str(n), n, TOGETHER, streaming="true") for n in (1, 2))
    assert one[-1]["loss"] < one[0]["loss"]
    for alone, together in zip(one, two, strict=True):
        assert together["loss"] == pytest.approx(alone["loss"], abs=1e-3), f"step {alone['step']}"


def test_two_processes_contrast_means_as_one_does(corpus: Path, tmp_path: Path) -> None:
    one, two = (train("cocondenser", corpus, tmp_path / str(n), n, TOGETHER, bottleneck="mean") for n in (1, 2))
    assert one[-1]["encoder_contrast_loss"] < one[0]["encoder_contrast_loss"]
    for alone, together in zip(one, two, strict=True):
        for name in [name for name in alone if not name.endswith("_per_second")]:
            assert together[name] == pytest.approx(alone[name], abs=1e-3), f"{name} at step {alone['step']}"
