"""ANCE: negatives mined again with the retriever as it is being trained."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from accelerate import PartialState
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_dense.errors import InputError
from hf_dense.finetuning.lists import Entry, PassageLists

logger = logging.getLogger(__name__)


class RefreshNegatives(TrainerCallback):
    """Mine negatives with the model as it is, before every so many visits of the queries, and train on with them.

    The lists of a refresh stand in `<output_dir>/refresh-<visit>/`: a resumed run goes on with those it had. Training
    waits for the mining (ANCE mines on other machines meanwhile, so that its negatives are older than these).

    Args:
        lists: what is trained on; changed in place.
        every: visits between two refreshes.
        mine: writes the training lists that a retriever finds into a directory.
        read: reads them.

    Raises:
        InputError: `every` is below 1.
    """

    def __init__(
        self,
        lists: PassageLists,
        every: int,
        mine: Callable[[SentenceTransformer, Path], None],
        read: Callable[[Path], Sequence[Entry]],
    ) -> None:
        if every < 1:
            raise InputError(f"refresh is {every}; negatives are mined again after one visit or more.")
        self.lists, self.every, self.mine, self.read = lists, every, mine, read

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        """Mine when it is time; take up the lists of the last refresh."""
        last = int((state.epoch or 0) + 1e-6) // self.every * self.every
        if last == 0:
            return
        assert args.output_dir is not None
        out = Path(args.output_dir) / f"refresh-{last}"
        process = PartialState()
        if process.is_main_process and not out.is_dir():
            logger.info("Mining negatives again before visit %d", last)
            self.mine(model, out)
            model.train()
        process.wait_for_everyone()
        fresh = {entry.id: entry for entry in self.read(out)}
        self.lists.replace([fresh.get(entry.id, entry) for entry in self.lists.entries])
