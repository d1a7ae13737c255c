"""What is to be run on a GPU runs whole on a CPU, at toy size, with torch and transformers alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from without_packages import BLOCK

from hf_dense.methods import METHODS
from hf_dense.modeling.modeling_retromae import RetroMAEConfig

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STAGES = ["correctness", "speed", "long", "curves", "small", "compile"]


def run(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The benchmark at toy size where packages are missing, and what it wrote."""
    (folder / "sitecustomize.py").write_text(BLOCK)
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, BENCHMARKS / "gpu.py", "--tiny", "--output", folder / "gpu.json", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done, json.loads((folder / "gpu.json").read_text())


@pytest.mark.slow
def test_all_of_it_runs_at_toy_size(tmp_path: Path) -> None:
    done, results = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert results["failures"] == []
    assert [*results["stages"]] == STAGES
    rows = {stage: {row["case"]: row for row in part["rows"]} for stage, part in results["stages"].items()}
    for method in METHODS:
        assert rows["correctness"][f"{method} = plain, fp32; bf16"]["agrees"]
        for kind in ("bert", "modernbert"):
            assert rows["speed"][f"{method} {kind}"]["tokens_per_second"] > 0
            assert f"| speed | {method} {kind} |" in done.stdout
    assert rows["small"]["pre-trained"]["mrr@10"] > 0
    assert results["provenance"]["gpu"] is None


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command as a module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import gpu

    return gpu


def test_a_process_that_dies_or_hangs_costs_its_stage_alone(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(
        f"""
import os, sys, time
sys.path.insert(0, {str(BENCHMARKS)!r})
from pathlib import Path
from gpu import Report
stages = sys.argv[sys.argv.index("--stages") + 1 : sys.argv.index("--until")]
report = Report(Path(sys.argv[sys.argv.index("--output") + 1]))
for stage in stages:
    report.start(stage, time.time())
    report.add(stage, {{"case": "first", "seconds": 0.0}})
    if stage == "speed":
        os._exit(11)
    if stage == "long":
        time.sleep(60)
    report.end(stage)
"""
    )
    monkeypatch.setattr(gpu, "__file__", str(worker))
    monkeypatch.setattr(gpu, "GRACE", 0.5)
    path = tmp_path / "gpu.json"
    options = type("Options", (), {"stages": STAGES, "minutes": 1.0, "output": path, "tiny": True, "fresh": True})
    gpu.supervise(options, gpu.time.time())
    stages = json.loads(path.read_text())["stages"]
    assert {name: part["error"] for name, part in stages.items()} == {
        **dict.fromkeys(STAGES),
        "speed": "the process ended with exit code 11",
        "long": "stopped: it took longer than its share of the time",
    }
    assert all(part["rows"] for part in stages.values())
    assert len(gpu.failures({"stages": stages})) == 2


def test_operations_are_counted_within_windows_and_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    from needed_operations import needed_operations

    length, hidden, inner, vocabulary = 20, 32, 48, 200
    sizes = {"hidden_size": hidden, "num_attention_heads": 4, "intermediate_size": inner, "vocab_size": vocabulary}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    modern = {"model_type": "modernbert", "num_hidden_layers": 2, "local_attention": 4, **sizes, **special}
    config = RetroMAEConfig(backbone_config=modern, decoders={"decoder": None})
    ones, labels = torch.ones(1, length, dtype=torch.long), torch.full((1, length), -100)
    labels[0, :3] = 5
    found = needed_operations(config, {"encoder": {"attention_mask": ones, "labels": labels}})
    pairs = length**2 + sum(abs(i - j) <= 2 for i in range(length) for j in range(length))
    layers = hidden * (2 * length * (4 * hidden + 3 * inner) + 2 * pairs)
    assert found == 6 * (layers + 3 * hidden * (hidden + vocabulary))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_leaves_earlier_results_alone(tmp_path: Path) -> None:
    kept = tmp_path / "gpu.json"
    kept.write_text("{}")
    command = [sys.executable, BENCHMARKS / "gpu.py", "--output", kept]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "PyTorch finds no GPU here; --tiny runs all of it at toy size on the CPU."
    assert kept.read_text() == "{}"
