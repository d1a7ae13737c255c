"""Finding and checking the checkpoint a run resumes from."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hf_dense.errors import InputError


def checkpoint_to_resume(wanted: str | None, output_dir: str, method: str) -> str | None:
    """The checkpoint to resume from.

    Args:
        wanted: a checkpoint directory; `true` or `last` for the newest complete one in `output_dir`; None for none.
        output_dir: the run's directory.
        method: the method being trained.

    Returns:
        Its path, or None to start anew.

    Raises:
        InputError: there is none, it is incomplete, or it is of another method.
    """
    if wanted is None or wanted.lower() == "false":
        _refuse_foreign(Path(output_dir), method)
        return None
    if wanted.lower() in ("true", "last"):
        newest = newest_checkpoint(output_dir)
        if newest is None:
            raise InputError(f"There is no complete checkpoint in {output_dir} to resume from; start without resuming.")
        found = newest
    else:
        found = Path(wanted)
        if not (found / "trainer_state.json").is_file():
            raise InputError(f"{wanted} is not a complete checkpoint (it has no trainer_state.json).")
    _refuse_foreign(found, method)
    return str(found)


def newest_checkpoint(output_dir: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint of a Trainer in `output_dir`, or None; one that is not complete is passed over."""
    complete = (path for path in Path(output_dir).glob("checkpoint-[0-9]*") if (path / "trainer_state.json").is_file())
    return max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def _refuse_foreign(directory: Path, method: str) -> None:
    """Raise `InputError` when `directory` holds a model of another method."""
    config = directory / "config.json"
    if config.is_file():
        found = json.loads(config.read_text(encoding="utf-8")).get("model_type")
        if found != method:
            raise InputError(f"{directory} holds a {found!r} model, not {method!r}; use another directory or method.")
