"""Names of the Hub in place of directories: `owner/name`, or `owner/name@revision` (a branch, a tag or a commit)."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Final

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, RevisionNotFoundError

from hf_dense.errors import InputError

_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
_SETTINGS: Final = ["*.json"]  # of a model and its tokenizer
_OF_OTHERS: Final = ["checkpoint-*", "onnx/*", "openvino/*"]  # which may be long, and are read by none of its loaders
_FORBIDDEN: Final = (401, 403, 404)
_ABSENT: Final[tuple[type[Exception], ...]] = (
    HFValidationError,
    LocalEntryNotFoundError,
    *HfHubHTTPError.__bases__,  # what its HTTP library raises
)


def divided(name: str) -> tuple[str, str | None]:
    """Name and revision.

    >>> divided("me/questions@v2"), divided("me/questions")
    (('me/questions', 'v2'), ('me/questions', None))
    """
    plain, _, revision = name.partition("@")
    return plain, revision or None


def is_named(name: str | os.PathLike[str]) -> bool:
    """Whether something that is no path of this machine may be a name of the Hub.

    >>> [is_named(name) for name in ("me/questions", "me/questions@v2", "/tmp/questions", "a/b/c", "questions")]
    [True, True, False, False, False]
    """
    return not Path(name).exists() and _NAME.fullmatch(str(name)) is not None


def collection_folder(name: str | os.PathLike[str], patterns: tuple[str, ...]) -> Path:
    """The directory of a collection: the one that is named, or a copy of a dataset's files in the Hub's cache.

    Args:
        name: a directory, or a dataset of the Hub.
        patterns: of the files that are copied.

    Raises:
        InputError: it is neither, or the Hub is not reached and no copy is there.
    """
    if Path(name).is_dir():
        return Path(name)
    if not is_named(name):
        raise InputError(f"{name} is not a directory; give the directory of a collection, or a dataset of the Hub")
    return _fetched(str(name), "dataset", patterns)


def model_folder(model: str | Path) -> str:
    """A model by a name that its loaders know: a copy in the Hub's cache where a revision is named, else as given.

    Raises:
        InputError: there is no such model or revision, the Hub is not reached and no copy is there, or it is, and gives
            only some of the files.
    """
    if not is_named(model):
        return str(model)
    if "@" in str(model):
        return str(_fetched(str(model), "model", None))
    _fetch_settings(str(model))
    return str(model)


@cache
def _fetch_settings(name: str) -> None:
    """Put all that a model says of itself into the cache.

    Its loaders ask for one file after the other, and take one that a busy Hub does not give for one that is not there:
    prompts would be lost in silence. What a Hub that is not reached, has no such model or gives no right to it, or a
    cache that cannot be written comes to is theirs to say.

    Raises:
        InputError: a file is there, and is not given.
    """
    try:
        HfApi().model_info(name)
    except _ABSENT:
        return
    try:
        snapshot_download(name, allow_patterns=_SETTINGS, ignore_patterns=_OF_OTHERS)
    except _ABSENT as error:
        forbidden = isinstance(error, HfHubHTTPError) and error.response.status_code in _FORBIDDEN
        if forbidden or (
            isinstance(error, OSError) and error.errno is not None
        ):  # the latter of a cache that may have what is needed
            return
        raise InputError(f"The Hub is too busy to give all files of {name}, or was lost; try again later.") from error


@cache  # one process reads one state of what it reads
def _fetched(name: str, kind: str, patterns: tuple[str, ...] | None) -> Path:
    plain, revision = divided(name)
    wanted = list(patterns) if patterns else None
    try:
        return Path(snapshot_download(plain, repo_type=kind, revision=revision, allow_patterns=wanted))
    except RevisionNotFoundError as error:
        raise InputError(f"The {kind} {plain} of the Hub has no revision {revision!r}.") from error
    except _ABSENT as error:
        raise InputError(f"{name} is neither a directory nor a {kind} of the Hub that can be reached.") from error
