"""A search engine over one corpus: vectors in a FAISS index, passages beside it in Parquet."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import pyarrow as pa
from datasets import Dataset
from pyarrow import parquet
from sentence_transformers import SentenceTransformer

from hf_dense.data.passage_texts import PassageTexts
from hf_dense.errors import InputError
from hf_dense.hub.hybrid import hybrid_head
from hf_dense.hub.loading import load_retriever
from hf_dense.search.dense import encode_corpus, encode_queries
from hf_dense.storage.legacy import atomic_directory, check_replaceable

_COLUMNS = ("id", "title", "text")
_VECTORS, _PASSAGES, _FACTS = "vectors.faiss", "passages.parquet", "index.json"


@dataclass(frozen=True)
class Hit:
    """One passage found: `score` is the model's similarity, higher is better."""

    score: float
    id: str
    title: str
    text: str


def build_index(
    model: str | Path | SentenceTransformer, corpus: Dataset, output_dir: str | Path, *, batch_size: int = 64
) -> Path:
    """Encode a corpus, with a progress bar and an ETA, and write its index.

    Args:
        model: an exported directory, a Hub id or a loaded model.
        corpus: columns `id`, `title`, `text`; title + " " + text is what is encoded.
        output_dir: receives vectors (exact inner-product search, 4 bytes per dimension), passages and facts,
            complete or not at all. The vectors stand in `<output_dir>.partial` until then; a run that was killed goes
            on with them.
        batch_size: texts encoded at once.

    Returns:
        `output_dir`.

    Raises:
        InputError: nothing to load, a model of hybrid vectors, an empty corpus, a column absent, an `output_dir` that
            holds something else.
    """
    check_replaceable(output_dir, marker=_FACTS)
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
    encoded = Path(f"{output_dir}.partial")
    vectors = encode_corpus(retriever, PassageTexts(corpus), encoded, batch_size)
    index = faiss.IndexFlatIP(next(iter(vectors)).shape[1])
    for block in vectors:
        index.add(block)
    facts = {"passages": len(corpus), "dimensions": index.d, "similarity": retriever.similarity_fn_name}
    with atomic_directory(output_dir) as work:
        faiss.write_index(index, str(work / _VECTORS))
        parquet.write_table(pa.table({name: list(corpus[name]) for name in _COLUMNS}), work / _PASSAGES)
        (work / _FACTS).write_text(json.dumps(facts, indent=1), encoding="utf-8")
    shutil.rmtree(encoded)
    return Path(output_dir)


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
            InputError: no index there, or it was made by a model with other dimensions or another similarity.
        """
        path = Path(directory)
        if not (path / _FACTS).is_file():
            raise InputError(f"There is no search index in {path}.")
        facts = json.loads((path / _FACTS).read_text(encoding="utf-8"))
        retriever = load_retriever(path.resolve().parent if model is None else model)
        made_by = (facts["dimensions"], facts["similarity"])
        if made_by != (retriever.get_embedding_dimension(), retriever.similarity_fn_name):
            raise InputError(f"The index in {path} was made by another model; delete it and build it again.")
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
