"""The collection that no model is tuned for: what is lost on it is what was forgotten."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hf_dense.data.collections import content_hash, holds_corpus, named_split
from hf_dense.data.python_docs.probe import PROBE_SPLIT, open_probe
from hf_dense.errors import InputError
from hf_dense.evaluation.retrieval import build_task
from hf_dense.storage.process_group import alone, decide_together

PROBE: Final = "python_docs"
_SPLIT: Final = "dev"


@dataclass(frozen=True)
class Kept:
    """A collection that is measured beside the own one.

    Attributes:
        name: in tables and of directories.
        collection: its directory.
        split: of its judgements.
    """

    name: str
    collection: Path
    split: str


def open_kept(given: str, own: str | os.PathLike[str]) -> Kept:
    """The collection that `--keep` names, found fit to be measured.

    Args:
        given: `COLLECTION[:SPLIT]` (split: dev), or `python_docs`: 200 queries and 2,000 passages of the standard
            library's documentation, which are built in the cache (a directory of that name is `./python_docs`).
        own: the collection, or documents, that are tuned for.

    Raises:
        InputError: there is no such collection or split, nothing can be measured on it, or it is the own one.
    """
    return decide_together(lambda: _open(given, own))


def _open(given: str, own: str | os.PathLike[str]) -> Kept:
    with alone():
        if given == PROBE:
            return Kept(PROBE, open_probe(), PROBE_SPLIT)
        if (named := named_split(given, _SPLIT)) is None:
            lacking = given.rpartition(":")[0] or given
            raise InputError(f"There is no collection {lacking} to keep; give COLLECTION[:SPLIT], or {PROBE}.")
        place, split = named
        build_task(place, split)  # raises where nothing can be measured
        if holds_corpus(own) and content_hash(place) == content_hash(own):
            raise InputError(f"{place} is the collection that is tuned for; keep another one, or {PROBE}.")
    return Kept(Path(place).resolve().name, Path(place), split)
