"""Exact search among DupMAE's hybrid vectors, of whose words the entries that are not 0 are kept on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm.auto import tqdm

from hf_dense.errors import InputError
from hf_dense.hub.hybrid import hybrid_head
from hf_dense.hub.hybrid_head import HybridHead
from hf_dense.search.cluster import is_on_cluster
from hf_dense.search.dense import Floats, Indices, Known, check_batch_size
from hf_dense.storage.files import write_text

_BLOCK: Final = 20_000  # passages compared at once
_QUERIES: Final = 256  # with so many queries: 20 MB of scores
_VALUE: Final = np.dtype(np.float32)
FACTS_FILE: Final = "hybrid_index.json"  # where all passages are written
_PROGRESS: Final = "hybrid_index_begun.json"


def bytes_per_passage(dense: int, sparse: int, vocabulary: int) -> int:
    """What an index stores of a passage: dense and kept values, 4 bytes each, and the ids of the kept tokens.

    Ids take 2 bytes in vocabularies of at most 65,536 tokens and 4 in larger ones.

    Args:
        dense: length of the dense part.
        sparse: entries kept of the vocabulary vector.
        vocabulary: number of tokens.

    Returns:
        Bytes.

    The paper's CLS:384, OT:260 takes no more than CLS:768 with 15 bits for an id (table 3).

    >>> [bytes_per_passage(dense, sparse, 30522) for dense, sparse in ((384, 384), (384, 260), (768, 0), (0, 768))]
    [3840, 3096, 3072, 4608]
    """
    return dense * _VALUE.itemsize + sparse * (_VALUE.itemsize + _id_type(vocabulary).itemsize)


def write_hybrid_vectors(
    model: SentenceTransformer,
    texts: Sequence[str],
    folder: Path,
    batch_size: int = 64,
    known: Known[HybridIndex] | None = None,
) -> None:
    """Encode passages, with a progress bar, and write what `HybridIndex.load` reads; what was stopped goes on.

    Args:
        model: of `load_hybrid`.
        texts: the passages; what a search finds are indices in this sequence.
        folder: that is there, and holds nothing made from another model or other passages.
        batch_size: texts encoded at once.
        known: vectors that are copied; only the other texts are encoded.

    Raises:
        InputError: a cluster is to encode them, or a batch holds no text.
    """
    check_batch_size(batch_size)
    if is_on_cluster():
        raise InputError("Hybrid vectors are encoded on one machine; leave the Ray cluster out.")
    head = hybrid_head(model)
    assert head is not None
    rows, part = len(texts), 16 * batch_size
    types = {"dense": _VALUE, "values": _VALUE, "tokens": _id_type(head.vocabulary)}
    progress = folder / _PROGRESS
    first = json.loads(progress.read_text(encoding="utf-8"))["passages"] if progress.is_file() else 0
    stored: dict[str, Any] = {}
    for name, kind in types.items():
        width = head.dense if name == "dense" else head.sparse
        if width == 0:  # which cannot be mapped
            np.save(folder / f"{name}.npy", np.empty((rows, 0), kind))
        else:
            mode: Any = "r+" if first else "w+"
            stored[name] = np.lib.format.open_memmap(folder / f"{name}.npy", mode, kind, (rows, width))
    if known is not None and not first:
        _copy(known, stored)
    with tqdm(total=rows, initial=first, desc="Encoding passages", unit=" passages") as bar:
        for start in range(first, rows, part):
            block = texts[start : start + part]
            new = [row for row in range(len(block)) if known is None or known.rows[start + row] < 0]
            if new:
                found = _encode(model, head, [block[row] for row in new], batch_size)
                for name, array in stored.items():
                    array[start + np.array(new)] = found[name].cpu().numpy()
            for array in stored.values():
                array.flush()
            write_text(progress, json.dumps({"vocabulary": head.vocabulary, "passages": start + len(block)}))
            bar.update(len(block))
    progress.replace(folder / FACTS_FILE)


def _encode(model: SentenceTransformer, head: HybridHead, texts: Sequence[str], batch_size: int) -> dict[str, Tensor]:
    """The parts of the hybrid vectors of texts, by the names of their files."""
    vectors = model.encode_document(
        list(texts), batch_size=batch_size, show_progress_bar=False, convert_to_tensor=True
    ).float()
    words = vectors[:, head.dense :]
    tokens = words.abs().topk(head.sparse, dim=1).indices.sort(dim=1).values  # all that is not 0
    return {"dense": vectors[:, : head.dense], "values": words.gather(1, tokens), "tokens": tokens}


def _copy(known: Known[HybridIndex], stored: Mapping[str, Any]) -> None:
    """Put known vectors in their new places, some at a time."""
    kept = np.flatnonzero(known.rows >= 0)
    for start in range(0, len(kept), _BLOCK):
        place = kept[start : start + _BLOCK]
        for name, array in stored.items():
            array[place] = getattr(known.vectors, name)[known.rows[place]]


@dataclass(frozen=True)
class HybridIndex:
    """The hybrid vectors of passages, mapped into memory.

    Args:
        dense: (passages, d').
        values: (passages, k) scores of the kept tokens: with `tokens`, a sparse matrix of k entries in each row.
        tokens: (passages, k) their ids.
        vocabulary: number of tokens.
    """

    dense: NDArray[Any]
    values: NDArray[Any]
    tokens: NDArray[Any]
    vocabulary: int

    @classmethod
    def load(cls, directory: str | Path) -> HybridIndex:
        """Open what `write_hybrid_vectors` wrote.

        Raises:
            InputError: no index there.
        """
        path = Path(directory)
        if not (path / FACTS_FILE).is_file():
            raise InputError(f"There is no index of hybrid vectors in {path}.")
        facts = json.loads((path / FACTS_FILE).read_text(encoding="utf-8"))
        arrays = {name: _mapped(path / f"{name}.npy") for name in ("dense", "values", "tokens")}
        return cls(**arrays, vocabulary=facts["vocabulary"])

    def __len__(self) -> int:
        """The number of passages."""
        return len(self.dense)

    @property
    def bytes_per_passage(self) -> int:
        """Bytes stored of a passage."""
        return sum(array.itemsize * array.shape[1] for array in (self.dense, self.values, self.tokens))

    def score(self, query: Floats, indices: Indices) -> Floats:
        """(indices,) the relevance of some passages to a query, (d' + vocabulary) of `encode_query`."""
        dense, words = self._rows(indices)
        split = self.dense.shape[1]
        scores: Floats = dense @ query[:split] + words @ query[split:]
        return scores

    def search(self, queries: Floats, k: int) -> tuple[Floats, Indices]:
        """Find the passages of greatest relevance to each query, exactly, reading the index once.

        Args:
            queries: (queries, d' + vocabulary) of `encode_query`.
            k: passages wanted for each query.

        Returns:
            (queries, min(k, passages)) scores, best first, and indices of the passages.

        Raises:
            InputError: `k` below 1, or queries of another model.

        Source: DupMAE, equation 12.
        """
        if k < 1:
            raise InputError(f"k is {k}; it must be at least 1.")
        split, k = self.dense.shape[1], min(k, len(self))
        if queries.shape[1] != split + self.vocabulary:
            raise InputError(
                f"The queries have vectors of {queries.shape[1]} numbers, the index of {split + self.vocabulary}; "
                "encode them with the model that made the index."
            )
        best = torch.full((len(queries), k), -torch.inf)
        indices = torch.full((len(queries), k), -1, dtype=torch.int64)
        for start in tqdm(range(0, len(self), _BLOCK), desc="Comparing", unit=" blocks", leave=False, delay=1):
            dense, words = self._rows(slice(start, start + _BLOCK))
            for first in range(0, len(queries), _QUERIES):
                rows = slice(first, first + _QUERIES)
                asked = queries[rows].astype(np.float32, copy=False)
                scores = asked[:, :split] @ dense.T + (words @ np.ascontiguousarray(asked[:, split:].T)).T
                found, at = torch.from_numpy(scores).topk(min(k, len(dense)))
                best[rows], order = torch.cat([best[rows], found], dim=1).topk(k)
                indices[rows] = torch.cat([indices[rows], at + start], dim=1).gather(1, order)
        return best.numpy(), indices.numpy()

    def _rows(self, rows: slice | Indices) -> tuple[Floats, csr_matrix]:
        """Some passages: their dense parts, and a sparse matrix (passages, vocabulary) of their words."""
        values, tokens = self.values[rows], self.tokens[rows].astype(np.int32)
        ends = np.arange(len(values) + 1) * values.shape[1]
        words = csr_matrix((values.ravel(), tokens.ravel(), ends), shape=(len(values), self.vocabulary))
        return self.dense[rows], words


def _mapped(file: Path) -> NDArray[Any]:
    """An array of a file, mapped into memory where it holds anything."""
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r")
    except ValueError:  # nothing can be mapped of no columns
        array = np.load(file)
    return array


def _id_type(vocabulary: int) -> np.dtype[Any]:
    """The smallest type of an index that holds the ids of a vocabulary."""
    return np.dtype(np.uint16 if vocabulary <= 65_536 else np.int32)
