"""The benchmark of long texts, at toy size: every figure is measured and shown."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_it_measures_at_toy_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import long_texts

    options = Namespace(lengths=[16, 32], steps=1, hidden=48)
    rows = [
        {"length": length, **{way: long_texts.measure(options, way, length) for way in long_texts.WAYS}}
        for length in options.lengths
    ]
    for row in rows:
        for way in long_texts.WAYS:
            tokens = 32 if way == "step" else row["length"]
            assert row[way]["tokens_per_second"] == pytest.approx(tokens / row[way]["seconds"])
            assert row[way]["peak_gb"] > 0
    assert [line.split("|")[1].strip() for line in long_texts.table(rows).splitlines()[2:]] == ["16", "32"]
    speed, memory = long_texts.draw(rows).axes
    assert [len(axes.lines) for axes in (speed, memory)] == [1, len(long_texts.WAYS)]
