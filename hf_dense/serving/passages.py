"""Passages as they were cut from documents.

An adaptation that made its queries works with passages that lack the sentences which became queries. People are shown,
and judge, the whole passages: these are what the next adaptation cuts again, and finds the judgements by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

from datasets import Dataset

from hf_dense.data.collections import load_corpus
from hf_dense.data.corpus import table_files
from hf_dense.experiments.adaptation.run import KIND
from hf_dense.search.index import Hit
from hf_dense.storage.manifest import MANIFEST, Manifest

_PASSAGES: Final = "passages"  # of an adaptation to documents
_ARMS: Final = "arms"  # of an adaptation, with the indexes of the passages that it works with


def home_of(directory: Path) -> Path:
    """The outermost directory of ours that a directory lies in, or itself."""
    path = directory.resolve()
    return next((place for place in reversed([path, *path.parents]) if (place / MANIFEST).is_file()), path)


def adaptation_around(directory: Path) -> Manifest | None:
    """The manifest of the adaptation that a directory is, or is part of; None where there is none."""
    made = Manifest.load(home_of(directory))
    return made if made is not None and made.kind == KIND else None


class WholePassages:
    """The passages that an index was made of, as they were cut.

    Args:
        index: directory of an index; where it is no arm's of an adaptation, its own passages are whole.
    """

    def __init__(self, index: Path) -> None:
        self._index = index

    def of(self, hits: Sequence[Hit]) -> list[Hit]:
        """Hits with titles and whole texts; a text that holds other words than the one found is another passage's."""
        return [self._whole(hit) for hit in hits]

    def _whole(self, hit: Hit) -> Hit:
        row = self._rows.get(hit.id)
        if row is None or self._passages is None:
            return hit
        whole = self._passages[row]
        if not {*hit.text.split()} <= {*whole["text"].split()}:
            return hit
        return replace(hit, title=whole["title"], text=whole["text"])

    @cached_property
    def _passages(self) -> Dataset | None:
        made, home = adaptation_around(self._index), home_of(self._index)
        if made is None or home / _ARMS not in self._index.resolve().parents:
            return None
        places = [home / _PASSAGES, Path(made.sources["documents"])]
        return next((load_corpus(place) for place in places if table_files(place)), None)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self._passages["id"][:])} if self._passages is not None else {}
