"""Directories that may be written: what is to be done about one, by its manifest, and the lock that one run holds."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from hf_dense.errors import InputError
from hf_dense.storage.manifest import COMPLETE, OWN_PREFIX, UNSAID, Manifest, difference, foreign_file

NEW, DONE, RESUMED = "new", "done", "resumed"
_UNLOCKABLE: Final = (errno.ENOLCK, errno.EOPNOTSUPP)  # as network file systems answer that are mounted without locks
LOCK: Final = f"{OWN_PREFIX}.lock"


@dataclass(frozen=True)
class Source:
    """Something that an output is made from.

    Args:
        name: path or Hub id, for people.
        fingerprint: of what it holds (`hf_dense.storage.fingerprints`).
    """

    name: str
    fingerprint: str


def check_place(
    path: Path, sources: Mapping[str, Source] | None = None, reads: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Refuse places that no output may take.

    Raises:
        InputError: `path` is a symbolic link, a file, or is or holds the working directory, the home directory or a
            source; or it begins with the ~ of a shell, of which libraries make the home directory, and others nothing;
            or it, or the name of a source, is not UTF-8, which cards and manifests are.
    """
    for name in (str(path), *(source.name for source in (sources or {}).values()), *map(str, reads)):
        if name != name.encode(errors="replace").decode():
            raise InputError(f"The name {name!r} is not UTF-8, so no card could say it; rename it, or name another.")
    if path.parts[:1] == ("~",):
        raise InputError(f"{path} begins with a ~ that no shell has read; put a space before it, or write it in full.")
    if path.is_symlink():
        raise InputError(f"{path} is a symbolic link; name the directory that it leads to, or another one.")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; name a directory.")
    target = path.resolve()
    places = {"the working directory": Path.cwd(), "the home directory": Path(os.path.expanduser("~"))}
    places |= {f"the {what}": Path(source.name) for what, source in (sources or {}).items()}
    places |= {f"{name}, which is read": Path(name) for name in map(str, reads)}
    for what, place in places.items():
        if os.path.exists(place) and (found := place.resolve()) and (found == target or target in found.parents):
            relation = "is" if found == target else "holds"
            raise InputError(f"{path} {relation} {what}, and would replace it; name another directory.")


def state_of(path: Path, wanted: Manifest, overwrite: bool) -> str:
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
    if other is None and wanted.licence not in (UNSAID, found.licence):
        other = f"another licence ({found.licence}, now {wanted.licence})"
    if other is None:
        return DONE if found.state == COMPLETE else RESUMED
    if not overwrite:
        state = "was made from" if found.state == COMPLETE else "holds unfinished work made from"
        raise InputError(f"{path} {state} {other}; name another directory, or replace it with --overwrite.")
    check_replaceable(path)
    return NEW


def check_replaceable(path: Path) -> None:
    """Raise `InputError` where a directory of ours holds something that is not as we wrote it."""
    if foreign := foreign_file(path):
        raise InputError(
            f"{path} cannot be replaced: {foreign.relative_to(path)} is not as hf_dense wrote it; move it away, or "
            "name another directory."
        )


class BeingWritten(InputError):
    """Another run holds the lock of a directory."""


class Lock:
    """Keeps a second run out of a directory."""

    def __init__(self, directory: Path, output: Path) -> None:
        self._file = FileLock(directory / LOCK)
        try:
            self._file.acquire(timeout=0)
        except Timeout as error:
            raise BeingWritten(f"Another run is writing {output}; wait until it ends, or stop it.") from error
        except OSError as error:
            if error.errno not in _UNLOCKABLE:
                raise
            raise InputError(
                f"{output} is on a file system that cannot lock files ({error.strerror}), so that two runs could write "
                "it at once; mount it with locks, or name a directory on another one."
            ) from error

    def release(self) -> None:
        """Let others in; the file goes too, where its directory has not gone before."""
        Path(self._file.lock_file).unlink(missing_ok=True)
        self._file.release()
