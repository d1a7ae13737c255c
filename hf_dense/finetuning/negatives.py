"""Training lists with hard negatives: what a search ranks high for a query and nobody judged relevant; by BM25."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from datasets import Dataset
from numpy.typing import NDArray
from pyarrow import parquet
from tqdm.auto import tqdm

from hf_dense.data.cards import write_card
from hf_dense.data.collections import content_hash, judged_indices, load_corpus, load_qrels, query_texts
from hf_dense.data.duplicates import exact_hashes, near_hashes
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.data.schemas import TRAINING
from hf_dense.data.splits import plain_query
from hf_dense.errors import InputError
from hf_dense.finetuning.lists import KIND
from hf_dense.search.bm25 import LexicalIndex
from hf_dense.search.dense import Floats, Indices
from hf_dense.search.fingerprints import model_source
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import is_main_process
from hf_dense.storage.staged import Staged

DEPTH: Final = 200
SPARE: Final = 50  # hits read beyond the depth, for those that are left out
_QUERIES = 2000  # searched at once
_ROWS = 1000  # written, and hashed, at once

Search = Callable[[list[str], int], tuple[Floats, Indices]]
Filter = Callable[[str, Floats, Indices], NDArray[np.bool_]]


@dataclass(frozen=True)
class Judged:
    """A collection with the relevant passages of its queries.

    Attributes:
        split: of the judgements.
        ids: of the passages.
        corpus: the passages.
        queries: query id -> text.
        positives: query id -> the indices of each relevant passage, or of all that a relevant document was cut into;
            of queries that have one.
        source: the collection.
    """

    split: str
    ids: list[str]
    corpus: Dataset
    queries: dict[str, str]
    positives: dict[str, list[list[int]]]
    source: Source

    @property
    def texts(self) -> PassageTexts:
        """Title and text of every passage."""
        return PassageTexts(self.corpus)

    def relevant(self, query: str) -> set[int]:
        """The indices of what is relevant for a query, or for another one of the same words."""
        return self._asked[plain_query(self.queries[query])]

    @cached_property
    def _asked(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for query, positives in self.positives.items():
            found.setdefault(plain_query(self.queries[query]), set()).update(chain(*positives))
        return found


@dataclass(frozen=True)
class Origin:
    """Where lists come from, for their card (see `write_card`), and what the scores of their passages are."""

    title: str
    about: str
    negative_scores: str
    positive_scores: str = "empty"


def build_lexical_negatives(
    collection: str | os.PathLike[str],
    out: str | os.PathLike[str] | Output,
    split: str = "train",
    depth: int = DEPTH,
    skip: int = 0,
) -> Path:
    """Write a training list for every judged query: its positives, and what BM25 ranks highest among the rest.

    Args:
        collection: see `hf_dense.data.collections`.
        out: holds `negatives/<split>.parquet` with the columns of `TRAINING`, and a card.
        split: of the judgements.
        depth: greatest number of negatives of a query. Positives, also those of a query with the same words, passages
            equal or nearly equal to one, and passages without a word of the query are none.
        skip: leaves out so many of the highest hits that are not positives.

    Returns:
        `out` as a path.

    Raises:
        InputError: the collection cannot be read, or judgements name unknown queries or passages, an option is out of
            range, or something else is in `out`.
    """
    output, judged, filters = Output.of(out), load_judged(collection, split, depth), skipping(skip)
    origin = Origin(
        title=f"BM25 negatives of {Path(collection).name}",
        about=f"For every judged query of the split {split} the {depth} passages that BM25 (title and text, by the "
        "stems of their language) ranks highest, without its positives, those of a query of the same words, and "
        "passages equal or nearly equal to one.",
        negative_scores="BM25 scores of the negatives",
    )
    settings = {"search": "BM25", "BM25": model_source("bm25").fingerprint, "split": split, "depth": depth}
    settings |= {"skip": skip} if skip else {}
    with output.stage(KIND, settings, {"collection": judged.source}) as work:
        if not work.done and is_main_process():
            started = time.perf_counter()
            index = LexicalIndex.build(judged.texts, work.pieces)

            def search(names: list[str], hits: int) -> tuple[Floats, Indices]:
                return index.find([judged.queries[name] for name in names], hits)

            write_lists(work, judged, depth, search, origin, filters, spare=skip + SPARE, together=_QUERIES)
            work.facts["seconds"] = time.perf_counter() - started
    return output.path


def skipping(skip: int) -> dict[str, Filter]:
    """What leaves out so many of the highest hits, by its name on the card.

    Raises:
        InputError: the number is below 0.
    """
    if skip < 0:
        raise InputError(f"skip is {skip}; it is a number of hits, 0 or more.")
    return {f"the {skip} highest": lambda name, scores, indices: np.arange(len(indices)) >= skip} if skip else {}


def load_judged(collection: str | os.PathLike[str], split: str, depth: int = DEPTH) -> Judged:
    """Read what lists of `depth` negatives are made of.

    Raises:
        InputError: the collection cannot be read, judgements name unknown queries or passages, or no negatives are
            asked for.
    """
    if depth < 1:
        raise InputError(f"depth is {depth}; ask for at least one negative.")
    corpus, words, qrels = load_corpus(collection), query_texts(collection), load_qrels(collection, split)
    positives = _positives(qrels, words, judged_indices(corpus), split)
    source = Source(str(collection), content_hash(collection))
    return Judged(split, corpus["id"][:], corpus, words, positives, source)


def write_lists(
    work: Staged,
    judged: Judged,
    depth: int,
    search: Search,
    origin: Origin,
    filters: Mapping[str, Filter] | None = None,
    *,
    spare: int = SPARE,
    together: int,
) -> None:
    """Write the training lists of all judged queries, and a card that counts what was left out, and why.

    Args:
        work: whose result receives them, and whose facts receive the counts.
        depth: greatest number of negatives of a query.
        search: given ids of queries and a number of hits, finds the (queries, hits) scores of passages, best first,
            and their indices, -1 for none.
        origin: for the card.
        filters: named by what they leave out; given the id of a query and the (hits,) scores and indices that are left,
            one tells which to keep. What is relevant, and what is equal or nearly equal to it, is left out before.
        spare: hits read beyond the depth and the positives, for those that are left out.
        together: queries searched at once; fewer where one has so many positives that the hits would fill the memory.
    """
    names, file = list(judged.positives), f"negatives/{judged.split}.parquet"
    counts = Counter(queries=len(names))
    filters = {"positives and their copies": _Forbidden(judged).other, **(filters or {})}
    (work.result / "negatives").mkdir()
    with (
        parquet.ParquetWriter(work.result / file, TRAINING.arrow_schema) as writer,
        tqdm(total=len(names), desc="Searching", unit=" queries") as bar,
    ):
        for part in _parts(judged, depth + spare, together):
            most = max(len(judged.relevant(name)) for name in part)
            found = zip(part, *search(part, depth + most + spare), strict=True)
            while rows := [_row(judged, *hits, filters, depth, counts) for hits in islice(found, _ROWS)]:
                writer.write_table(pa.Table.from_pylist(rows, schema=TRAINING.arrow_schema))
                bar.update(len(rows))
    write_lists_card(work, origin, dict(sorted(counts.items())), file)


def _parts(judged: Judged, hits: int, together: int) -> Iterator[list[str]]:
    """The queries that are searched at once, in their order, all to the depth of the one with the most positives."""
    room, part, most = together * (hits + SPARE), list[str](), 0
    for name in judged.positives:
        own = len(judged.relevant(name))
        if part and (len(part) == together or (len(part) + 1) * (hits + max(most, own)) > room):
            yield part
            part, most = [], 0
        part.append(name)
        most = max(most, own)
    yield part


def write_lists_card(work: Staged, origin: Origin, counts: dict[str, int], file: str) -> None:
    """Write the card of training lists, which stand in one file of the result, and keep the counts."""
    work.facts["counts"] = counts
    write_card(
        work,
        title=origin.title,
        about=origin.about,
        columns={
            "query_id": "id of the query",
            "query": "its text",
            "positives": "ids of the relevant passages",
            "negatives": "ids of the negatives, the hardest first",
            "positive_scores": origin.positive_scores,
            "negative_scores": origin.negative_scores,
        },
        rows=counts["queries"],
        configs={Path(file).stem: file},
    )


def _row(
    judged: Judged,
    name: str,
    scores: Floats,
    indices: Indices,
    filters: Mapping[str, Filter],
    depth: int,
    counts: Counter[str],
) -> dict[str, Any]:
    """The list of a query, and what was left out, counted."""
    there = indices >= 0
    scores, indices = scores[there], indices[there]
    for reason, keep in filters.items():
        kept = keep(name, scores, indices)
        counts[f"hits left out: {reason}"] += len(indices) - int(kept.sum())
        scores, indices = scores[kept], indices[kept]
    counts["negatives"] += len(indices[:depth])
    counts["queries with fewer negatives than asked"] += len(indices) < depth
    return {
        "query_id": name,
        "query": judged.queries[name],
        "positives": [judged.ids[parts[0]] for parts in judged.positives[name]],
        "negatives": [judged.ids[index] for index in indices[:depth]],
        "positive_scores": [],
        "negative_scores": scores[:depth].tolist(),
    }


class _Forbidden:
    """Passages that are no negatives of a query: those that are relevant for its words, and what says the same."""

    def __init__(self, judged: Judged) -> None:
        texts = judged.texts
        hashes = []
        for start in range(0, len(texts), _ROWS):
            part = texts[start : start + _ROWS]
            hashes.append(np.vstack([exact_hashes(part), near_hashes(part).T]))
        self.judged = judged
        self.marks = np.hstack(hashes)  # (hashes, passages): of one mark are passages that are equal, or nearly so

    def other(self, name: str, scores: Floats, indices: Indices) -> NDArray[np.bool_]:
        """(hits,) which passages are neither relevant nor equal or nearly equal to one that is."""
        relevant = list(self.judged.relevant(name))
        same = [np.isin(marks[indices], marks[relevant]) for marks in self.marks]
        found: NDArray[np.bool_] = ~np.any(same, axis=0)
        return found


def _positives(
    qrels: dict[str, dict[str, int]], words: dict[str, str], indices: dict[str, list[int]], split: str
) -> dict[str, list[list[int]]]:
    """Query id -> the indices of each of its relevant passages or documents, for queries that have one."""
    found: dict[str, list[list[int]]] = {}
    for query, graded in qrels.items():
        relevant = [passage for passage, grade in graded.items() if grade > 0]
        if query not in words:
            raise InputError(
                f"The judgements of split {split!r} name the query {query!r}, which the queries lack; add it there or "
                "remove its judgements."
            )
        unknown = [passage for passage in relevant if passage not in indices]
        if unknown:
            raise InputError(
                f"The judgements of split {split!r} name the passage {unknown[0]!r} for query {query!r}, which the "
                "corpus lacks; complete the corpus or remove the judgement."
            )
        if relevant:
            found[query] = [indices[passage] for passage in relevant]
    if not found:
        raise InputError(f"No query of split {split!r} has a relevant passage.")
    return found
