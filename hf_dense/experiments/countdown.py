"""How far several long trainings are, and about how long the others will take."""

from __future__ import annotations

import sys
import time

from tqdm.auto import tqdm


class Countdown:
    """Counts steps that take about as long as each other, and says so on standard error where there are several.

    Args:
        total: steps that are to be done; those that were done before do not count.
    """

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.started = time.monotonic()

    def step(self, name: str) -> None:
        """Say that a step is done."""
        self.done += 1
        spent = time.monotonic() - self.started
        left = spent / self.done * (self.total - self.done)
        if self.total > 1:
            about = f", about {left / 60:.1f} min left" if left else ""
            tqdm.write(f"{name}: {self.done} of {self.total} done in {spent / 60:.1f} min{about}", file=sys.stderr)
