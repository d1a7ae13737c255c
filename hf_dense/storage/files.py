"""Writing that is either complete or absent, and the errors of disks."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Final

import psutil

from hf_dense.errors import InputError

_FULL: Final = re.compile(
    "No space left|Disk quota exceeded|File too large"  # safetensors, tokenizers, FAISS
    r"|unexpected pos \d+ vs|iostream error|PytorchStreamWriter failed writing"  # torch, which does not say why
    r"|\d+ requested and \d+ written"  # NumPy
)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` so that a reader sees the old file or the new one, never half of it."""
    with replaced_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def replaced_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a file beside `path` to write; it takes the place of `path` on success and vanishes on failure.

    So does what a run left there that was killed.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".hf_dense.*.{escape(target.name)}"):
        if (writer := left.name.split(".")[2]).isdigit() and not psutil.pid_exists(int(writer)):
            left.unlink(missing_ok=True)
    partial = target.with_name(f".hf_dense.{os.getpid()}.{target.name}")
    try:
        yield partial
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def share_like(written: Path, files: Iterable[Path]) -> None:
    """Let whoever may read `written` read `files` too: safetensors lets their owner alone, whatever the umask says."""
    wanted = stat.S_IMODE(written.stat().st_mode)
    for file in files:
        found = stat.S_IMODE(file.lstat().st_mode)
        if not file.is_symlink() and found | wanted != found:
            with suppress(OSError):  # of another owner, or a file system without modes
                file.chmod(found | wanted)


def path_of(given: object) -> Path:
    """A path as it is given from Python.

    Raises:
        InputError: it is none.
    """
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"A path is wanted, not an object of the type {type(given).__name__}; give a text or a Path.")
    return Path(given)


def as_typed(path: Path) -> str:
    """An absolute path as a person types it: from the working directory on, where it lies there.

    What is written names its sources so, and no place of this machine.
    """
    here = Path.cwd()
    return str(path.relative_to(here) if here in path.parents else path)


@contextmanager
def plain_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in a sentence why `path` cannot be written: a full disk, or a place where nothing may be written.

    Raises:
        InputError: for such an `OSError`, or what a library makes of it; others pass.
    """
    try:
        yield
    except Exception as error:
        if says_full(error):
            raise InputError(f"There is no room left to write {path}; free some disk space and start again.") from error
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            ours = error.filename is None or Path(error.filename).name.startswith(".hf_dense.")  # of `replaced_file`
            raise InputError(
                f"{path if ours else error.filename} may not be written; name another directory."
            ) from error
        raise


def says_full(error: BaseException) -> bool:
    """Whether an error is of a full disk, or of a file that is larger than one may be there.

    Libraries have errors of their own for it, such as that of safetensors.
    """
    numbers = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return getattr(error, "errno", None) in numbers or bool(_FULL.search(str(error)))
