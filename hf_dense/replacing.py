"""Never replace a directory that is not ours."""

from __future__ import annotations

import os
from pathlib import Path

from hf_dense.errors import InputError


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
