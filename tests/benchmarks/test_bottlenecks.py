"""The figures by which vectors before and after a pre-training are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bottlenecks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import bottlenecks

    return bottlenecks


def test_the_effective_rank_counts_directions(bottlenecks: Any) -> None:
    assert bottlenecks.effective_rank(torch.ones(5, 4).double()) == pytest.approx(1)
    assert bottlenecks.effective_rank(torch.eye(4).double().repeat(3, 1)) == pytest.approx(4)
    vectors = np.random.default_rng(0).normal(size=(20, 6)) * [9, 3, 1, 1, 1, 1]
    shares = np.linalg.svd(vectors, compute_uv=False)
    shares /= shares.sum()
    expected = np.exp(-(shares * np.log(shares)).sum())
    assert bottlenecks.effective_rank(torch.tensor(vectors)) == pytest.approx(expected)


def test_vectors_are_looked_at_in_all_pairs(bottlenecks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).double()
    monkeypatch.setattr(bottlenecks, "encode", lambda model, texts, length: vectors[: len(texts)])
    pool = bottlenecks.Pool(Path(), "dev", ["a", "b"], ["c"] * 6, torch.eye(2, 6).double())
    found = bottlenecks.look("model", pool, 8)
    pairs = [
        torch.cosine_similarity(vectors[one], vectors[other], dim=0)
        for one in range(6)
        for other in range(6)
        if one != other
    ]
    assert found["cosine"] == pytest.approx(torch.stack(pairs).mean().item())
    assert found["norm"] == pytest.approx(vectors.norm(dim=1).mean().item())


def test_what_is_reported_is_the_last_quarter(bottlenecks: Any) -> None:
    curve = [{"step": step, "encoder_loss": float(step)} for step in range(10, 81, 10)]
    curve[-1]["decoder_gap"] = 0.5
    assert bottlenecks.at_the_end({"steps": 80, "curve": curve}) == {"encoder_loss": 75.0, "decoder_gap": 0.5}
