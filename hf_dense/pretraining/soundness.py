"""A training whose loss or weights are no numbers ends, and says which texts it was reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from hf_dense.errors import InputError
from hf_dense.pretraining.sampler import PassageSampler
from hf_dense.storage.files import write_text

STEP_FILE: Final = "not_a_number.json"


class Soundness:
    """Keeps the first step whose loss was no number, without waiting for a GPU.

    Args:
        device: of the losses.
    """

    def __init__(self, device: torch.device) -> None:
        self._first = torch.zeros((), dtype=torch.long, device=device)

    def watch(self, loss: Tensor, step: int) -> None:
        """Look at the loss of a step, which are numbered from 1."""
        self._first = torch.where(torch.isfinite(loss) | (self._first > 0), self._first, step)

    @property
    def first_step(self) -> int:
        """The first step whose loss was no number; 0 where there was none. Waits for the device."""
        return int(self._first)


def check_weights(model: nn.Module, step: int) -> None:
    """Raise `InputError` where a weight is no number after so many steps."""
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise InputError(
                f"The weights {name} are no numbers after step {step}; lower learning_rate, and train anew."
            )


def write_step(
    path: Path,
    step: int,
    steps: int,
    rows: Dataset,
    sampler: PassageSampler,
    tokenizer: PreTrainedTokenizerBase | None,
) -> None:
    """Write what a step read: its number and epoch, from 1, and its texts with the numbers of their rows, from 0.

    Args:
        path: of the file.
        step: from 1.
        steps: of an epoch.
        rows: token ids, in the columns `text` and others.
        sampler: their order.
        tokenizer: that made them; without it token ids are written.
    """
    epoch, at = divmod(step - 1, steps)
    read = [int(row) for row in sampler.order(epoch)[at * sampler.batch : (at + 1) * sampler.batch]]
    ids = [rows[row]["text"].tolist() for row in read]
    texts = [tokenizer.decode(one) for one in ids] if tokenizer else ids
    shown = [{"row": row, "text": text} for row, text in zip(read, texts, strict=True)]
    found = {"step": step, "epoch": epoch + 1, "read": shown}
    write_text(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
