"""`hf-dense sweep` as a user starts it: runs side by side, good input and bad."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_retriever import write_dataset

pytestmark = pytest.mark.slow


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hf_dense.commands.main", "sweep", *map(str, words)]
    return subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)


def test_a_few_shot_sweep_side_by_side(tmp_path: Path) -> None:
    data, few = write_dataset(tmp_path / "data"), {"max_steps": 2, "per_device_train_batch_size": 4, "use_cpu": True}
    file = tmp_path / "sweep.yaml"
    given = {"sweep": "fraction", "values": [0.5, 1], "method": "retromae", "collection": str(data), "split": "test"}
    sizes = {"hidden": 32, "vocabulary": 300, "max_length": 16, "pretraining": few, "finetuning": few}
    file.write_text(json.dumps({**given, **sizes}))  # JSON is YAML
    done = run("--config", file, "--out", tmp_path / "out", "--side_by_side", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| retromae |") == done.stdout.count("| no pre-training |") == 2
    logs = {path.stem for path in (tmp_path / "out" / "logs").iterdir()}
    assert len(logs) == 5
    assert "pretrained-seed0" in logs
    assert {"sweep.md", "sweep.png", "sweep.json"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    given = ("--values", "0.5", "1.5", "--method", "retromae", "--collection", tmp_path, "--out", tmp_path / "out")
    done = run("--sweep", "masking", *given)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("error: 1.5 is no value of the sweep 'masking'")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_run_that_a_sweep_does_not_have(tmp_path: Path) -> None:
    collection = write_dataset(tmp_path / "data")
    given = ("--values", "0", "1", "--method", "retromae", "--collection", collection, "--out", tmp_path / "out")
    done = run("--sweep", "queries", *given, "--only", "none")
    assert done.returncode == 2, done.stderr
    assert "error: --only none is no run of this sweep; there are: pretrained-seed0, retromae-0-seed0" in done.stderr
