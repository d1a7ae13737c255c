from __future__ import annotations

from types import SimpleNamespace

import pytest

from hf_dense.experiments import countdown
from hf_dense.experiments.countdown import Countdown


def test_what_is_left_follows_from_what_was_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter((0.0, 60.0, 180.0, 240.0))
    monkeypatch.setattr(countdown, "time", SimpleNamespace(monotonic=lambda: next(times)))
    steps = Countdown(3)
    for name in "abc":
        steps.step(name)
    assert capsys.readouterr().err.splitlines() == [
        "a: 1 of 3 done in 1.0 min, about 2.0 min left",
        "b: 2 of 3 done in 3.0 min, about 1.5 min left",
        "c: 3 of 3 done in 4.0 min",
    ]


def test_a_single_step_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Countdown(1).step("a")
    assert capsys.readouterr().err == ""
