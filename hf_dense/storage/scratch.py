"""What libraries write for themselves, in the home directory, in caches and among temporary files."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import gettempdir
from typing import Final

from hf_dense.storage.files import says_full

_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_UNKNOWN: Final = "~"  # what is left of it where nobody's home is known


def settle_home() -> None:
    """Let a user do without a home, or with one that may not be written, as in containers (`--user 12345`).

    It is called before the libraries are imported that look for one. Who has none gets the root, which is what
    containers say. MTEB makes a directory in the home when it is imported; nothing here reads or writes it.
    """
    if os.path.expanduser(_UNKNOWN) == _UNKNOWN:
        os.environ["HOME"] = os.sep
    if not may_be_written(Path.home() / ".cache" / "mteb"):
        os.environ.setdefault("MTEB_CACHE", str(Path(gettempdir()) / "mteb"))


def may_be_written(place: Path) -> bool:
    """Whether files can be made in a directory, or it can be made first."""
    there = next((each for each in (place, *place.parents) if os.path.exists(each)), place)  # not where stat is refused
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def advice_on(error: BaseException) -> str | None:
    """What to do about an error of a cache or of temporary files, as a sentence; None where it is of something else."""
    if says_full(error):
        return (
            "There is no room left to write all of it; free some disk space, or set TMPDIR to a directory with more of "
            "it for temporary files, and start again."
        )
    if not isinstance(error, OSError):
        return None
    if "No usable temporary directory" in str(error):
        return "There is no directory for temporary files; set TMPDIR to one that may be written."
    place = error.filename
    if error.errno not in _REFUSED or not isinstance(place, str) or not _is_of_a_cache(Path(place)):
        return None
    return (
        f"{place} may not be written, where Hugging Face's libraries keep what they have read; set HF_HOME, or "
        "HF_DATASETS_CACHE for data sets alone, to a directory that may be written."
    )


def _is_of_a_cache(place: Path) -> bool:
    """Whether a place is in a cache of Hugging Face's libraries, or on the way to it."""
    from datasets.config import HF_DATASETS_CACHE
    from huggingface_hub.constants import HF_HOME

    caches = [Path(HF_HOME), Path(HF_DATASETS_CACHE)]
    return any(place == cache or place in cache.parents or cache in place.parents for cache in caches)
