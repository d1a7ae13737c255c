"""A small general collection that every machine has: a part of the standard library's documentation.

It shows what a retriever forgets that is tuned for something else. It is drawn by hashes of names: the same Python
gives the same passages and queries. Another one has other documentation, so figures compare within one machine only.
"""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from huggingface_hub.constants import HF_HOME

from hf_dense.data.passages import pretoken_counter
from hf_dense.data.python_docs.collection import Collection, collect, write_tables
from hf_dense.data.python_docs.docstrings import STANDARD_LIBRARY, find_sources, fingerprint_sources, read_documents
from hf_dense.errors import InputError
from hf_dense.storage.fingerprints import fingerprint_values
from hf_dense.storage.output import Output
from hf_dense.storage.places import BeingWritten, Source
from hf_dense.storage.scratch import may_be_written
from hf_dense.version import __version__

logger = logging.getLogger(__name__)

PROBE_SPLIT: Final = "dev"
_QUERIES, _PASSAGES, _LENGTH = 200, 2000, 64  # MiniLM reads them in half a minute on one core
_PATIENCE: Final = 0.5  # seconds between two looks at what another run builds


def open_probe() -> Path:
    """The directory of the collection, in the cache (`HF_HOME`), where it is built once; of several runs by one.

    Raises:
        InputError: it is not there, and the cache may not be written.
    """
    files, versions = find_sources([STANDARD_LIBRARY])
    source = Source(f"Python {versions[STANDARD_LIBRARY]}", fingerprint_sources(files))
    settings = {"queries": _QUERIES, "passages": _PASSAGES, "length": _LENGTH}
    name = fingerprint_values({"source": source.fingerprint, "version": __version__, **settings})[:12]
    out = Output(Path(HF_HOME) / "hf_dense" / f"python_docs-{versions[STANDARD_LIBRARY]}-{name}")
    if not out.path.exists() and not may_be_written(out.path.parent):
        raise InputError(
            f"{out.path}, a part of Python's documentation that is kept for all runs, is not there and may not be "
            "written; set HF_HOME to a directory that may, or keep a collection of yours (--keep COLLECTION)."
        )
    waits = False
    while True:
        try:
            with out.stage("collection", settings, {"packages": source}) as work:
                if not work.done:
                    whole = collect(read_documents(files, progress=True), _LENGTH, pretoken_counter())
                    write_tables(work.result, draw_part(whole, _QUERIES, _PASSAGES))
            return out.path
        except BeingWritten:
            if not waits:
                logger.warning("Another run is building %s; this one waits for it.", out.path)
            waits = True
            time.sleep(_PATIENCE)


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
