"""Models as sources of what is made with them: known by what they are, whatever the name or place they have."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Final

from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.hub.fingerprints import retriever_fingerprint
from hf_dense.hub.loading import load_retriever
from hf_dense.search.cross_encoder import load_reranker
from hf_dense.storage.fingerprints import fingerprint_values
from hf_dense.storage.places import Source

_BM25: Final = {
    **{"stop words": "of the texts' language", "stemmer": "likewise", "k1": 1.5, "b": 0.75, "method": "lucene"},
    **{"finds": "passages with a word of the query", "letters": "NFC", "without spaces": "pairs", "marks": "in words"},
}


def lexical_fingerprint() -> str:
    """How BM25 reads and weighs words here, by whatever version of `bm25s`."""
    return fingerprint_values(_BM25)


def retriever_source(model: str | Path | SentenceTransformer, name: object = None) -> Source:
    """A retriever: its weights, tokenizer, modules (pooling), prompts, similarity and longest text.

    Args:
        model: an exported directory, a Hub id or a loaded model.
        name: by which a loaded model is shown, where it is a string or a path: the directory that it came from.

    Raises:
        InputError: nothing to load.
    """
    return Source(_shown(model, name), retriever_fingerprint(load_retriever(model)))


def cross_encoder_source(model: str | Path | CrossEncoder, name: object = None) -> Source:
    """A cross-encoder: its weights, tokenizer and longest pair.

    Args:
        model: a directory, a Hub id or a loaded model.
        name: by which a loaded model is shown, where it is a string or a path.

    Raises:
        InputError: nothing to load.
    """
    return Source(_shown(model, name), retriever_fingerprint(load_reranker(model)))


def model_source(model: str | SentenceTransformer | CrossEncoder, name: object = None) -> Source:
    """A loaded retriever or cross-encoder, or `"bm25"`, of which its settings and the version of `bm25s` are all."""
    if isinstance(model, str):
        return Source(model, fingerprint_values({**_BM25, "bm25s": version("bm25s")}))
    if isinstance(model, SentenceTransformer):
        return retriever_source(model, name)
    return cross_encoder_source(model, name)


def _shown(model: object, name: object) -> str:
    return next((str(given) for given in (name, model) if isinstance(given, str | Path)), "a loaded model")
