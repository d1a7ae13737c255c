"""Bad inputs of every kind against every verb that is fast with tiny models: success, or a sentence and exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_RUN = Path(__file__).with_name("run.py")


@pytest.mark.slow
def test_no_input_ends_in_a_trace_a_signal_or_a_hang(tmp_path: Path) -> None:
    cases = int(os.environ.get("HF_DENSE_ATTACKS", "48"))
    command = [sys.executable, str(_RUN), "--cases", str(cases), "--out", str(tmp_path / "found.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert sum(found["in all"].values()) == cases + found["named"]
    assert set(found["in all"]) == {"done", "refused"}
