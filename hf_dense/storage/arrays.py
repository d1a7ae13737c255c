"""Arrays on disk: NumPy says nothing where the last kilobytes of one had no room."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np


def check_array(path: Path) -> None:
    """Pass where an array (.npy) that was just written is there as a whole.

    Raises:
        OSError: its end is missing: the disk was full.
    """
    with path.open("rb") as file:
        try:
            np.lib.format.read_magic(file)
            shape, _, kind = np.lib.format.read_array_header_1_0(file)
            whole = file.tell() + int(np.prod(shape)) * kind.itemsize
        except ValueError:
            whole = -1
    if path.stat().st_size != whole:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
