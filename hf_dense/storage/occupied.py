"""Directories that are worked in: trainings with their checkpoints, folders of evaluations."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from hf_dense.errors import InputError
from hf_dense.storage.files import plain_errors, says_full, share_like
from hf_dense.storage.manifest import (
    COMPLETE,
    MANIFEST,
    RUNNING,
    Manifest,
    foreign_file,
    is_claimed,
    list_files,
    missing_file,
    remove_ours,
    warn_of_inner,
)
from hf_dense.storage.places import DONE, LOCK, NEW, RESUMED, Lock, check_replaceable, state_of
from hf_dense.storage.process_group import is_main_process, wait_for_everyone

_SPARE: Final = ("checkpoint-*", "runs", "training_args.bin")  # of a training: it is done without them


@dataclass
class Occupied:
    """A directory that is worked in; used in a `with` statement.

        with output.occupy("pre-training", settings, sources, claims=["checkpoint-*"]) as work:
            if not work.done:
                train(work.path, resume=work.resumed)
                work.complete()

    A run that stops before `complete` leaves its work to be gone on with; one that has written nothing leaves nothing.

    Args:
        path: of the directory.
        overwrite: whether work that was made from something else is replaced.
        manifest: of it; names that it claims are nobody else's.
        again: whether a complete directory is worked in again.
        result: directory, this or one in it, without whose files the work is not done; checkpoints and logs may go.

    Attributes:
        done: whether the same work is complete here, and is not done again.
        resumed: whether the same work was begun, or done, here.
        facts: to be put into the manifest.
    """

    path: Path
    overwrite: bool
    manifest: Manifest
    again: bool = False
    result: Path | None = None
    done: bool = False
    resumed: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    _lock: Lock | None = None

    def __post_init__(self) -> None:
        if self._check() == DONE and not self.again:
            self.done = True
            if (self.path / LOCK).exists():  # of a run that was killed as it let go of it
                with suppress(InputError, OSError):
                    Lock(self.path, self.path).release()
            return
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = Lock(self.path, self.path)
        try:
            state, before = self._check(), Manifest.load(self.path)
            if state == NEW and before is not None:
                warn_of_inner(self.path)
                remove_ours(self.path)
            elif before is not None:
                self.resumed = True
                self.facts = before.facts
                claims = dict.fromkeys((*self.manifest.claims, *before.claims))
                self.manifest = replace(self.manifest, claims=tuple(claims))
            files = before.files if self.resumed and before else {}
            replace(self.manifest, files=files, facts=self.facts).save(self.path)
        except BaseException:
            self._lock.release()
            raise

    def __getstate__(self) -> dict[str, Any]:
        """For the other processes, which hold no lock."""
        return {**vars(self), "_lock": None}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.done or not is_main_process():
            return
        try:
            if self._lock:
                self._lock.release()
            if error is not None and not self.resumed and {entry.name for entry in self.path.iterdir()} == {MANIFEST}:
                (self.path / MANIFEST).unlink()
                self.path.rmdir()
        finally:
            if error is not None and (isinstance(error, OSError) or says_full(error)):
                with plain_errors(self.path):
                    raise error

    def claim(self, name: str) -> bool:
        """Whether a file may be written that was not claimed at the start; not where somebody's is in its place."""
        if (self.path / name).exists() and not is_claimed(name, self.manifest):
            return False
        self.manifest = replace(self.manifest, claims=tuple(dict.fromkeys((*self.manifest.claims, name))))
        self.record()
        return True

    def record(self) -> None:
        """Keep facts and claims for a run that goes on if this one is killed."""
        self._save(RUNNING)

    def complete(self) -> None:
        """Mark the work as complete, when all processes are done with it; what is claimed is listed as ours."""
        wait_for_everyone()
        self._save(COMPLETE)
        wait_for_everyone()

    def _save(self, state: str) -> None:
        if is_main_process():
            before, there = Manifest.load(self.path), list_files(self.path)
            known = {} if before is None else before.files
            files = {name: size for name, size in there.items() if name in known or is_claimed(name, self.manifest)}
            replace(self.manifest.listing(self.path, files), state=state, facts=self.facts).save(self.path)
            share_like(self.path / MANIFEST, (self.path / name for name in files))

    def _check(self) -> str:
        """What is to be done; raises where the directory, or a file that we would write over, is not ours."""
        state = state_of(self.path, self.manifest, self.overwrite)
        found = Manifest.load(self.path)
        if state == RESUMED and not self.again and (foreign := foreign_file(self.path)):
            raise InputError(f"{foreign} was not written by hf_dense; move it away, so that the work can go on.")
        if state == DONE and self.result and (gone := missing_file(self.result, _SPARE)):
            if not self.overwrite:
                raise InputError(
                    f"{self.result / gone} is gone, although the training is complete; put it back, name another "
                    "directory, or train anew with --overwrite."
                )
            check_replaceable(self.path)
            return NEW
        if self.again and found is not None and found.state == COMPLETE and state == DONE:
            claimed = [file for name in self.manifest.claims for file in self.path.glob(name) if file.is_file()]
            for file in claimed:
                if not found.is_unchanged(self.path, file.name):
                    raise InputError(f"{file} is not as hf_dense wrote it; move it away, or name another directory.")
        return state
