"""A search engine over one corpus: vectors in a FAISS index, passages beside it in Parquet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import pyarrow as pa
from datasets import Dataset
from pyarrow import parquet
from sentence_transformers import SentenceTransformer

from hf_dense.data.collections import load_corpus
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.errors import InputError
from hf_dense.hub.hybrid import hybrid_head
from hf_dense.hub.loading import load_retriever
from hf_dense.search.dense import encode_corpus, encode_queries
from hf_dense.search.fingerprints import retriever_source
from hf_dense.storage.fingerprints import fingerprint_rows
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

_COLUMNS = ("id", "title", "text")
_KIND, _VECTORS, _PASSAGES = "index", "vectors.faiss", "passages.parquet"


@dataclass(frozen=True)
class Hit:
    """One passage found: `score` is the model's similarity, higher is better."""

    score: float
    id: str
    title: str
    text: str


def build_index(
    model: str | Path | SentenceTransformer,
    corpus: Dataset | str | Path,
    out: str | os.PathLike[str] | Output,
    *,
    name: str | None = None,
    batch_size: int = 64,
) -> Path:
    """Encode a corpus, with a progress bar and an ETA, and write its index.

    Args:
        model: an exported directory, a Hub id or a loaded model.
        corpus: columns `id`, `title`, `text`, title + " " + text is what is encoded; or the directory of a collection.
        out: receives vectors (exact inner-product search, 4 bytes per dimension), passages and facts, complete or not
            at all; a run that was killed goes on with the vectors it had.
        name: by which a loaded model is shown, the directory that it came from for instance.
        batch_size: texts encoded at once.

    Returns:
        The directory of the index.

    Raises:
        InputError: nothing to load, a model of hybrid vectors, an empty corpus, a column absent, or `out` is not ours
            or holds the index of another model or corpus.
    """
    output, origin = Output.of(out), "the passages" if isinstance(corpus, Dataset) else str(corpus)
    corpus = corpus if isinstance(corpus, Dataset) else load_corpus(corpus)
    missing = [column for column in _COLUMNS if column not in corpus.column_names]
    if missing:
        raise InputError(f"The corpus has no column {missing[0]!r}; it has {', '.join(corpus.column_names)}.")
    if len(corpus) == 0:
        raise InputError("The corpus has no passages.")
    retriever = load_retriever(model)
    if hybrid_head(retriever):
        raise InputError(
            "This model gives hybrid vectors; index them with build_hybrid_index (hf_dense.search.hybrid)."
        )
    sources = {
        "model": retriever_source(retriever, model if isinstance(model, str | Path) else name),
        "corpus": Source(origin, fingerprint_rows(corpus, _COLUMNS)),
    }
    with output.stage(_KIND, {}, sources, resumable=True) as work:
        if not work.done:
            vectors = encode_corpus(retriever, PassageTexts(corpus), work.pieces, batch_size)
            index = faiss.IndexFlatIP(next(iter(vectors)).shape[1])
            for block in vectors:
                index.add(block)
            faiss.write_index(index, str(work.result / _VECTORS))
            parquet.write_table(pa.table({name: list(corpus[name]) for name in _COLUMNS}), work.result / _PASSAGES)
            work.facts |= {"passages": len(corpus), "dimensions": index.d, "similarity": retriever.similarity_fn_name}
    return output.path


class SearchIndex:
    """An index with the model that made it, ready for questions."""

    def __init__(self, retriever: SentenceTransformer, vectors: Any, passages: pa.Table) -> None:
        self.retriever = retriever
        self.vectors = vectors
        self.passages = passages

    @classmethod
    def load(cls, directory: str | Path, model: str | Path | SentenceTransformer | None = None) -> SearchIndex:
        """Open an index.

        Args:
            directory: what `build_index` wrote.
            model: the model that encoded it; by default the directory's parent, where `hf-dense search` puts indexes.

        Returns:
            The index, its vectors in memory.

        Raises:
            InputError: no index there, or it was made by another model.
        """
        path = Path(directory)
        manifest = Manifest.load(path)
        if manifest is None or manifest.kind != _KIND:
            raise InputError(f"There is no search index in {path}; name a corpus to build it from with --corpus DIR.")
        retriever = load_retriever(path.resolve().parent if model is None else model)
        if manifest.made_from["model"] != retriever_source(retriever).fingerprint:
            raise InputError(
                f"The index in {path} was made by another model ({manifest.sources['model']}); name another directory, "
                "or build it again with --corpus DIR --overwrite."
            )
        return cls(retriever, faiss.read_index(str(path / _VECTORS)), parquet.read_table(path / _PASSAGES))

    def __len__(self) -> int:
        return int(self.passages.num_rows)

    def search(self, query: str, top_k: int = 5) -> list[Hit]:
        """Find the `top_k` passages most similar to `query`, best first.

        Raises:
            InputError: an empty query, or `top_k` below 1.
        """
        if not query.strip():
            raise InputError("The question is empty.")
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be at least 1.")
        scores, rows = self.vectors.search(encode_queries(self.retriever, [query]), min(top_k, len(self)))
        found = self.passages.take(rows[0]).to_pylist()
        return [Hit(float(score), **passage) for score, passage in zip(scores[0], found, strict=True)]
