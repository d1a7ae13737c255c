"""The verb `hf-dense search`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

from hf_dense.commands.options import read_number
from hf_dense.commands.output import add_encoding_arguments, command_line
from hf_dense.commands.reranking import add_reranking_arguments, check_reranking
from hf_dense.errors import InputError
from hf_dense.search.questions import check_questions, read_questions
from hf_dense.storage.files import plain_errors, replaced_file
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.output import Output
from hf_dense.storage.staged import put_back

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

    from hf_dense.search.index import Hit, SearchIndex

SUMMARY = "Find the passages that answer questions."
KINDS: Final = ("exact", "hnsw", "ivfpq", "int8", "binary")
_TOGETHER: Final = 1_000  # questions of a file that are searched for at once
_RERANKED: Final = 10  # likewise, where their passages are ordered anew


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    parser.add_argument("model", metavar="MODEL", help="directory or Hub id of a Sentence-Transformers retriever")
    parser.add_argument(
        "question",
        nargs="?",
        metavar="QUESTION",
        help="what to look for, in plain words; without it, lines of standard input are questions until an empty one",
    )
    parser.add_argument(
        "--corpus",
        metavar="CORPUS",
        help="collection, passages or folder of documents to index, where no index of it exists yet",
    )
    parser.add_argument(
        "--index", type=Path, metavar="DIR", help="where the index is, or is built (default: MODEL/index)"
    )
    parser.add_argument(
        "--kind",
        choices=KINDS,
        help="how the index finds: exact compares every vector; hnsw, ivfpq, int8 and binary find candidates, with "
        "less memory or time (default: that of the index that is there, else exact)",
    )
    parser.add_argument(
        "--weight",
        type=read_number,
        metavar="W",
        help="share of the model in the score, from 0 (BM25 alone) to 1 (the model alone) (default: as the index was "
        "built with, else 1)",
    )
    add_reranking_arguments(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--update", action="store_true", help="encode what is new in CORPUS, drop what is gone")
    instead.add_argument("--overwrite", action="store_true", help="replace an index of another model or corpus")
    add_encoding_arguments(parser, kept=True)
    parser.add_argument("--top_k", type=int, default=5, help="passages to show (default: 5)")
    parser.add_argument(
        "--queries",
        type=Path,
        metavar="FILE",
        help="many questions: one per line, or .jsonl, .json, .csv or .tsv with id and text",
    )
    parser.add_argument("--hits", type=Path, metavar="FILE", help="file to write with their hits (.jsonl)")


def run(arguments: argparse.Namespace) -> None:
    """Build or update the index where a corpus is named, and show what it finds.

    Raises:
        InputError: no index, one of another model or corpus, a question that is none, or options that do not go
            together.
    """
    started = time.perf_counter()
    place = arguments.index or _beside(arguments.model)
    put_back(place)
    _check(arguments, place)
    questions = None if arguments.queries is None else read_questions(arguments.queries)
    finder = _open(arguments, place)
    ready, index = time.perf_counter() - started, finder.index
    if questions is not None:
        _answer_all(finder, arguments.hits, questions)
    elif arguments.question is None:
        _prompt(finder)
    else:
        started = time.perf_counter()
        [hits] = finder.find([arguments.question])
        seconds = time.perf_counter() - started
        _show(hits)
        print(f"\n{len(index):,} passages ready in {ready:.2f} s, searched in {seconds:.3f} s")


@dataclass(frozen=True)
class _Finder:
    """Finds the passages of questions, as the arguments say.

    Args:
        index: that is searched.
        reranker: that orders the first passages anew; None for none.
        arguments: `top_k`, `weight`, `rerank_depth` and `batch_size`.
    """

    index: SearchIndex
    reranker: CrossEncoder | None
    arguments: argparse.Namespace

    def find(self, questions: Sequence[str]) -> list[list[Hit]]:
        """The passages of each, best first."""
        asked = self.arguments
        if self.reranker is None:
            return self.index.search_many(questions, asked.top_k, asked.weight, asked.batch_size)
        from hf_dense.search.reranking import RERANK_DEPTH, rerank_hits

        depth = asked.rerank_depth or RERANK_DEPTH
        found = self.index.search_many(questions, max(asked.top_k, depth), asked.weight, asked.batch_size)
        return [hits[: asked.top_k] for hits in rerank_hits(self.reranker, questions, found, depth, asked.batch_size)]


def _beside(model: str) -> Path:
    if not Path(model).is_dir():
        raise InputError(f"{model} is not a directory; of a model on the Hub say where its index belongs, --index DIR.")
    return Path(model) / "index"


def _check(arguments: argparse.Namespace, place: Path) -> None:
    """Raise `InputError` where the options cannot be followed, before anything is loaded."""
    asked = [] if arguments.question is None else [arguments.question]
    check_questions(asked, arguments.top_k, 1 if arguments.weight is None else arguments.weight)
    building = {f"--{name}": getattr(arguments, name) for name in ("update", "overwrite", "kind", "max_length")}
    if arguments.corpus is None and any(building.values()):
        option = next(name for name, given in building.items() if given)
        raise InputError(f"{option} is for building an index; name what it holds with --corpus CORPUS.")
    if not place.is_dir() and arguments.corpus is None:
        raise InputError(f"There is no index in {place}; name a corpus to build it from with --corpus CORPUS.")
    if arguments.update and Manifest.load(place) is None:
        raise InputError(f"There is no index in {place} to update; leave --update out to build one.")
    if (arguments.queries is None) != (arguments.hits is None):
        raise InputError("Many questions need both --queries FILE, where they are, and --hits FILE, which is written.")
    check_reranking(arguments)
    if arguments.queries is not None and asked:
        raise InputError("Give one question, or many with --queries FILE, but not both.")
    if arguments.hits is not None and arguments.hits.exists():
        raise InputError(f"{arguments.hits} is there already; name another file with --hits, or move it away.")
    if arguments.hits is not None and not arguments.hits.parent.is_dir():
        raise InputError(f"There is no directory {arguments.hits.parent} for the hits; make it, or name another.")


def _open(arguments: argparse.Namespace, place: Path) -> _Finder:
    """The index, built or updated first where a corpus is named, and the re-ranker."""
    from transformers.utils.logging import disable_progress_bar

    from hf_dense.hub.loading import load_retriever
    from hf_dense.search.index import SearchIndex

    disable_progress_bar()
    retriever, reranker = load_retriever(arguments.model), None
    if arguments.rerank is not None:
        from hf_dense.hub.precision import FP32, Reading
        from hf_dense.search.cross_encoder import load_reranker

        reranker = Reading(arguments.precision or FP32).apply(load_reranker(arguments.rerank))
    if arguments.corpus is not None:
        _build(arguments, place, retriever)
    return _Finder(SearchIndex.load(place, retriever, arguments.precision), reranker, arguments)


def _build(arguments: argparse.Namespace, place: Path, retriever: SentenceTransformer) -> None:
    from hf_dense.data.collections import holds_corpus
    from hf_dense.data.passage_corpus import listed
    from hf_dense.data.passage_sources import load_source
    from hf_dense.search.index import build_index, update_index
    from hf_dense.search.index_building import cutting_in

    corpus, cutting = arguments.corpus, None
    if not holds_corpus(corpus):
        cutting = cutting_in(place)
        here = cutting and {**cutting, "tokenizer": _same_tokenizer(cutting, arguments.model)}
        corpus, counts = load_source(corpus, place, here)
        print(f"{arguments.corpus}{', read and cut as the index was' if cutting else ''}: {listed(counts)}")
    output = Output(place, arguments.overwrite, command_line(_without_question(arguments)))
    given = {"name": arguments.model, "origin": arguments.corpus, "cutting": cutting}
    given |= {name: getattr(arguments, name) for name in ("kind", "precision", "max_length", "batch_size")}
    if arguments.update:
        made = update_index(retriever, corpus, output, weight=arguments.weight, **given)
        print(f"{made.kept:,} passages kept, {made.encoded:,} encoded, {made.removed:,} removed")
        return
    is_new = arguments.overwrite or Manifest.load(place) is None  # else the weight is for what is asked now
    build_index(retriever, corpus, output, weight=arguments.weight if is_new else None, **given)


def _without_question(arguments: argparse.Namespace) -> argparse.Namespace:
    """The arguments without what was asked, which whoever is given the index is not to read."""
    words = list(getattr(arguments, "words", ()))
    if arguments.question in words:
        del words[-1 - words[::-1].index(arguments.question)]
    return argparse.Namespace(words=words)


def _same_tokenizer(cutting: Mapping[str, Any], model: str) -> str | None:
    """Where the tokenizer is that documents were cut with: beside the model, else where it was then.

    Raises:
        InputError: at neither place.
    """
    from hf_dense.data.passages import tokenizer_source

    named, wanted, why = cutting["tokenizer"], cutting.get("fingerprint"), ""
    if named is None:
        return None
    for place in (model, named) if wanted else (named,):  # an index of before has the name alone
        try:
            found = tokenizer_source(place)["tokenizer"].fingerprint
        except InputError:
            why = "which is not there now"
            continue
        if wanted in (None, found):
            return str(place)
        why = "where another tokenizer is now"
    raise InputError(
        f"Documents were cut to {cutting['length']} tokens of {named} for this index, {why}; cut them with hf-dense "
        "data passages --tokenizer, and name what it writes with --corpus."
    )


def _show(hits: Sequence[Hit]) -> None:
    for rank, hit in enumerate(hits, start=1):
        print(f"{rank:2d}. {hit.score:.3f}  {f'{hit.title} ({hit.id})' if hit.title else hit.id}")
        print(fill(hit.text, width=100, initial_indent="    ", subsequent_indent="    "))
    if not hits:
        print("No passage was found.")


def _prompt(finder: _Finder) -> None:
    """Answer the lines of standard input, until an empty one."""
    asking = sys.stdin.isatty()
    if asking:
        print(f"{len(finder.index):,} passages; ask a question per line, an empty line ends.")
    while question := _next_line("? " if asking else ""):
        _show(finder.find([question])[0])
        print(flush=True)


def _next_line(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except UnicodeDecodeError as error:
        raise InputError("A question is not text in UTF-8; send it in that encoding.") from error
    except (EOFError, KeyboardInterrupt):
        return ""


def _answer_all(finder: _Finder, out: Path, questions: dict[str, str]) -> None:
    """Write the hits of many questions, a line of JSON for each."""
    from tqdm.auto import tqdm

    started, rows = time.perf_counter(), list(questions.items())
    together = _TOGETHER if finder.reranker is None else _RERANKED
    with (
        plain_errors(out),
        replaced_file(out) as partial,
        partial.open("w", encoding="utf-8") as file,
        tqdm(total=len(rows), desc="Searching", unit=" questions") as bar,
    ):
        for start in range(0, len(rows), together):
            part = rows[start : start + together]
            found = finder.find([text for _, text in part])
            for (name, text), hits in zip(part, found, strict=True):
                row = {"id": name, "text": text, "hits": [asdict(hit) for hit in hits]}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            bar.update(len(part))
    seconds = time.perf_counter() - started
    print(f"{len(rows):,} questions searched for in {len(finder.index):,} passages in {seconds:.2f} s: {out}")
