"""Rows gathered from two processes give the gradients of one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, multiprocessing

from hf_dense.modeling.bottleneck_gather import gather_rows
from hf_dense.modeling.bottleneck_losses import pair_loss


def vectors() -> Tensor:
    return torch.randn(8, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def run_process(rank: int, directory: str) -> None:
    """Loss and gradient of half the rows, written to `directory`."""
    distributed.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=2)
    rows = vectors()[4 * rank : 4 * rank + 4].requires_grad_()
    valid = torch.ones(4, dtype=torch.bool)
    candidates, offset = gather_rows(rows)
    loss = pair_loss(rows, valid, candidates, gather_rows(valid)[0], offset)
    loss.backward()
    torch.save({"loss": loss.detach(), "gradient": rows.grad}, f"{directory}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_give_the_loss_and_gradient_of_one(tmp_path: Path) -> None:
    multiprocessing.spawn(run_process, args=(str(tmp_path),), nprocs=2)
    parts = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    rows, valid = vectors().requires_grad_(), torch.ones(8, dtype=torch.bool)
    loss = pair_loss(rows, valid, rows, valid, offset=0)
    loss.backward()
    torch.testing.assert_close(parts[0]["loss"] + parts[1]["loss"], loss.detach())
    torch.testing.assert_close(torch.cat([part["gradient"] for part in parts]), rows.grad)


def test_one_process_alone_gets_its_rows_back() -> None:
    rows = vectors()
    gathered, offset = gather_rows(rows)
    assert gathered is rows
    assert offset == 0
