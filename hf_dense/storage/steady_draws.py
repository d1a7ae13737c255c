"""Evaluations that leave no trace in the draws of a training."""

from __future__ import annotations

from typing import Any

import torch


class SteadyDraws:
    """Evaluates without moving torch's random generators on, so that looking at held-out texts changes no dropout.

    To be named before the trainer that it is mixed into.
    """

    def evaluate(self, *given: Any, **named: Any) -> dict[str, float]:
        """The Trainer's; every reading of held-out texts draws a number, whether it is used or not."""
        trainer: Any = super()
        device = vars(self)["args"].device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            metrics: dict[str, float] = trainer.evaluate(*given, **named)
        return metrics
