"""The verb `hf-dense search`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from textwrap import fill

from hf_dense.commands.output import command_line
from hf_dense.errors import InputError
from hf_dense.storage.output import Output

SUMMARY = "Find the passages that answer a question."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    parser.add_argument("model", metavar="MODEL", help="directory or Hub id of a Sentence-Transformers retriever")
    parser.add_argument("question", metavar="QUESTION", help="what to look for, in plain words")
    parser.add_argument(
        "--corpus",
        metavar="CORPUS",
        help="collection, passages or folder of documents to index, where no index of it exists yet",
    )
    parser.add_argument("--index", type=Path, metavar="DIR", help="where the index is, or is built (MODEL/index)")
    parser.add_argument("--overwrite", action="store_true", help="replace an index of another model or corpus")
    parser.add_argument("--top_k", type=int, default=5, help="passages to show (default: 5)")


def run(arguments: argparse.Namespace) -> None:
    """Build the index where a corpus is named and none is there, and show what it finds.

    Raises:
        InputError: no index, one of another model or corpus, or nothing to ask.
    """
    started = time.perf_counter()
    place = arguments.index or _beside(arguments.model)
    if not arguments.question.strip():
        raise InputError("The question is empty.")
    if not place.is_dir() and arguments.corpus is None:
        raise InputError(f"There is no index in {place}; name a corpus to build it from with --corpus CORPUS.")
    from transformers.utils.logging import disable_progress_bar

    from hf_dense.data.corpus import table_files
    from hf_dense.data.passage_sources import load_source
    from hf_dense.hub.loading import load_retriever
    from hf_dense.search.index import SearchIndex, build_index

    disable_progress_bar()
    retriever = load_retriever(arguments.model)
    if arguments.corpus is not None:
        output = Output(place, arguments.overwrite, command_line(arguments))
        is_collection = table_files(Path(arguments.corpus))
        corpus = arguments.corpus if is_collection else load_source(arguments.corpus, place)
        build_index(retriever, corpus, output, name=arguments.model)
    index = SearchIndex.load(place, retriever)
    loaded = time.perf_counter()
    hits = index.search(arguments.question, arguments.top_k)
    found = time.perf_counter()
    for rank, hit in enumerate(hits, start=1):
        print(f"{rank:2d}. {hit.score:.3f}  {hit.title or hit.id}")
        print(fill(hit.text, width=100, initial_indent="    ", subsequent_indent="    "))
    print(f"\n{len(index):,} passages ready in {loaded - started:.2f} s, searched in {found - loaded:.3f} s")


def _beside(model: str) -> Path:
    if not Path(model).is_dir():
        raise InputError(f"{model} is not a directory; say where its index belongs with --index DIR.")
    return Path(model) / "index"
