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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from hf_dense.storage.files import path_of, plain_errors
from hf_dense.storage.manifest import RUNNING, Manifest
from hf_dense.storage.occupied import Occupied
from hf_dense.storage.places import Source, check_place, state_of
from hf_dense.storage.process_group import decide_together
from hf_dense.storage.provenance import describe_run
from hf_dense.storage.staged import Staged
from hf_dense.version import __version__

_VERSION: Final = "version of hf_dense"


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
        """An output as it is given: a path alone, or with more.

        Raises:
            InputError: it is neither.
        """
        return given if isinstance(given, Output) else cls(path_of(given))

    def at(self, *parts: str) -> Output:
        """An output inside of this one, written in the same way."""
        return replace(self, path=self.path.joinpath(*parts))

    def check(self, kind: str, sources: Mapping[str, Source] | None = None) -> None:
        """Pass when an output of a kind can be written, if in place of another one of ours.

        Raises:
            InputError: something foreign, another kind or a source is there.
        """
        with plain_errors(self.path):
            check_place(self.path, sources or {})
            state_of(self.path, Manifest(kind, RUNNING), overwrite=True)

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
            return decide_together(lambda: Staged(self.path, self.overwrite, wanted, resumable))

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
        result: Path | None = None,
    ) -> Occupied:
        """Begin, or go on with, a directory that is worked in; see `Occupied`.

        Args:
            claims: names in the directory, `*` is any text, that the work has to itself.
            reads: names (paths, Hub ids) of what is read beside the sources; none of it may lie in the directory.
            again: whether a complete directory is worked in again, as a folder of evaluations is.
            result: directory, this or one in it, without whose files the work is not done; checkpoints and logs may go.

        The other arguments and the errors are those of `stage`.
        """
        wanted = replace(self._manifest(kind, settings, sources or {}, seed), claims=tuple(claims))
        if again:  # a folder outlives the version that made it; each of its parts names its own
            del wanted.made_from[_VERSION]
        with plain_errors(self.path):
            check_place(self.path, sources or {}, reads)
            return decide_together(lambda: Occupied(self.path, self.overwrite, wanted, again, result))

    def _manifest(
        self, kind: str, settings: Mapping[str, Any], sources: Mapping[str, Source], seed: int | None
    ) -> Manifest:
        seed = None if seed is None else int(seed)
        made_from = {
            **{name: source.fingerprint for name, source in sources.items()},
            **settings,
            **({} if seed is None else {"seed": seed}),
            _VERSION: __version__,
        }
        return Manifest(
            kind,
            RUNNING,
            json.loads(json.dumps(made_from, default=_plain)),
            {name: source.name for name, source in sources.items()},
            command=self.command,
            licence=self.licence,
            seed=seed,
            run=describe_run(),
        )


def _plain(value: Any) -> Any:
    """A setting as JSON has it: a number of numpy or torch as the number, anything else by its name."""
    return value.item() if getattr(value, "ndim", None) == 0 else str(value)
