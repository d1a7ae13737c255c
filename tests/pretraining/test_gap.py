"""The bottleneck gap: its value, what it leaves alone, and what is said of a bottleneck that carries nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from launched import launch
from tiny_pretraining import (
    BACKBONE,
    logged,
    same_weights,
    tiny_arguments,
    tiny_keywords,
    tiny_model,
    tiny_options,
    tiny_vocabulary,
    token_rows,
    weights,
)
from torch import Tensor

from hf_dense.methods import METHODS
from hf_dense.pretraining import gap as gap_module
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.gap import BottleneckGap, describe_idle, find_idle, gap_sums, row_group
from hf_dense.pretraining.pretrain import PretrainingResult, pretrain

RANDOM = ("runtime", "per_second", "gap")  # parts of the names of what is not compared


@pytest.fixture
def every_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs here are short."""
    monkeypatch.setattr(gap_module, "EVERY", 2)


def run(directory: Path, name: str, method: str = "retromae", **changes: Any) -> PretrainingResult:
    own = {key: changes.pop(key) for key in [*changes] if key.startswith(("generator", "chunk"))}
    return pretrain(tiny_options(directory, method, **own), tiny_arguments(directory / name, **changes))


def losses(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if not any(part in key for part in RANDOM)} for row in history]


def batch(method: str, texts: int, chunk: int | None = None) -> tuple[Any, dict[str, Any]]:
    """A model in evaluation mode, and a batch of corpus rows for it."""
    model = tiny_model(method).eval()
    collator = ViewCollator(model.config, tiny_vocabulary(), 32, 0, tiny_keywords())
    collator.chunk = chunk
    return model, collator(token_rows(texts, seed=4))


@pytest.mark.usefixtures("every_two")
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("retromae", {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}),
        ("dupmae", {}),
        ("condenser", {}),
        pytest.param("master", {}, marks=pytest.mark.slow),
        ("cocondenser", {"chunk": 4}),
        ("simlm", {"generator": dict(BACKBONE), "generator_weight": 0.2}),
    ],
)
def test_training_is_as_if_nobody_had_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, changes: dict[str, Any]
) -> None:
    """With dropout, and although what is looked at draws random numbers."""

    def drawing(*given: Any) -> Tensor:
        assert not given[0].training
        torch.rand(3)
        return gap_sums(*given)

    monkeypatch.setattr(gap_module, "gap_sums", drawing)
    looked = run(tmp_path, "looked", method, logging_steps=2, **changes)
    monkeypatch.setattr(BottleneckGap, "measure", lambda *_: {})
    plain = run(tmp_path, "plain", method, logging_steps=2, **changes)
    for name in METHODS[method].config().decoder_specs:
        assert len(logged(looked.history, f"{name}_gap")) == 6
        assert not logged(plain.history, f"{name}_gap")
    assert losses(looked.history) == losses(plain.history)
    assert same_weights(weights(looked.path), weights(plain.path))


@pytest.mark.parametrize(("method", "group"), [("retromae", 1), ("cotmae", 2), ("cocondenser", 2), ("query_cotmae", 1)])
def test_other_texts_are_of_other_rows_of_the_corpus(monkeypatch: pytest.MonkeyPatch, method: str, group: int) -> None:
    """CoT-MAE's row 2k + 1 is what row 2k rebuilds, and coCondenser's rows 2k and 2k + 1 are of one document."""
    model, read = batch(method, 4)
    assert row_group(model.config) == group
    seen: list[Tensor] = []
    plain = type(model).score_decoder

    def score(self: Any, name: str, layout: Any, encoded: Any, *given: Any) -> Tensor:
        seen.append(encoded.bottleneck)
        return plain(self, name, layout, encoded, *given)

    monkeypatch.setattr(type(model), "score_decoder", score)
    gap_sums(model, read["views"], read["plan"])
    own, other = seen
    assert torch.equal(torch.cat([own[-group:], own[:-group]]), other)


@pytest.mark.parametrize(("method", "rows"), [("retromae", 1), ("cotmae", 1), ("master", 1), ("cocondenser", 2)])
def test_without_another_text_there_is_none(method: str, rows: int) -> None:
    model, read = batch(method, rows)
    assert not gap_sums(model, read["views"]).any()
    model, read = batch(method, 2 * rows)
    assert (gap_sums(model, read["views"]).abs() > 0).all()


def test_what_has_no_decoder_has_no_gap() -> None:
    model = tiny_model("retromae", decoders={"decoder": None}).eval()
    read = ViewCollator(model.config, tiny_vocabulary(), 32, 0)(token_rows(3))
    assert gap_sums(model, read["views"]).shape == (0, 2)


@pytest.mark.usefixtures("every_two")
def test_of_more_frequent_logs_only_some_have_it(tmp_path: Path) -> None:
    history = run(tmp_path, "often", max_steps=5, logging_steps=1).history
    assert [row["step"] for row in history if "decoder_gap" in row] == [2, 4]
    assert len(logged(history, "decoder_loss")) == 5


@pytest.mark.usefixtures("every_two")
def test_a_run_of_single_texts_logs_none_and_says_nothing(tmp_path: Path) -> None:
    result = run(tmp_path, "single", per_device_train_batch_size=1, max_steps=2)
    assert len(logged(result.history, "decoder_loss")) == 2
    assert not logged(result.history, "decoder_gap")


def test_an_encoder_in_parts_is_left_alone() -> None:
    gap = BottleneckGap()
    gap.read(batch("retromae", 3)[1], None)
    for cut in ("is_fsdp_enabled", "is_deepspeed_enabled"):
        trainer: Any = SimpleNamespace(**{"is_fsdp_enabled": False, "is_deepspeed_enabled": False, cut: True})
        assert gap.measure(trainer) == {}


def test_the_end_is_judged_over_the_last_five_logs() -> None:
    rows = [{"decoder_gap": 1.0, "decoder_loss": 6.0}, *[{"decoder_gap": 0.05, "decoder_loss": 6.0}] * 5]
    assert find_idle(["decoder"], rows)["decoder"] == pytest.approx((0.05, 6.0))
    assert find_idle(["decoder"], [*rows, {"decoder_gap": 0.2, "decoder_loss": 6.0}, {"eval_loss": 2.0}]) == {}
    assert find_idle(["decoder"], [{"decoder_loss": 6.0}]) == {}
    assert "decoder loses 0.050 of 6.00 nats" in describe_idle(find_idle(["decoder"], rows))


@pytest.mark.usefixtures("every_two")
@pytest.mark.parametrize(("gaps", "lines"), [({"decoder_gap": 0.001}, 1), ({"decoder_gap": 9.0}, 0)])
def test_a_bottleneck_that_carries_nothing_is_told_of_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    gaps: dict[str, float],
    lines: int,
) -> None:
    monkeypatch.setattr(BottleneckGap, "measure", lambda *_: dict(gaps))
    logger = logging.getLogger("transformers")
    monkeypatch.setattr(logger, "propagate", False)
    logger.addHandler(caplog.handler)
    run(tmp_path, "out", max_steps=2)
    logger.removeHandler(caplog.handler)
    said = [record.getMessage() for record in caplog.records if "carries nothing yet" in record.getMessage()]
    assert len(said) == lines


TWO = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from tiny_pretraining import tiny_arguments, tiny_options
from hf_dense.pretraining import gap
from hf_dense.pretraining.pretrain import pretrain

gap.EVERY = 2
directory, looked = Path(sys.argv[1]), sys.argv[2] == "looked"
if not looked:
    gap.BottleneckGap.measure = lambda *_: {}
options = tiny_options(directory, "cotmae")
pretrain(options, tiny_arguments(directory / sys.argv[2], per_device_train_batch_size=4))
"""


@pytest.mark.slow
def test_two_processes_train_as_if_nobody_had_looked(tmp_path: Path) -> None:
    tiny_options(tmp_path)  # writes the corpus
    script, here = tmp_path / "two.py", Path(__file__).parent
    script.write_text(TWO)
    for name in ("looked", "plain"):
        done = launch(script, tmp_path, name, here, here.parent)
        assert done.returncode == 0, done.stderr
    states = [json.loads((tmp_path / name / "trainer_state.json").read_text()) for name in ("looked", "plain")]
    looked, plain = (state["log_history"] for state in states)
    assert len(logged(looked, "decoder_gap")) == 6
    assert losses(looked) == losses(plain)
    assert same_weights(weights(tmp_path / "looked"), weights(tmp_path / "plain"))
