"""Where a fine-tuning goes on, and what it draws then: the same as if it had never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_dense.errors import InputError
from hf_dense.finetuning.lists import PassageLists
from hf_dense.storage.checkpoints import newest_checkpoint


def resume_point(arguments: TrainingArguments) -> str | None:
    """The checkpoint that `resume_from_checkpoint` names; `true` is the newest complete one in `output_dir`.

    Returns:
        Its path, or None to start anew.

    Raises:
        InputError: there is none, or it is incomplete.
    """
    given = str(arguments.resume_from_checkpoint or False)
    if given.lower() == "false":
        return None
    if given.lower() == "true":
        newest = newest_checkpoint(output_directory(arguments))
        if newest is None:
            raise InputError(f"There is no checkpoint in {arguments.output_dir} to resume from.")
        return str(newest)
    if not Path(given).is_dir():
        raise InputError(f"There is no checkpoint directory {given} to resume from.")
    if not (Path(given) / "trainer_state.json").is_file():
        raise InputError(f"{given} is not a complete checkpoint (it has no trainer_state.json).")
    return given


def output_directory(arguments: TrainingArguments) -> Path:
    """The directory that receives a training.

    Raises:
        InputError: none is named.
    """
    if not arguments.output_dir:
        raise InputError("output_dir is empty; name the directory that receives the training.")
    return Path(arguments.output_dir)


class Visits(TrainerCallback):
    """Tells lists which visit begins, so that other passages are drawn in every epoch, after a resume too."""

    def __init__(self, lists: PassageLists) -> None:
        self.lists = lists

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Number the visit by the epochs that are complete."""
        self.lists.visit = int((state.epoch or 0) + 1e-6)
