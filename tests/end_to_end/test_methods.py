"""Every method's ready demo configuration, on the documentation of Python, on one process and on two."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from launched import launch

from hf_dense.commands.main import main
from hf_dense.commands.recipes import read_configs
from hf_dense.data.python_docs.collection import build_python_docs
from hf_dense.methods import METHODS

pytestmark = pytest.mark.slow

TRAININGS = Path(__file__).parents[1] / "trainings.py"
STEPS, CONTRASTED = 100, 150  # a contrast falls slowly
TOGETHER = 30  # steps of two processes
# A generator's draw turns over with the last bit of a probability, and with that of a score the position to which a bag
# sends its gradient: the runs part by one token then.
TOLERANCES = {"simlm": 0.05, "dupmae": 0.1}


class Case(NamedTuple):
    """A method, with options beside its demo's."""

    method: str
    more: dict[str, Any]

    @property
    def name(self) -> str:
        return "-".join((self.method, *self.more))


CASES = [
    *(Case(method, {}) for method in METHODS),
    Case("retromae", {"streaming": "true"}),
    Case("cocondenser", {"bottleneck": "mean"}),
]
GROUPS = [CASES[at::3] for at in range(3)]  # of which one start of two processes trains all


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpus") / "python_docs"
    return build_python_docs(out, packages=["numpy"], length=48, progress=False)


def without_dropout(sizes: dict[str, Any]) -> str:
    """Sizes of a model that drops nothing: what is dropped would differ between one process and two."""
    return json.dumps({**sizes, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})


def words_of(case: Case, corpus: Path, output: Path, processes: int) -> list[str]:
    """What trains with the demo configuration for fewer steps, at one rate after ten of them."""
    demo = read_configs([case.method, "demo"])
    steps = CONTRASTED if METHODS[case.method].config().contrasts else STEPS
    options = {
        "corpus": corpus,
        "out": output,
        "per_device_train_batch_size": demo["per_device_train_batch_size"] // processes,
        "backbone_config": without_dropout(demo["backbone_config"]),
        "max_steps": TOGETHER if processes > 1 or case.more else steps,
        "lr_scheduler_type": "constant_with_warmup",
        "learning_rate": 1e-3,  # at the demo's, of which nothing is taken off, coCondenser's contrast stays
        "warmup_steps": 10,
        "logging_steps": 10,
        "held_out": 0.005,
        "eval_steps": TOGETHER,
        "per_device_eval_batch_size": 8 // processes,
        "save_strategy": "no",
        "disable_tqdm": "true",
        "use_cpu": "true",
        **case.more,
    }
    if "generator" in demo:
        options["generator"] = without_dropout(demo["generator"])
    flags = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
    return ["--config", case.method, "--config", "demo", *flags]


def logged(output: Path, key: str = "loss") -> list[dict[str, float]]:
    """What a training logged beside the value called `key`."""
    history = json.loads((output / "trainer_state.json").read_text())["log_history"]
    return [entry for entry in history if key in entry]


@pytest.mark.parametrize("cases", GROUPS, ids=lambda cases: "+".join(case.name for case in cases))
def test_every_loss_falls_and_two_processes_do_what_one_does(
    cases: Sequence[Case], corpus: Path, tmp_path: Path
) -> None:
    for case in cases:
        main(["pretrain", *words_of(case, corpus, tmp_path / case.name / "1", 1)])
    together = [words_of(case, corpus, tmp_path / case.name / "2", 2) for case in cases]
    (tmp_path / "words.json").write_text(json.dumps(together))
    done = launch(TRAININGS, tmp_path / "words.json", timeout=1800)
    assert done.returncode == 0, done.stderr
    for case in cases:
        check_losses(case, tmp_path / case.name / "1", tmp_path / case.name / "2")


def check_losses(case: Case, one: Path, two: Path) -> None:
    """Raise an `AssertionError` where a loss does not fall, or two processes do not what one does."""
    alone, together = logged(one), logged(two)
    assert [entry["step"] for entry in together] == list(range(10, TOGETHER + 1, 10))
    assert alone[-1]["step"] >= TOGETHER
    losses = [name for name in alone[0] if name.endswith("loss")]
    assert len(losses) > 1
    if not case.more:  # these train longer
        for name in losses:
            first, last = alone[0][name], sum(entry[name] for entry in alone[-3:]) / 3
            assert last < 0.99 * first, f"{case.name}: {name}: {first} -> {last}"
    tolerance = TOLERANCES.get(case.method, 1e-3)
    measured = [name for name in alone[0] if not name.endswith("_per_second")]
    for expected, found in zip(alone, together, strict=False):
        for name in measured if case.more else losses:
            assert found[name] == pytest.approx(expected[name], abs=tolerance), (
                f"{case.name}: {name} at {found['step']}"
            )
    if case.more.get("streaming"):
        return
    expected, found = (logged(output, "eval_loss")[0] for output in (one, two))
    assert found["step"] == expected["step"] == TOGETHER
    for name in (name for name in expected if name.startswith("eval_") and name.endswith("loss")):
        assert found[name] == pytest.approx(expected[name], abs=tolerance), f"{case.name}: {name}: a text counts twice?"
