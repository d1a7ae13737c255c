"""How fast a training reads, without what is no training: logs, probes, evaluations and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import TrainerCallback

from hf_dense.modeling.bottleneck_layout import tokens_of

TOKENS: Final = "tokens_per_second"
PASSAGES: Final = "passages_per_second"


class Throughput(TrainerCallback):
    """Counts what the encoders read, and the seconds from one step's end to the next, the loader's included.

    Args:
        encoders: the views that encoders read; the first one's texts are the passages.
        device: where tokens are counted, so that no step waits for it.
    """

    def __init__(self, encoders: Sequence[str], device: torch.device) -> None:
        self.encoders = encoders
        self.device = device
        self._restart()

    def _restart(self) -> None:
        self._tokens = torch.zeros((), dtype=torch.int64, device=self.device)
        self._passages = 0
        self._seconds = 0.0

    def read(self, views: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Count a batch: its tokens, padding left out."""
        for name in self.encoders:
            self._tokens += tokens_of(views[name]).sum()
        self._passages += len(views[self.encoders[0]]["input_ids"])

    def rates(self, accelerator: Accelerator) -> dict[str, float]:
        """Tokens and passages a second, of all processes, since they were asked for last."""
        read = torch.stack([self._tokens, torch.full_like(self._tokens, self._passages)])
        tokens, passages = accelerator.reduce(read, "sum").tolist()
        seconds = max(self._seconds, 1e-9)
        self._restart()
        return {TOKENS: round(tokens / seconds, 1), PASSAGES: round(passages / seconds, 2)}

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The first step begins."""
        self._restart()
        self._mark = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """A step has ended."""
        now = time.perf_counter()
        self._seconds += now - self._mark
        self._mark = now

    def _passed(self, *_: Any, **__: Any) -> None:
        """What was done since the last step's end was no training."""
        self._mark = time.perf_counter()

    on_log = on_evaluate = on_save = _passed
