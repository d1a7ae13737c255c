"""Functions of Python in several processes, as a notebook starts them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_retriever import write_dataset, write_embedder

from hf_dense.storage.manifest import Manifest

NOTEBOOK = """
import json, os, socket
from accelerate import notebook_launcher
import hf_dense

def train(given):
    few = {"max_steps": 2, "per_device_train_batch_size": 4, "use_cpu": True, "report_to": "none", "disable_tqdm": True}
    start = hf_dense.pretrain(method="retromae", backbone="embedder", corpus=given, out="start", max_length=20, **few)
    tuned = hf_dense.finetune(model=start, collection=given, out="tuned", **few)
    with open(f"rank{os.environ['RANK']}.json", "w") as said:
        json.dump([os.environ["WORLD_SIZE"], str(start), str(tuned), tuned.figures["step"]], said)

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
notebook_launcher(train, ("data",), num_processes=2, use_port=port)
"""


@pytest.mark.slow
def test_a_notebook_trains_in_two_processes(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data")
    write_embedder(tmp_path / "embedder")
    subprocess.run([sys.executable, "-c", NOTEBOOK], cwd=tmp_path, check=True, capture_output=True, timeout=200)
    for rank in (0, 1):
        assert json.loads((tmp_path / f"rank{rank}.json").read_text()) == ["2", "start", "tuned/model", 2]
    manifest = Manifest.load(tmp_path / "start")
    assert manifest is not None
    assert manifest.state == "complete"
