"""Memory that is as large as a test wants, for trainings whose batch size is to be found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from manifests import manifest_of

from hf_dense.storage import batch_size


class Imagined:
    """Memory of which a step takes `fixed` bytes, and `each` for every row."""

    share = 0.5

    def __init__(self, free: int, each: float, fixed: int = 0) -> None:
        self.free, self.each, self.fixed = free, each, fixed
        self.sizes: list[int] = []

    def peak(self, run: Callable[[], object]) -> int:
        """Take the step, whose last argument is its rows."""
        assert isinstance(run, partial)
        run()
        self.sizes.append(run.args[-1])
        return round(self.fixed + self.each * run.args[-1])


def imagine(monkeypatch: pytest.MonkeyPatch, rows: int) -> Imagined:
    """Let the machine have room for so many rows, and some more, as far as trainings see."""
    memory = Imagined(10**9, 10**9 / (2.2 * rows))
    monkeypatch.setattr(batch_size, "MainMemory", lambda: memory)
    return memory


def batch_of(out: Path) -> int:
    """The batch size that a training in a directory was found to have room for."""
    size: int = manifest_of(out).made_from["batch_size"]
    return size
