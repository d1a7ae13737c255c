"""Data: the documentation of the Python environment as a retrieval collection, and reading any collection."""

from hf_dense.data.collections import (
    content_hash,
    load_corpus,
    load_qrels,
    load_queries,
    push_collection,
    training_pairs,
)
from hf_dense.data.docstrings import find_sources, read_documents
from hf_dense.data.passages import add_neighbours, build_passages, pretoken_counter, tokenizer_counter
from hf_dense.data.python_docs import build_python_docs

__all__ = [
    "add_neighbours",
    "build_passages",
    "build_python_docs",
    "content_hash",
    "find_sources",
    "load_corpus",
    "load_qrels",
    "load_queries",
    "pretoken_counter",
    "push_collection",
    "read_documents",
    "tokenizer_counter",
    "training_pairs",
]
