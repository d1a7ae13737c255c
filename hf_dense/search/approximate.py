"""Search in two steps: FAISS finds candidates by approximate or compressed vectors, the float vectors score them.

The int8 and binary vectors are those of `sentence_transformers.util.quantization`. Its own search with FAISS keeps int8
vectors as floats and scores candidates by compressed vectors; here FAISS keeps bytes, and the float vectors score.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np
from sentence_transformers.util.quantization import quantize_embeddings

from hf_dense.errors import InputError
from hf_dense.search.dense import Floats, Indices, Vectors, check_kind, search_index, trained_index

KINDS: Final = ("exact", "hnsw", "ivfpq", "int8", "binary")
_MULTIPLIER: Final = 4  # candidates for each passage that is wanted,
_LEAST: Final = 100  # but no fewer in all: scoring them takes no time
_FILE: Final = "vectors.faiss"


def check_index_kind(kind: str, passages: int) -> None:
    """Pass when so many passages can be indexed so.

    Raises:
        InputError: the kind is unknown, or the passages too few for it.
    """
    if kind not in KINDS:
        raise InputError(f"The kind of index is {kind!r}; choose one of {', '.join(KINDS)}.")
    if kind == "ivfpq":
        check_kind(kind, passages)


@dataclass(frozen=True)
class CandidateIndex:
    """A FAISS index of one kind.

    Args:
        kind: one of `KINDS` but `exact`.
        index: of FAISS, in memory.
    """

    kind: str
    index: Any

    @classmethod
    def build(cls, vectors: Vectors, kind: str) -> CandidateIndex:
        """Index vectors, reading them block by block."""
        made = cls(kind, _empty_index(vectors, kind))
        for block in vectors:
            made.index.add(made._compressed(block))
        return made

    def save(self, folder: Path) -> None:
        """Write it into a folder, as an open file: FAISS raises nothing where its own has no room to end."""
        write = faiss.write_index_binary if self.kind == "binary" else faiss.write_index
        with (folder / _FILE).open("wb") as file:
            write(self.index, faiss.PyCallbackIOWriter(file.write))  # type: ignore[attr-defined]

    @classmethod
    def load(cls, folder: Path, kind: str) -> CandidateIndex:
        """Read what `save` wrote."""
        read = faiss.read_index_binary if kind == "binary" else faiss.read_index
        return cls(kind, read(str(folder / _FILE)))

    def search(self, queries: Floats, k: int, vectors: Vectors) -> tuple[Floats, Indices]:
        """Find the passages of greatest inner product among the candidates.

        Args:
            queries: (queries, dimensions).
            k: passages wanted for each query.
            vectors: that the index was built of.

        Returns:
            (queries, k) inner products, best first, and indices of the passages, -1 where no more was found; fewer
            columns where there are fewer passages.
        """
        wanted = min(max(_MULTIPLIER * k, _LEAST), self.index.ntotal)
        _, candidates = search_index(self.index, self._compressed(queries), wanted)
        return rescore(queries, candidates, vectors, min(k, self.index.ntotal))

    def _compressed(self, vectors: Floats) -> Any:
        """What the index takes for vectors: bits, or the vectors, which it compresses where it has to."""
        return quantize_embeddings(vectors, "ubinary") if self.kind == "binary" else vectors


def rescore(queries: Floats, candidates: Indices, vectors: Vectors, k: int) -> tuple[Floats, Indices]:
    """The best of some candidates by the vectors themselves.

    Args:
        queries: (queries, dimensions).
        candidates: (queries, candidates) indices, -1 for none.
        vectors: of the corpus.
        k: passages wanted for each query.

    Returns:
        (queries, k) inner products, best first, and indices, -1 where there are no more candidates.
    """
    scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
    indices = np.full((len(queries), k), -1, dtype=np.int64)
    for row, (query, found) in enumerate(zip(queries, candidates, strict=True)):
        among = found[found >= 0]
        products = vectors.take(among) @ query
        best = np.argsort(-products, kind="stable")[:k]
        scores[row, : len(best)], indices[row, : len(best)] = products[best], among[best]
    return scores, indices


def _empty_index(vectors: Vectors, kind: str) -> Any:
    """An index of FAISS that has learnt what it has to, and holds nothing."""
    dimensions = next(iter(vectors)).shape[1]
    if kind == "binary":
        return faiss.IndexBinaryFlat(8 * -(-dimensions // 8))
    if kind == "int8":
        index = faiss.IndexScalarQuantizer(dimensions, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
        index.train(_ranges(vectors))  # all that it learns
        return index
    return trained_index(vectors, kind)


def _ranges(vectors: Iterable[Floats]) -> Floats:
    """(2, dimensions) the least and the greatest value of each dimension."""
    least, greatest = zip(*((block.min(axis=0), block.max(axis=0)) for block in vectors), strict=True)
    return np.stack([np.min(least, axis=0), np.max(greatest, axis=0)])
