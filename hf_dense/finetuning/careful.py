"""What the trainers of retrievers and of re-rankers add to those of Sentence-Transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hf_dense.errors import InputError


class CarefulTraining:
    """Stops at a loss that is no number, and writes no card that quotes training texts, whose licence we do not know.

    To be named before the trainer of Sentence-Transformers that it is mixed into.
    """

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add nothing."""

    def training_step(self, *given: Any, **named: Any) -> Tensor:
        """One step; a loss that is no number ends the training, with the last checkpoint in place."""
        trainer: Any = super()
        loss: Tensor = trainer.training_step(*given, **named)
        if not torch.isfinite(loss):
            state: Any = vars(self)["state"]
            raise InputError(
                f"The loss is {loss.item()} at step {state.global_step + 1}; lower learning_rate, and start again "
                "from the checkpoint before."
            )
        return loss
