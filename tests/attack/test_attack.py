"""Bad inputs, kills and full disks, against every verb that is fast with tiny models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def run(name: str, cases: int, out: Path, *more: str) -> dict[str, Any]:
    """What a program of this folder found, which ended well."""
    command = [sys.executable, str(Path(__file__).with_name(name)), "--cases", str(cases), "--out", str(out), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.slow
def test_no_input_ends_in_a_trace_a_signal_or_a_hang(tmp_path: Path) -> None:
    cases = int(os.environ.get("HF_DENSE_ATTACKS", "24"))
    found = run("run.py", cases, tmp_path / "found.json")
    assert sum(found["in all"].values()) == cases + found["named"]
    assert set(found["in all"]) == {"done", "refused"}


@pytest.mark.slow
def test_what_is_interrupted_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    cases = int(os.environ.get("HF_DENSE_ATTACKS", "24"))
    found = run("interrupt.py", cases, tmp_path / "found.json")
    assert sum(found["in all"].values()) == cases
    assert found["in all"]["same"] > cases / 2


@pytest.mark.slow
def test_two_processes_that_are_interrupted_end_as_if_they_had_not_been(tmp_path: Path) -> None:
    cases = int(os.environ.get("HF_DENSE_ATTACKS", "24")) // 3
    found = run("interrupt.py", cases, tmp_path / "found.json", "--processes", "2")
    assert sum(found["in all"].values()) == cases
    assert found["in all"]["same"] > cases / 2


@pytest.mark.slow
def test_what_was_made_from_something_else_is_never_taken_for_done(tmp_path: Path) -> None:
    cases = int(os.environ.get("HF_DENSE_ATTACKS", "24"))
    found = run("stale.py", cases, tmp_path / "found.json")
    assert sum(found["in all"].values()) == found["cases"]
    assert found["in all"]["refused"] > found["cases"] / 2
