"""The benchmark of long texts, at toy size: every figure is measured and shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_it_measures_at_toy_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import long_texts

    output, plot = tmp_path / "long_texts.json", tmp_path / "long_texts.png"
    sizes = ["--lengths", "16", "32", "--steps", "1", "--hidden", "48"]
    script = [sys.executable, str(BENCHMARKS / "long_texts.py")]
    path = os.pathsep.join([str(BENCHMARKS.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(  # memory of a process that has run other tests says nothing of this model's
        [*script, *sizes, "--output", str(output), "--plot", str(plot)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(output.read_text())["rows"]
    assert [row["length"] for row in rows] == [16, 32]
    for row in rows:
        for way in long_texts.WAYS:
            tokens = 32 if way == "step" else row["length"]
            assert row[way]["tokens_per_second"] == pytest.approx(tokens / row[way]["seconds"])
            assert row[way]["peak_gb"] > 0
    assert long_texts.table(rows) in done.stdout
    assert [line.split("|")[1].strip() for line in long_texts.table(rows).splitlines()[2:]] == ["16", "32"]
    assert plot.stat().st_size > 0
    speed, memory = long_texts.draw(rows).axes
    assert [len(axes.lines) for axes in (speed, memory)] == [1, len(long_texts.WAYS)]
