"""Retrievers in the form that MTEB searches with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset
from mteb.models.model_meta import ModelMeta
from sentence_transformers import SentenceTransformer

from hf_dense.data.passage_texts import PassageTexts
from hf_dense.errors import InputError
from hf_dense.hub.retriever_settings import length_of
from hf_dense.search.bm25 import parted
from hf_dense.search.candidates import candidate_texts, rank_candidates
from hf_dense.search.first_stage import Search, by_id, open_search


class Recorded:
    """A model of MTEB's `SearchProtocol` whose rankings are kept; MTEB's file of them takes longer than the search.

    Attributes:
        rankings: by subset and split: query id -> passage id -> score.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.mteb_model_meta = model.mteb_model_meta
        self.rankings: dict[tuple[str, str], dict[str, dict[str, float]]] = {}

    def index(self, corpus: Dataset, **given: Any) -> None:
        """Hand on a corpus."""
        self.model.index(corpus, **given)

    def search(self, queries: Dataset, *, hf_split: str, hf_subset: str, **given: Any) -> dict[str, dict[str, float]]:
        """Hand on queries, and keep what is found."""
        found: dict[str, dict[str, float]] = self.model.search(queries, hf_split=hf_split, hf_subset=hf_subset, **given)
        self.rankings[hf_subset, hf_split] = found
        return found


class ComposedTexts:
    """A model of MTEB's `SearchProtocol` that reads texts as the own BM25 does (see `parted`)."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.mteb_model_meta = model.mteb_model_meta

    def index(self, corpus: Dataset, **given: Any) -> None:
        """Hand on a corpus."""
        self.model.index(_parted(corpus), **given)

    def search(self, queries: Dataset, **given: Any) -> dict[str, dict[str, float]]:
        """Hand on queries."""
        found: dict[str, dict[str, float]] = self.model.search(_parted(queries), **given)
        return found


class SearchingRetriever:
    """MTEB's `SearchProtocol`: the corpus is encoded once, to disk, and searched exactly.

    Where MTEB's own wrapper starts anew, a run that was killed goes on with the vectors it had, and hybrid vectors are
    kept sparse; rankings are the same.

    Args:
        retriever: a loaded model.
        folder: receives the vectors.
    """

    def __init__(self, retriever: SentenceTransformer, folder: Path) -> None:
        self.retriever = retriever
        self.folder = folder
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": "local/retriever",  # nothing is kept by it
                "embed_dim": retriever.get_embedding_dimension(),
                "max_tokens": length_of(retriever),
            }
        )
        self.find: Search | None = None  # once the corpus is encoded
        self._corpus: Dataset | None = None

    def index(self, corpus: Dataset, **_: Any) -> None:
        """Take a corpus; arguments are those of MTEB's protocol."""
        self._corpus, self.find = corpus, None

    def search(
        self,
        queries: Dataset,
        *,
        hf_split: str,
        hf_subset: str,
        top_k: int,
        encode_kwargs: Mapping[str, Any],
        top_ranked: Mapping[str, list[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Find the passages of each query, among all or among the candidates of `top_ranked`.

        Arguments are those of MTEB's protocol.

        Returns:
            Query id -> passage id -> score.

        Raises:
            InputError: queries that are no texts.
        """
        if self._corpus is None:
            raise RuntimeError("index() comes before search().")
        texts, folder = _asked(queries), self.folder / f"{hf_subset}-{hf_split}"
        batch_size = int(encode_kwargs["batch_size"])
        if top_ranked is not None:
            candidates = {query: top_ranked[query] for query in texts}
            wanted = {passage for passages in candidates.values() for passage in passages}
            passages = candidate_texts(self._corpus, wanted)
            return rank_candidates(self.retriever, texts, candidates, passages, folder, batch_size)
        self.find = open_search(self.retriever, PassageTexts(self._corpus), folder, batch_size)
        return by_id(texts, self._corpus["id"][:], *self.find(list(texts.values()), top_k))


def _parted(rows: Dataset) -> Dataset:
    """Rows with titles and texts as BM25 reads them."""
    columns = [name for name in ("title", "text") if name in rows.column_names]

    def part(row: dict[str, Any]) -> dict[str, Any]:
        return {name: parted(row[name]) if isinstance(row[name], str) else row[name] for name in columns}

    return rows.map(part, keep_in_memory=True, load_from_cache_file=False)


def _asked(queries: Dataset) -> dict[str, str]:
    """Texts by id; where queries have instructions these follow, as in MTEB."""
    texts = dict(zip(queries["id"], queries["text"], strict=True))
    if not all(isinstance(text, str) for text in texts.values()):
        raise InputError("The queries of this task are no texts (conversations, pictures); they cannot be encoded.")
    if "instruction" in queries.column_names:
        for query, instruction in zip(queries["id"], queries["instruction"], strict=True):
            texts[query] += f" {instruction}" if instruction else ""
    return texts
