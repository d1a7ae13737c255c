"""What the benchmark of pre-training compares with has the loss and the gradients of ours, for every method."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_dense import METHODS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_it_measures_every_method_at_toy_size() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (BENCHMARKS.parent, *sys.path)))}
    command = [sys.executable, BENCHMARKS / "pretraining.py", "--check"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    for method in METHODS:
        for lengths in ("real", "full"):
            assert f"{method} toy {lengths} fp32: the losses agree" in done.stdout
            assert f"| {method} | toy | {lengths} | fp32 | " in done.stdout


@pytest.fixture
def pretraining(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import pretraining

    return pretraining


def sides(pretraining: Any, method: str) -> tuple[Any, dict[str, Any]]:
    case = pretraining.Case(method, "toy", "real", "fp32")
    model = pretraining.make_model(case)
    batches = pretraining.make_batches(case, model.config, 1)
    return case, {name: pretraining.make_side(name, case, model, batches, fixed=True) for name in pretraining.SIDES}


def without_mask(plain: Any) -> None:
    attend = plain.attend
    plain.attend = lambda part, stream, memory, mask: attend(part, stream, memory, torch.zeros_like(mask))


def with_another_bottleneck(plain: Any) -> None:
    encode = plain.encode
    plain.encode = lambda view: tuple(torch.cat([h[:, :1] * 0.9, h[:, 1:]], dim=1) for h in encode(view))


def with_detached_bottleneck(plain: Any) -> None:
    decode = plain.decode
    plain.decode = lambda name, view, states: decode(
        name, view, {encoder: tuple(h.detach() for h in layers) for encoder, layers in states.items()}
    )


@pytest.mark.parametrize("method", ["seed_encoder", "retromae", "cotmae", "master"])
@pytest.mark.parametrize("spoil", [without_mask, with_another_bottleneck, with_detached_bottleneck])
def test_nothing_is_timed_where_they_disagree(pretraining: Any, method: str, spoil: Callable[[Any], None]) -> None:
    case, both = sides(pretraining, method)
    assert pretraining.check_agreement(case, both) <= pretraining.LOSSES
    spoil(both["plain"].model)
    with pytest.raises(SystemExit, match=f"{method}: the (losses|gradients' norms) differ"):
        pretraining.check_agreement(case, both)


def test_a_row_that_is_measured_again_takes_the_place_of_the_first(pretraining: Any, tmp_path: Path) -> None:
    def row(method: str, shape: str, seconds: float) -> dict[str, Any]:
        return {"method": method, "shape": shape, "lengths": "real", "precision": "fp32", "seconds": seconds}

    path = tmp_path / "results.json"
    pretraining.keep(path, [row("retromae", "base", 1.0), row("retromae", "tiny", 2.0)])
    pretraining.keep(path, [row("condenser", "base", 3.0)])
    rows = pretraining.keep(path, [row("retromae", "base", 4.0)])
    assert rows == [row("condenser", "base", 3.0), row("retromae", "tiny", 2.0), row("retromae", "base", 4.0)]
