"""Outputs that are complete or absent."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hf_dense.errors import InputError
from hf_dense.storage.files import plain_errors, says_full, share_like
from hf_dense.storage.manifest import (
    COMPLETE,
    MANIFEST,
    OWN_PREFIX,
    Manifest,
    difference,
    foreign_file,
    inner_outputs,
    list_files,
    missing_file,
    remove_ours,
    warn_of_inner,
)
from hf_dense.storage.places import DONE, NEW, RESUMED, Lock, check_place, check_replaceable, state_of
from hf_dense.storage.process_group import is_main_process, wait_for_everyone

_RESULT, _PIECES, _OLD = _PARTS = "result", "pieces", "old"  # in the directory of unfinished work


def put_back(path: Path) -> None:
    """Put an output back in its place that a run moved away and was killed before the new one was there.

    Raises:
        InputError: a run is replacing it now.
    """
    if path.exists():
        return
    partial = _partial(path)
    if not (_unfinished(partial) and Manifest.load(partial / _OLD)):
        return
    lock = Lock(partial, path)
    try:
        if not path.exists():
            os.rename(partial / _OLD, path)
    finally:
        lock.release()


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def _unfinished(partial: Path) -> bool:
    """Whether a directory is one of unfinished work, and no output that somebody called so."""
    found = Manifest.load(partial)
    return found is not None and found.claims == _PARTS


@dataclass
class Staged:
    """An output that is made beside its place and put there when it is complete; used in a `with` statement.

        with output.stage("corpus", settings, sources) as work:
            if not work.done:
                write(work.result)

    Unfinished work stands in `<path>.partial`: the `result`, begun anew by every run, and `pieces`, with which a run
    goes on that was killed. An output that is replaced stays in its place until the new one is complete.

    Args:
        path: where it belongs.
        overwrite: whether an output that was made from something else is replaced.
        manifest: of the output.
        resumable: whether unfinished work is gone on with.

    Attributes:
        done: whether the same output is there already, whole; nothing is to be written then.
        resumed: whether there is unfinished work to go on with.
        facts: to be put into the manifest.
    """

    path: Path
    overwrite: bool
    manifest: Manifest
    resumable: bool
    done: bool = False
    resumed: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    _lock: Lock | None = None

    def __post_init__(self) -> None:
        check_place(self.partial)
        put_back(self.path)
        self.done = self._check() == DONE
        if self.done and not self.partial.exists():
            return
        self.partial.mkdir(parents=True, exist_ok=True)
        self._lock = Lock(self.partial, self.path)
        try:
            if self.path.exists() and self._old.is_dir():  # of a run that was killed when it had replaced it
                remove_ours(self._old)
            state = self._check()
            self.done, self.resumed = state == DONE, state == RESUMED
            if self.done:
                self._clear_up()
            else:
                warn_of_inner(self.path)
                self._begin()
        except BaseException:
            self._lock.release()
            raise

    def __getstate__(self) -> dict[str, Any]:
        """For the other processes, which hold no lock."""
        return {**vars(self), "_lock": None}

    @property
    def partial(self) -> Path:
        """The directory of the unfinished work."""
        return _partial(self.path)

    @property
    def result(self) -> Path:
        """The directory to fill."""
        return self.partial / _RESULT

    @property
    def pieces(self) -> Path:
        """A directory for what the next run goes on with if this one is killed."""
        return self.partial / _PIECES

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.done:
            return
        if error is None:
            wait_for_everyone()
        try:
            if is_main_process():
                with plain_errors(self.path):
                    if error is None:
                        self._finish()
                    else:
                        self._give_up()
                        if isinstance(error, OSError) or says_full(error):
                            raise error
        finally:
            if self._lock:
                self._lock.release()
        if error is None:
            wait_for_everyone()

    def _check(self) -> str:
        """What is to be done, by what is there; raises where that is not ours."""
        state = state_of(self.path, self.manifest, self.overwrite)
        if state == DONE and (gone := missing_file(self.path)):
            if not self.overwrite and (inner := inner_outputs(self.path)):
                raise InputError(
                    f"{self.path} lacks {gone}, and {inner[0]} lies in it, which would go with it; move that away, or "
                    "make both again with --overwrite."
                )
            if foreign := foreign_file(self.path):
                raise InputError(
                    f"{self.path} lacks {gone}, and cannot be made again: {foreign.relative_to(self.path)} is not as "
                    "hf_dense wrote it; move it away, or name another directory."
                )
            state = NEW
        if self.partial.is_dir():
            known = (MANIFEST, *_PARTS) if _unfinished(self.partial) else ()
            names = sorted(entry.name for entry in self.partial.iterdir() if not entry.name.startswith(OWN_PREFIX))
            if strange := [name for name in names if name not in known]:
                raise InputError(f"{self.partial} was not written by hf_dense: it holds {strange[0]!r}; move it away.")
            if state == NEW and self.resumable and names:
                state = state_of(self.partial, self.manifest, self.overwrite)
        return state

    @property
    def _old(self) -> Path:
        return self.partial / _OLD

    def _clear_up(self) -> None:
        """Remove what a run left that was killed when its output was in place; other unfinished work is kept."""
        found = Manifest.load(self.partial)
        if found is None or not self.resumable or not difference(found.made_from, self.manifest.made_from):
            self._remove_partial()
        if self._lock:
            self._lock.release()

    def _begin(self) -> None:
        shutil.rmtree(self.result, ignore_errors=True)
        if not self.resumed:
            shutil.rmtree(self.pieces, ignore_errors=True)
        replace(self.manifest, claims=_PARTS).save(self.partial)
        self.result.mkdir()
        self.pieces.mkdir(exist_ok=True)

    def _give_up(self) -> None:
        shutil.rmtree(self.result, ignore_errors=True)
        if not (self.resumable and any(self.pieces.iterdir())):
            self._remove_partial()

    def _finish(self) -> None:
        if not _unfinished(self.partial):
            raise InputError(f"{self.partial} was removed while {self.path} was made in it; start again.")
        made = self.manifest.listing(self.result, list_files(self.result))
        replace(made, state=COMPLETE, facts=self.facts).save(self.result)
        share_like(self.result / MANIFEST, (self.result / name for name in made.files))
        if self.path.exists():  # where something foreign may have come into it
            if state_of(self.path, self.manifest, overwrite=True) != NEW:
                check_replaceable(self.path)
            os.rename(self.path, self._old)
        os.rename(self.result, self.path)
        if self._old.is_dir():
            remove_ours(self._old)
        self._remove_partial()

    def _remove_partial(self) -> None:
        """Remove unfinished work, its manifest last: without it what is left would not be known as ours."""
        parts = (self.result, self.pieces, self._old)
        for part in parts:
            shutil.rmtree(part, ignore_errors=True)
        if not any(part.exists() for part in parts):
            shutil.rmtree(self.partial, ignore_errors=True)
