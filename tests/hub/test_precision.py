"""The precision that a machine is faster in is tried out, not looked up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hf_dense.hub import precision
from hf_dense.hub.precision import is_faster_in_bf16


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    is_faster_in_bf16.cache_clear()
    yield
    is_faster_in_bf16.cache_clear()


@pytest.mark.parametrize(("ratio", "faster"), [(0.3, True), (0.6, True), (0.7, False), (3.0, False)])
def test_it_has_to_be_worth_it(ratio: float, faster: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(precision, "_seconds", {torch.float32: 1.0, torch.bfloat16: ratio}.__getitem__)
    assert is_faster_in_bf16() is faster


def test_it_is_tried_once_and_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    first = is_faster_in_bf16()
    monkeypatch.setattr(precision, "_seconds", None)
    assert is_faster_in_bf16() is first
