"""ANCE: negatives mined again with the retriever as it is being trained."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_dense.errors import InputError
from hf_dense.finetuning.lists import Entry, PassageLists
from hf_dense.finetuning.training import SharedDefaults
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.output import Output
from hf_dense.storage.process_group import decide_together

logger = logging.getLogger(__name__)


class RefreshNegatives(TrainerCallback):
    """Mine negatives with the model as it is, before every so many epochs, and train on with them.

    The lists of a refresh stand in `<output_dir>/refresh-<epoch>/`: a resumed run goes on with those it had. Training
    waits for the mining (ANCE mines on other machines meanwhile, so that its negatives are older than these).

    Args:
        lists: what is trained on; changed in place.
        every: epochs between two refreshes.
        mine: writes the training lists that a retriever finds, in a precision, into an output; called on every process.
            The precision is the training's, in which its model computes whatever is asked of it.
        read: reads them.
        options: of the mining, for the manifest of the training.

    Raises:
        InputError: `every` is below 1.
    """

    def __init__(
        self,
        lists: PassageLists,
        every: int,
        mine: Callable[[SentenceTransformer, Output, str], object],
        read: Callable[[Path], Sequence[Entry]],
        options: Mapping[str, Any],
    ) -> None:
        if every < 1:
            raise InputError(f"refresh is {every}; negatives are mined again after one epoch or more.")
        self.lists, self.every, self.mine, self.read = lists, every, mine, read
        self.settings = {"every": every, **options}

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        """Mine when it is time; take up the lists of the last refresh."""
        last = int((state.epoch or 0) + 1e-6) // self.every * self.every
        if last == 0:
            return
        assert args.output_dir is not None
        assert isinstance(args, SharedDefaults)
        out = Path(args.output_dir) / f"refresh-{last}"
        if decide_together(lambda: Manifest.load(out) is None):
            logger.info("Mining negatives again before epoch %d", last)
            # What a killed run left may be of slightly other weights.
            self.mine(model, Output(out, overwrite=True), args.precision)
            model.train()
        fresh = {entry.id: entry for entry in self.read(out)}
        self.lists.replace([fresh.get(entry.id, entry) for entry in self.lists.entries])
