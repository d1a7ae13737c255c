"""Where a command writes: one rule for every directory, so that nothing foreign is lost and nothing stale is used.

A directory is ours when it holds our manifest. We replace only our own outputs of the same kind, and only the files
that their manifests list. An output that was made from the same things is done, or goes on; one that was made from
something else is refused, or replaced when that is asked for.

Two ways of writing: `stage` for outputs that are complete or absent, `occupy` for directories that are worked in (a
training with its checkpoints, a folder of evaluations).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from filelock import FileLock, Timeout

from hf_dense.errors import InputError
from hf_dense.storage.files import plain_errors
from hf_dense.storage.manifest import (
    COMPLETE,
    MANIFEST,
    OWN_PREFIX,
    RUNNING,
    Manifest,
    difference,
    foreign_file,
    is_claimed,
    list_files,
    remove_ours,
)
from hf_dense.storage.process_group import decide_together, is_main_process, wait_for_everyone
from hf_dense.storage.provenance import describe_run
from hf_dense.version import __version__

_LOCK: Final = f"{OWN_PREFIX}.lock"
_RESULT, _PIECES, _OLD = "result", "pieces", "old"  # in the directory of unfinished work

_VERSION: Final = "version of hf_dense"

NEW, DONE, RESUMED = "new", "done", "resumed"


@dataclass(frozen=True)
class Source:
    """Something that an output is made from.

    Args:
        name: path or Hub id, for people.
        fingerprint: of what it holds (`hf_dense.storage.fingerprints`).
    """

    name: str
    fingerprint: str


@dataclass(frozen=True)
class Output:
    """A directory to write, and what its manifest says of that.

    Args:
        path: of the directory.
        overwrite: whether an output of ours that was made from something else is replaced, and unfinished work for it
            given up; else both are refused.
        command: what writes it.
        licence: of the content, as the Hub names it.
    """

    path: Path
    overwrite: bool = False
    command: str = ""
    licence: str = "other"

    @classmethod
    def of(cls, given: str | os.PathLike[str] | Output) -> Output:
        """An output as it is given: a path alone, or with more."""
        return given if isinstance(given, Output) else cls(Path(given))

    def at(self, *parts: str) -> Output:
        """An output inside of this one, written in the same way."""
        return replace(self, path=self.path.joinpath(*parts))

    def stage(
        self,
        kind: str,
        settings: Mapping[str, Any],
        sources: Mapping[str, Source] | None = None,
        *,
        seed: int | None = None,
        resumable: bool = False,
    ) -> Staged:
        """Begin an output that is complete or absent; see `Staged`.

        Args:
            kind: of output.
            settings: all that the result depends on, beside the sources, as JSON has it.
            sources: what is read, by what it is.
            seed: of all draws; one of the settings.
            resumable: whether pieces of a run that was killed are gone on with.

        Raises:
            InputError: something foreign, another kind, an input or the working directory is there, or the output was
                made from something else, or another run is writing it. Nothing is touched then.
        """
        wanted = self._manifest(kind, settings, sources or {}, seed)
        with plain_errors(self.path):
            check_place(self.path, sources or {})
            return decide_together(lambda: Staged(self, wanted, resumable))

    def occupy(
        self,
        kind: str,
        settings: Mapping[str, Any],
        sources: Mapping[str, Source] | None = None,
        *,
        seed: int | None = None,
        claims: Iterable[str] = (),
        reads: Iterable[str | os.PathLike[str]] = (),
        again: bool = False,
    ) -> Occupied:
        """Begin, or go on with, a directory that is worked in; see `Occupied`.

        Args:
            claims: names in the directory, `*` is any text, that the work has to itself.
            reads: names (paths, Hub ids) of what is read beside the sources; none of it may lie in the directory.
            again: whether a complete directory is worked in again, as a folder of evaluations is.

        The other arguments and the errors are those of `stage`.
        """
        wanted = replace(self._manifest(kind, settings, sources or {}, seed), claims=tuple(claims))
        if again:  # a folder outlives the version that made it; each of its parts names its own
            del wanted.made_from[_VERSION]
        with plain_errors(self.path):
            check_place(self.path, sources or {}, reads)
            return decide_together(lambda: Occupied(self, wanted, again))

    def _manifest(
        self, kind: str, settings: Mapping[str, Any], sources: Mapping[str, Source], seed: int | None
    ) -> Manifest:
        made_from = {
            **{name: source.fingerprint for name, source in sources.items()},
            **settings,
            **({} if seed is None else {"seed": seed}),
            _VERSION: __version__,
        }
        return Manifest(
            kind,
            RUNNING,
            json.loads(json.dumps(made_from, default=str)),
            {name: source.name for name, source in sources.items()},
            command=self.command,
            licence=self.licence,
            seed=seed,
            run=describe_run(),
        )


def check_place(
    path: Path, sources: Mapping[str, Source] | None = None, reads: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Refuse places that no output may take.

    Raises:
        InputError: `path` is a symbolic link, a file, or is or holds the working directory, the home directory or a
            source.
    """
    if path.is_symlink():
        raise InputError(f"{path} is a symbolic link; name the directory that it leads to, or another one.")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; name a directory.")
    target = path.resolve()
    places = {"the working directory": Path.cwd(), "the home directory": Path.home()}
    places |= {f"the {what}": Path(source.name) for what, source in (sources or {}).items()}
    places |= {f"{name}, which is read": Path(name) for name in map(str, reads)}
    for what, place in places.items():
        if place.exists() and (found := place.resolve()) and (found == target or target in found.parents):
            relation = "is" if found == target else "holds"
            raise InputError(f"{path} {relation} {what}, and would replace it; name another directory.")


def _state(path: Path, wanted: Manifest, overwrite: bool) -> str:
    """What is to be done about a directory: it is `NEW` (or to be replaced), `DONE`, or work is `RESUMED`."""
    if not path.exists() or all(entry.name.startswith(OWN_PREFIX) for entry in path.iterdir()):
        return NEW
    found = Manifest.load(path)
    if found is None:
        first = min(entry.name for entry in path.iterdir())
        raise InputError(f"{path} was not written by hf_dense: it holds {first!r}; name another directory.")
    if found.kind != wanted.kind:
        raise InputError(
            f"{path} holds another kind of output ({found.kind}, not {wanted.kind}); name another directory."
        )
    other = difference(found.made_from, wanted.made_from, (found.sources, wanted.sources))
    if other is None:
        return DONE if found.state == COMPLETE else RESUMED
    if not overwrite:
        state = "was made from" if found.state == COMPLETE else "holds unfinished work made from"
        raise InputError(f"{path} {state} {other}; name another directory, or replace it with --overwrite.")
    if foreign := foreign_file(path):
        raise InputError(
            f"{path} cannot be replaced: {foreign.relative_to(path)} is not as hf_dense wrote it; move it away, or "
            "name another directory."
        )
    return NEW


class _Lock:
    """Keeps a second run out of a directory."""

    def __init__(self, directory: Path, output: Path) -> None:
        self._file = FileLock(directory / _LOCK)
        try:
            self._file.acquire(timeout=0)
        except Timeout as error:
            raise InputError(f"Another run is writing {output}; wait until it ends, or stop it.") from error

    def release(self) -> None:
        """Let others in; the file goes too, where its directory has not gone before."""
        Path(self._file.lock_file).unlink(missing_ok=True)
        self._file.release()


@dataclass
class Staged:
    """An output that is made beside its place and put there when it is complete; used in a `with` statement.

        with output.stage("corpus", settings, sources) as work:
            if not work.done:
                write(work.result)

    Unfinished work stands in `<path>.partial`: the `result`, begun anew by every run, and `pieces`, with which a run
    goes on that was killed. An output that is replaced stays in its place until the new one is complete.

    Args:
        output: where it belongs.
        manifest: of the output.
        resumable: whether unfinished work is gone on with.

    Attributes:
        done: whether the same output is there already; nothing is to be written then.
        resumed: whether there is unfinished work to go on with.
        facts: to be put into the manifest.
    """

    output: Output
    manifest: Manifest
    resumable: bool
    done: bool = False
    resumed: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    _lock: _Lock | None = None

    def __post_init__(self) -> None:
        check_place(self.partial)
        self.done = self._check() == DONE
        if self.done and not self.partial.exists():
            return
        self.partial.mkdir(parents=True, exist_ok=True)
        self._lock = _Lock(self.partial, self.path)
        try:
            self._restore()
            state = self._check()
            self.done, self.resumed = state == DONE, state == RESUMED
            if self.done:
                self._clear_up()
            else:
                self._begin()
        except BaseException:
            self._lock.release()
            raise

    def __getstate__(self) -> dict[str, Any]:
        """For the other processes, which hold no lock."""
        return {**vars(self), "_lock": None}

    @property
    def path(self) -> Path:
        """Where the output belongs."""
        return self.output.path

    @property
    def partial(self) -> Path:
        """The directory of the unfinished work."""
        return self.path.with_name(f"{self.path.name}.partial")

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
                        if isinstance(error, OSError):
                            raise error
        finally:
            if self._lock:
                self._lock.release()
        if error is None:
            wait_for_everyone()

    def _check(self) -> str:
        """What is to be done, by what is there; raises where that is not ours."""
        place = self._old if self._was_cut_off() else self.path
        state = _state(place, self.manifest, self.output.overwrite)
        if self.partial.is_dir():
            parts = (MANIFEST, _RESULT, _PIECES, _OLD)
            known = parts if self._is_ours(self.partial) else ()
            names = sorted(entry.name for entry in self.partial.iterdir() if not entry.name.startswith(OWN_PREFIX))
            if strange := [name for name in names if name not in known]:
                raise InputError(f"{self.partial} was not written by hf_dense: it holds {strange[0]!r}; move it away.")
            if state == NEW and self.resumable and names:
                state = _state(self.partial, self.manifest, self.output.overwrite)
        return state

    @property
    def _old(self) -> Path:
        return self.partial / _OLD

    def _is_ours(self, directory: Path) -> bool:
        return Manifest.load(directory) is not None

    def _was_cut_off(self) -> bool:
        """Whether a run was killed after the old output was moved away and before the new one took its place."""
        return not self.path.exists() and self._is_ours(self.partial) and self._is_ours(self._old)

    def _restore(self) -> None:
        """Put the old output back, or finish its removal, where a run was killed that replaced it."""
        if self._was_cut_off():
            os.rename(self._old, self.path)
        elif self._old.is_dir():
            remove_ours(self._old)

    def _clear_up(self) -> None:
        """Remove what a run left that was killed when its output was in place; other unfinished work is kept."""
        found = Manifest.load(self.partial)
        if found is None or not self.resumable or not difference(found.made_from, self.manifest.made_from):
            shutil.rmtree(self.partial)
        if self._lock:
            self._lock.release()

    def _begin(self) -> None:
        shutil.rmtree(self.result, ignore_errors=True)
        if not self.resumed:
            shutil.rmtree(self.pieces, ignore_errors=True)
        replace(self.manifest, claims=(_RESULT, _PIECES, _OLD)).save(self.partial)
        self.result.mkdir()
        self.pieces.mkdir(exist_ok=True)

    def _give_up(self) -> None:
        shutil.rmtree(self.result, ignore_errors=True)
        if not (self.resumable and any(self.pieces.iterdir())):
            shutil.rmtree(self.partial, ignore_errors=True)

    def _finish(self) -> None:
        replace(self.manifest, state=COMPLETE, files=list_files(self.result), facts=self.facts).save(self.result)
        if self.path.exists():
            _state(self.path, self.manifest, overwrite=True)  # raises where something foreign has come into it
            os.rename(self.path, self._old)
        os.rename(self.result, self.path)
        if self._old.is_dir():
            remove_ours(self._old)
        shutil.rmtree(self.partial)


@dataclass
class Occupied:
    """A directory that is worked in; used in a `with` statement.

        with output.occupy("pre-training", settings, sources, claims=["checkpoint-*"]) as work:
            if not work.done:
                train(work.path, resume=work.resumed)
                work.complete()

    A run that stops before `complete` leaves its work to be gone on with; one that has written nothing leaves nothing.

    Args:
        output: the directory.
        manifest: of it; names that it claims are nobody else's.
        again: whether a complete directory is worked in again.

    Attributes:
        done: whether the same work is complete here, and is not done again.
        resumed: whether the same work was begun, or done, here.
        facts: to be put into the manifest.
    """

    output: Output
    manifest: Manifest
    again: bool = False
    done: bool = False
    resumed: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    _lock: _Lock | None = None

    def __post_init__(self) -> None:
        if self._check() == DONE and not self.again:
            self.done = True
            return
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _Lock(self.path, self.path)
        try:
            state, before = self._check(), Manifest.load(self.path)
            if state == NEW and before is not None:
                remove_ours(self.path)
            elif before is not None:
                self.resumed = True
                self.facts = before.facts
            files = before.files if self.resumed and before else {}
            replace(self.manifest, files=files, facts=self.facts).save(self.path)
        except BaseException:
            self._lock.release()
            raise

    def __getstate__(self) -> dict[str, Any]:
        """For the other processes, which hold no lock."""
        return {**vars(self), "_lock": None}

    @property
    def path(self) -> Path:
        """The directory."""
        return self.output.path

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
            if isinstance(error, OSError):
                with plain_errors(self.path):
                    raise error

    def claim(self, name: str) -> bool:
        """Whether a file may be written that was not claimed at the start; not where somebody's is in its place."""
        if (self.path / name).exists() and not is_claimed(name, self.manifest):
            return False
        self.manifest = replace(self.manifest, claims=(*self.manifest.claims, name))
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
            replace(self.manifest, state=state, files=files, facts=self.facts).save(self.path)

    def _check(self) -> str:
        """What is to be done; raises where the directory, or a file that we would write over, is not ours."""
        state = _state(self.path, self.manifest, self.output.overwrite)
        found = Manifest.load(self.path)
        if state == RESUMED and not self.again and (foreign := foreign_file(self.path)):
            raise InputError(f"{foreign} was not written by hf_dense; move it away, so that the work can go on.")
        if self.again and found is not None and found.state == COMPLETE and state == DONE:
            claimed = [file for name in self.manifest.claims for file in self.path.glob(name) if file.is_file()]
            for file in claimed:
                if found.files.get(file.name) != file.stat().st_size:
                    raise InputError(f"{file} is not as hf_dense wrote it; move it away, or name another directory.")
        return state
