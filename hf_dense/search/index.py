"""A search engine over one corpus: an index, and the model that made it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
from datasets import Dataset, concatenate_datasets
from pyarrow import parquet
from sentence_transformers import SentenceTransformer

from hf_dense.data.corpus import table_rows
from hf_dense.errors import InputError, as_sentence
from hf_dense.hub.hybrid import hybrid_head
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.precision import Reading
from hf_dense.hub.reach import noticing_offline
from hf_dense.search.approximate import CandidateIndex
from hf_dense.search.bm25 import LexicalIndex
from hf_dense.search.dense import Floats, Indices, Vectors, check_batch_size, encode_queries, search
from hf_dense.search.fingerprints import retriever_source
from hf_dense.search.first_stage import HYBRID, hybrid_searcher
from hf_dense.search.fusion import fuse
from hf_dense.search.hybrid import HybridIndex
from hf_dense.search.index_building import (
    BROKEN,
    COLUMNS,
    PASSAGES,
    REPLACED,
    WORDS,
    Update,
    build_index,
    check_sizes,
    check_words,
    index_by,
    index_in,
    plain_passages,
    update_index,
)
from hf_dense.search.questions import check_questions
from hf_dense.storage.files import path_of
from hf_dense.storage.manifest import MANIFEST, Manifest

logger = logging.getLogger(__name__)

__all__ = ["Hit", "SearchIndex", "Update", "build_index", "update_index"]

DEPTH: Final = 100  # passages of the dense and of the lexical search that are fused


@dataclass(frozen=True)
class Hit:
    """One passage found, higher scores are better.

    Args:
        score: the model's similarity; where words have a weight, the sum of `hf_dense.search.fusion.fuse`, and 0 or
            less of a passage that was not among the first of either.
    """

    score: float
    id: str
    title: str
    text: str


class SearchIndex:
    """An index with the model that made it, ready for questions.

    Args:
        retriever: the model, loaded or by its place.
        directory: of the index.
        precision: that questions are encoded in; None: as the passages were. Another one is said in the log.
    """

    def __init__(
        self,
        retriever: str | os.PathLike[str] | SentenceTransformer,
        directory: str | os.PathLike[str],
        precision: str | None = None,
    ) -> None:
        self.retriever = retriever = load_retriever(retriever)
        # Files are read later, from wherever the process is then.
        self.directory = directory = path_of(directory).absolute()
        self._opened = _identity(directory)
        with as_sentence(BROKEN.format(directory)), self._unreplaced():
            self.manifest = index_by(retriever_source(retriever).fingerprint, directory)
            check_words(self.manifest, directory)
            check_sizes(directory, self.manifest.files)
            self.kind: str = self.manifest.made_from["kind"]
            self.weight: float = self.manifest.made_from["weight"]
            self.vectors = Vectors.stored(directory)  # none where they are hybrid
            self.passages = table_rows(parquet.read_table(directory / PASSAGES))
            self.reading = _asked(self.manifest, precision)
            self._reader = self.reading.apply(retriever)
            self.candidates = None if self.kind == "exact" else CandidateIndex.load(directory, self.kind)
            self.hybrid = HybridIndex.load(directory / HYBRID) if hybrid_head(retriever) else None

    @classmethod
    @noticing_offline()
    def load(
        cls,
        directory: str | os.PathLike[str],
        model: str | os.PathLike[str] | SentenceTransformer | None = None,
        precision: str | None = None,
    ) -> SearchIndex:
        """Open an index.

        Args:
            directory: what `build_index` wrote.
            model: the model that encoded it; by default the directory's parent, where `hf-dense search` puts indexes.
            precision: that questions are encoded in; None: as the passages were.

        Returns:
            The index; its float vectors stay on disk.

        Raises:
            InputError: no index there, or it was made by another model or an earlier version.
        """
        path = path_of(directory)
        index_in(path)
        return cls(path.resolve().parent if model is None else model, path, precision)

    def __len__(self) -> int:
        return len(self.passages)

    def __repr__(self) -> str:
        return f"<{self.kind} index of {len(self):,} passages in {self.directory}>"

    @property
    def is_current(self) -> bool:
        """Whether no other index has taken the place of this one since it was opened."""
        try:
            return _identity(self.directory) == self._opened
        except FileNotFoundError:
            return False

    def search(self, query: str, top_k: int = 5, weight: float | None = None) -> list[Hit]:
        """Find the `top_k` passages that answer one question, best first; see `search_many`."""
        return self.search_many([query], top_k, weight)[0]

    def search_many(
        self, queries: Iterable[str], top_k: int = 5, weight: float | None = None, batch_size: int = 64
    ) -> list[list[Hit]]:
        """Find the passages that answer each of many questions.

        Args:
            queries: the questions.
            top_k: passages wanted for each.
            weight: 1 for the model's similarity alone, 0 for BM25 alone; between them the first 100 passages of each
                are scored by the weighted sum of both (`hf_dense.search.fusion.fuse`), and what else is wanted follows
                by similarity. None: as the index has it.
            batch_size: questions encoded at once.

        Returns:
            For each question its hits, best first; fewer than `top_k` where no more were found.

        Raises:
            InputError: a text or a dict in place of a list of them, an empty question, no whole `top_k` or `batch_size`
                above 0, a weight that is not from 0 to 1, or the index was replaced since it was opened.
        """
        if isinstance(queries, str | Mapping) or not isinstance(queries, Iterable):
            raise InputError("search_many takes a list of questions (of a dict its values); search takes one.")
        asked, weight = list(queries), self.weight if weight is None else weight
        check_questions(asked, top_k, weight)
        weight = float(weight)
        check_batch_size(batch_size)
        if not asked:
            return []
        top_k = min(top_k, len(self.passages))
        depth, words = max(top_k, DEPTH) if weight < 1 else top_k, DEPTH if weight else top_k
        nothing: list[dict[str, float]] = [{}] * len(asked)
        with self._unreplaced():
            dense = self._nearest(asked, depth, batch_size) if weight else nothing
            lexical = _scores(*self._words.find(asked, words)) if weight < 1 else nothing
        both = [_fused(*scores, weight) for scores in zip(dense, lexical, strict=True)] if weight < 1 else dense
        return self._hits([dict(islice(scores.items(), top_k)) for scores in both])

    def add(self, passages: Dataset) -> SearchIndex:
        """Put passages into the index, in place of those of the same ids, and open the index that it is then.

        Args:
            passages: columns `id`, `title`, `text`.

        Returns:
            The index that is in the directory then.

        Raises:
            InputError: as `update_index`.
        """
        new = plain_passages(passages).cast(self.passages.features)
        return self._become(concatenate_datasets([self._without(set(new["id"][:])), new]))

    def remove(self, ids: Iterable[str]) -> SearchIndex:
        """Take passages out of the index, and open the index that it is then; see `add`.

        Raises:
            InputError: a text in place of a list of ids, there is no passage of an id, or none would be left.
        """
        if isinstance(ids, str) or not isinstance(ids, Iterable):
            raise InputError(f"remove takes a list of ids; give [{ids!r}] for a single one.")
        gone = set(ids)
        if unknown := gone - set(self.passages["id"][:]):
            raise InputError(f"The index has no passage with the id {min(map(repr, unknown))}.")
        return self._become(self._without(gone))

    def _without(self, ids: Set[str]) -> Dataset:
        with self._unreplaced():
            return self.passages.select([row for row, name in enumerate(self.passages["id"][:]) if name not in ids])

    def _become(self, corpus: Dataset) -> SearchIndex:
        update_index(
            self.retriever,
            corpus,
            self.directory,
            name=self.manifest.sources["model"],
            origin=self.manifest.sources["corpus"],
            before=self.manifest,
        )
        return SearchIndex(self.retriever, self.directory, self.reading.precision)

    @cached_property
    def _words(self) -> LexicalIndex:
        with as_sentence(BROKEN.format(self.directory)), self._unreplaced():
            return LexicalIndex.load(self.directory / WORDS)

    def _nearest(self, queries: Sequence[str], k: int, batch_size: int) -> list[dict[str, float]]:
        """For each query the similarities of the nearest passages, by row, best first."""
        if self.hybrid is not None:
            return _scores(*hybrid_searcher(self._reader, self.hybrid, batch_size)(queries, k))
        encoded = encode_queries(self._reader, queries, batch_size)
        if self.candidates is None:
            return _scores(*search(encoded, self.vectors, k))
        return _scores(*self.candidates.search(encoded, k, self.vectors))

    def _hits(self, found: Sequence[Mapping[str, float]]) -> list[list[Hit]]:
        """Passages in place of rows."""
        rows = [int(row) for scores in found for row in scores]
        if not rows:
            return [[] for _ in found]
        columns = self.passages[rows]
        passages = zip(*(columns[name] for name in COLUMNS), strict=True)
        return [[Hit(score, *next(passages)) for score in scores.values()] for scores in found]

    @contextmanager
    def _unreplaced(self) -> Iterator[None]:
        """Raise `InputError` where another index took this one's place: its files are read when they are needed, and
        those of two indexes do not go together.
        """
        said = REPLACED.format(self.directory)
        try:
            yield
        except Exception as error:
            if self.is_current:
                raise
            raise InputError(said) from error
        if not self.is_current:
            raise InputError(said)


def _asked(manifest: Manifest, precision: str | None) -> Reading:
    """How questions are read."""
    made = Reading.of(manifest.made_from)
    if precision not in (None, made.precision):
        logger.warning("Questions are encoded in %s; the passages were in %s.", precision, made.precision)
    return replace(made, precision=precision or made.precision)


def _identity(directory: Path) -> tuple[int, int]:
    """What no two indexes of one place share."""
    facts = (directory / MANIFEST).stat()
    return facts.st_ino, facts.st_mtime_ns


def _scores(scores: Floats, rows: Indices) -> list[dict[str, float]]:
    """For each query its hits, by row."""
    return [
        {str(row): score for score, row in zip(*pair, strict=True) if row >= 0 and score > -np.inf}
        for pair in zip(scores.tolist(), rows.tolist(), strict=True)
    ]


def _fused(dense: Mapping[str, float], lexical: Mapping[str, float], weight: float) -> dict[str, float]:
    """The first `DEPTH` passages of the dense search fused with those of the lexical one; below them the other dense
    hits, whose similarities, scaled as those of the first are, come to 0 or less.
    """
    first = dict(islice(dense.items(), DEPTH))
    fused, least = fuse(first, lexical, weight), min(first.values(), default=0.0)
    width = max(first.values(), default=0.0) - least or 1.0
    return fused | {row: weight * (score - least) / width for row, score in dense.items() if row not in fused}
