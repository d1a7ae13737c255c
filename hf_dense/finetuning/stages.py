"""Stages of a pipeline: done once, skipped when done, gone on with when killed, never mixed up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hf_dense.errors import InputError
from hf_dense.storage.files import write_text
from hf_dense.storage.fingerprints import fingerprint_files
from hf_dense.storage.process_group import process_state


class Stages:
    """The stages of a run, each recorded in `<directory>/stages/<name>.json` with what it was made from.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(
        self,
        name: str,
        settings: Mapping[str, Any],
        inputs: Mapping[str, Path],
        work: Callable[[Path, bool], None],
        together: bool = False,
    ) -> Path:
        """Do a stage, unless it is done.

        Args:
            name: of the stage, and of its directory.
            settings: all that its result depends on beside the inputs, as JSON has it.
            inputs: files or directories that it reads, by what they are.
            work: writes the directory; told whether an earlier attempt was cut off, whose work can be gone on with.
            together: whether all processes of `accelerate launch` work; otherwise the others wait for the first.

        Returns:
            The stage's directory.

        Raises:
            InputError: it was begun or done with other settings or inputs; nothing is overwritten then.
        """
        record, out = self.directory / "stages" / f"{name}.json", self.directory / name
        made_from = json.loads(json.dumps({**settings, **{key: content_hash(path) for key, path in inputs.items()}}))
        before = json.loads(record.read_text(encoding="utf-8")) if record.exists() else None
        if before is not None:
            other = sorted(
                key for key in {*made_from, *before["made_from"]} if made_from.get(key) != before["made_from"].get(key)
            )
            if other:
                raise InputError(
                    f"{out} was made with another {other[0]}; choose another output_dir, or remove {out} and {record}."
                )
            if before["seconds"] is not None:
                if not out.is_dir():
                    raise InputError(f"{out} is gone, although it was complete; remove {record} to make it again.")
                return out
        elif out.exists():
            raise InputError(f"{out} exists and was not made by this pipeline; choose another output_dir.")
        state = process_state()
        state.wait_for_everyone()
        if state.is_main_process:
            write_text(record, json.dumps({"made_from": made_from, "seconds": None}, indent=1))
        started = time.perf_counter()
        if together or state.is_main_process:
            work(out, before is not None)
        state.wait_for_everyone()
        if state.is_main_process:
            done = {"made_from": made_from, "seconds": time.perf_counter() - started}
            write_text(record, json.dumps(done, indent=1))
        state.wait_for_everyone()
        return out

    def seconds(self, name: str) -> float:
        """How long a stage took that is done (its last attempt)."""
        record = json.loads((self.directory / "stages" / f"{name}.json").read_text(encoding="utf-8"))
        return float(record["seconds"])


def content_hash(path: Path) -> str:
    """SHA-256 of a file, or of the names and bytes of a directory's files; cards, checkpoints and indexes
    have no part in it.

    Raises:
        InputError: nothing is there.
    """
    if path.is_file():
        files = [path]
    elif path.is_dir():
        files = sorted(
            file
            for file in path.rglob("*")
            if file.is_file() and file.name != "README.md" and not _is_by_the_way(file.relative_to(path))
        )
    else:
        raise InputError(f"There is no file or directory {path}.")
    return fingerprint_files(files, path)


def _is_by_the_way(file: Path) -> bool:
    """Checkpoints of a training, and the index that `hf-dense search` puts beside a model."""
    return any(part.startswith("checkpoint-") or part == "index" for part in file.parts)
