"""Memory that is as large as a test wants, for trainings whose batch size is to be found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

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
