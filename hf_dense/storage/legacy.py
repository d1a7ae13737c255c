"""To be removed: what `hf_dense.storage.output` takes the place of."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hf_dense.errors import InputError
from hf_dense.storage.files import write_text


@contextmanager
def atomic_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary sibling of `path` to fill; it replaces `path` on success and vanishes on failure.

    An existing `path` is replaced only once the new directory is complete.

    Raises:
        InputError: the disk is full.
    """
    target = Path(path).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    work.chmod(0o755)
    try:
        yield work
        old = None
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            os.replace(target, old / "old")
        os.replace(work, target)
        if old is not None:
            shutil.rmtree(old)
    except OSError as error:
        shutil.rmtree(work, ignore_errors=True)
        if error.errno == errno.ENOSPC or "No space left" in str(error):
            raise InputError(f"There is no room left to write {path}; free some disk space and start again.") from error
        raise
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def begin_or_resume(work: Path, settings: dict[str, Any]) -> None:
    """Start a run that leaves its unfinished work in `work`, or go on with the one that is there.

    Args:
        work: directory of the unfinished work, made if it is not there.
        settings: all that the result depends on, as JSON has it; kept in `settings.json`.

    Raises:
        InputError: `work` holds a run of other settings; nothing is written then.
    """
    file = work / "settings.json"
    if file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        other = sorted(name for name in {*before, *settings} if before.get(name) != settings.get(name))
        if other:
            raise InputError(
                f"{work} holds an unfinished run with another {other[0]} ({before.get(other[0])!r}, now "
                f"{settings.get(other[0])!r}); finish that one, or remove the directory."
            )
    write_text(file, json.dumps(settings, indent=1))


def check_replaceable(path: str | os.PathLike[str], marker: str) -> None:
    """Pass when `path` is absent, an empty directory, or an earlier output of the same kind, known by `marker`.

    Args:
        path: the directory about to be written, which `atomic_directory` would replace as a whole.
        marker: a file that every output of this kind holds.

    Raises:
        InputError: something else is there.
    """
    target = Path(path)
    if target.is_dir():
        if (target / marker).is_file() or not any(target.iterdir()):
            return
    elif not target.exists():
        return
    raise InputError(f"{path} exists and is not an earlier output of this kind; name another place or remove it.")
