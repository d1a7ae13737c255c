"""Writing that is either complete or absent, and the errors of disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hf_dense.errors import InputError


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` so that a reader sees the old file or the new one, never half of it."""
    with replaced_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def replaced_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a file beside `path` to write; it takes the place of `path` on success and vanishes on failure."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".hf_dense.{os.getpid()}.{target.name}")
    try:
        yield partial
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def plain_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in a sentence why `path` cannot be written: a full disk, or a place where nothing may be written.

    Raises:
        InputError: for such an `OSError`; others pass.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
            raise InputError(f"There is no room left to write {path}; free some disk space and start again.") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise InputError(f"{error.filename or path} may not be written; name another directory.") from error
        raise
