"""How long a step of Muon takes: ours, torch's and pytorch_optimizer's, on the matrices of the demo's DupMAE.

    python benchmarks/muon.py [--steps 10] [--output benchmarks/results/muon.json]

Nineteen matrices, of 128 x 128, 512 x 128 and 128 x 512, one thread; the three take turns in one process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytorch_optimizer
import torch
from torch import nn

from hf_dense.pretraining.muon import Muon
from hf_dense.storage.files import write_text
from hf_dense.storage.provenance import describe_commit, describe_hardware

SHAPES = [*[(128, 128)] * 13, *[(512, 128)] * 3, *[(128, 512)] * 3]
RATE = 2e-3
OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], Any]] = {
    "hf_dense": lambda matrices: Muon([{"params": matrices, "muon": True}], lr=RATE),
    "torch": lambda matrices: torch.optim.Muon(matrices, lr=RATE, adjust_lr_fn="match_rms_adamw"),
    "pytorch_optimizer": lambda matrices: pytorch_optimizer.Muon([{"params": matrices, "use_muon": True}], lr=RATE),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results") / "muon.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    matrices = {name: [nn.Parameter(torch.randn(shape)) for shape in SHAPES] for name in OPTIMIZERS}
    optimizers = {name: make(matrices[name]) for name, make in OPTIMIZERS.items()}
    times: dict[str, list[float]] = {name: [] for name in OPTIMIZERS}
    for step in range(options.steps + 1):
        for name, optimizer in optimizers.items():
            for matrix in matrices[name]:
                matrix.grad = torch.randn_like(matrix)
            start = time.process_time()
            optimizer.step()
            if step:  # the first makes the state
                times[name].append(1000 * (time.process_time() - start))
    found = {name: statistics.median(each) for name, each in times.items()}
    facts = {
        "milliseconds of a step": {name: round(each, 1) for name, each in found.items()},
        "times ours": {name: round(each / found["hf_dense"], 1) for name, each in found.items()},
        "steps": options.steps,
        "seed": 0,
        "commit": describe_commit(Path(__file__).parent),
        "hardware": describe_hardware(),
        "versions": {name: version(name) for name in ("torch", "pytorch_optimizer")},
    }
    write_text(options.output, json.dumps(facts, indent=1))
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
