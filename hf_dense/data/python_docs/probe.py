"""A small general collection that every machine has: a part of the standard library's documentation.

It shows what a retriever forgets that is tuned for something else. It is drawn by hashes of names: the same Python
gives the same passages and queries. Another one has other documentation, so figures compare within one machine only.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Final

from huggingface_hub.constants import HF_HOME

from hf_dense.data.passages import pretoken_counter
from hf_dense.data.python_docs.collection import Collection, collect, write_tables
from hf_dense.data.python_docs.docstrings import STANDARD_LIBRARY, find_sources, fingerprint_sources, read_documents
from hf_dense.storage.fingerprints import fingerprint_values
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.version import __version__

PROBE_SPLIT: Final = "dev"
_QUERIES, _PASSAGES, _LENGTH = 200, 2000, 64  # MiniLM reads them in half a minute on one core


def open_probe() -> Path:
    """The directory of the collection, in the cache (`HF_HOME`), where it is built once."""
    files, versions = find_sources([STANDARD_LIBRARY])
    source = Source(f"Python {versions[STANDARD_LIBRARY]}", fingerprint_sources(files))
    settings = {"queries": _QUERIES, "passages": _PASSAGES, "length": _LENGTH}
    name = fingerprint_values({"source": source.fingerprint, "version": __version__, **settings})[:12]
    out = Output(Path(HF_HOME) / "hf_dense" / f"python_docs-{versions[STANDARD_LIBRARY]}-{name}")
    with out.stage("collection", settings, {"packages": source}) as work:
        if not work.done:
            whole = collect(read_documents(files, progress=True), _LENGTH, pretoken_counter())
            write_tables(work.result, draw_part(whole, _QUERIES, _PASSAGES))
    return out.path


def draw_part(whole: Collection, queries: int, passages: int) -> Collection:
    """So many queries of all splits, as one, and so many passages, with all that are relevant to these queries."""
    asked = sorted(whole.queries, key=lambda query: _draw(query["id"]))[:queries]
    names = {query["id"] for query in asked}
    judged = tuple(row for rows in whole.qrels.values() for row in rows if row["query-id"] in names)
    relevant = {row["corpus-id"] for row in judged}
    ordered = sorted(whole.corpus, key=lambda row: (row["id"] not in relevant, _draw(str(row["id"]))))
    kept = {row["id"] for row in ordered[: max(passages, len(relevant))]}
    corpus = tuple(row for row in whole.corpus if row["id"] in kept)
    return replace(whole, corpus=corpus, queries=tuple(asked), qrels={PROBE_SPLIT: judged})


def _draw(name: str) -> bytes:
    return hashlib.sha256(f"probe:{name}".encode()).digest()
