"""One way of measuring, for every protocol: a result is bound to the model and the data that it was measured on."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.data.collections import content_hash, load_qrels
from hf_dense.errors import InputError
from hf_dense.evaluation.costs import CostMeter
from hf_dense.evaluation.measures import mean_metrics
from hf_dense.evaluation.result import RANKS_KEPT, RetrievalResult
from hf_dense.hub.dimensions import cut_to
from hf_dense.hub.precision import Reading
from hf_dense.search.candidates import load_ranker
from hf_dense.search.fingerprints import model_source
from hf_dense.search.first_stage import BM25, Search
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.staged import Staged

logger = logging.getLogger(__name__)

KIND: Final = "evaluation"  # of output
AS_IT_IS: Final = Reading()

Rankings = Mapping[str, Mapping[str, float]]  # query id -> passage id -> score, higher is better


@dataclass(frozen=True)
class Found:
    """What a model found.

    Attributes:
        rankings: query id -> passage id -> score.
        search: what found them, where a whole corpus was searched.
        files: what else is kept: a function that writes it, by the name of the file.
    """

    rankings: Rankings
    search: Search | None = None
    files: Mapping[str, Callable[[Path], object]] = field(default_factory=dict)


class Protocol(ABC):
    """What is measured, its data loaded and checked; how a model ranks them; what rankings score.

    Args:
        split: of the judgements.
        sources: of the data; `collection` is one of them.
        queries: texts of those that are asked, by id.
        passages: how many are read.
        settings: what else the figures depend on.

    Attributes:
        said: what a report tells of a row beside the model's settings, by name.
    """

    name: ClassVar[str]
    models: ClassVar[tuple[type, ...]] = (str, SentenceTransformer)  # that can be measured; the string is `BM25`

    def __init__(
        self, split: str, sources: Mapping[str, Source], queries: Mapping[str, str], passages: int, **settings: Any
    ) -> None:
        self.split, self.sources, self.queries, self.passages = split, sources, queries, passages
        self.said: dict[str, str] = {}
        self.settings = {"protocol": self.name, "split": split, "ranks": RANKS_KEPT, **settings}

    @abstractmethod
    def rank(self, model: Any, folder: Path, batch_size: int) -> Found:
        """Rank passages for every query; `folder` keeps vectors for a run that is killed."""

    def passages_of(self, names: Iterable[str]) -> dict[str, list[str]]:
        """The ids of the passages that stand for what is ranked, by its id: by default they are what is ranked."""
        return {name: [name] for name in names}

    @abstractmethod
    def score(self, rankings: Rankings) -> dict[str, dict[str, float]]:
        """Metric -> query id -> value."""


def run_protocol(
    protocol: Protocol,
    model: str | Path | SentenceTransformer | CrossEncoder,
    out: str | os.PathLike[str] | Output,
    *,
    name: str,
    batch_size: int = 64,
    dimensions: int | None = None,
    reading: Reading = AS_IT_IS,
) -> RetrievalResult:
    """Measure a model; what was measured already is read.

    Args:
        protocol: with its data.
        model: an exported directory, a Hub id, a loaded retriever or cross-encoder, or `"bm25"` (stop words and
            stemmer of the passages' language).
        out: receives `result.json` and `rankings.parquet`, complete or not at all. A run that was killed goes on with
            the vectors it had.
        name: of the model, in results and tables.
        batch_size: texts or pairs that are read at once.
        dimensions: to how many of the first ones the model's vectors are cut.
        reading: the precision that the model computes in, and the longest text of a retriever; the result is bound to
            both.

    Returns:
        Means over the queries, and values per query.

    Raises:
        InputError: nothing to load, a kind of model that the protocol does not measure, vectors that cannot be cut so,
            texts longer than the model reads, or `out` is not ours or holds the evaluation of something else.
    """
    loaded = BM25 if model == BM25 else load_ranker(model)
    with cut_to(loaded, dimensions, str(model)):
        source = model_source(loaded, model)
        settings = {} if dimensions is None else {"dimensions": dimensions}
        if not isinstance(loaded, str):
            if isinstance(loaded, CrossEncoder):  # whose pairs stay as long as they are
                reading = replace(reading, max_length=None)
            settings |= reading.settings
            loaded = reading.apply(loaded)
        return _run_loaded(protocol, loaded, source, settings, Output.of(out), name, batch_size)


def _run_loaded(
    protocol: Protocol, model: Any, source: Source, more: Mapping[str, Any], out: Output, name: str, batch_size: int
) -> RetrievalResult:
    """The same of a loaded model; `more` are settings beside the protocol's."""
    if not isinstance(model, protocol.models):
        raise InputError(
            f"{source.name} cannot be measured by the protocol {protocol.name!r}: cross-encoders order candidates or "
            "the first passages of a retriever (--rerank), BM25 searches."
        )

    def measure(work: Staged) -> RetrievalResult:
        with CostMeter(model) as meter:
            found = protocol.rank(model, work.pieces, batch_size)
            per_query = protocol.score(found.rankings)
        origin = meter.describe(protocol.passages, list(protocol.queries.values()), found.search)
        if isinstance(described := origin.get("settings"), dict):
            described |= protocol.said
        if work.resumed:  # what a run that was killed spent is not known
            origin |= {"resumed": True, "tokens": None}
        result = RetrievalResult(name, protocol.split, mean_metrics(per_query), per_query, meter.seconds, origin)
        result.save(work.result, found.rankings)
        for file, write in found.files.items():
            write(work.result / file)
        return result

    return measure_once(out, {**protocol.settings, **more}, {"model": source, **protocol.sources}, name, measure)


def measure_once(
    out: str | os.PathLike[str] | Output,
    settings: Mapping[str, Any],
    sources: Mapping[str, Source],
    name: str,
    measure: Callable[[Staged], RetrievalResult],
    *,
    resumable: bool = True,
) -> RetrievalResult:
    """Write what `measure` finds and leaves in its `result`, or read what was found before of the same things."""
    output = Output.of(out)
    with output.stage(KIND, settings, sources, resumable=resumable) as work:
        if work.done:
            logger.info("%s is there already", output.path)
        else:
            found = measure(work)
            work.facts |= {"seconds": found.seconds, "queries": len(next(iter(found.per_query.values()), ()))}
    return replace(RetrievalResult.load(output.path), name=name)


def collection_source(collection: str | os.PathLike[str]) -> dict[str, Source]:
    """The data files of a collection, as a source."""
    return {"collection": Source(str(collection), content_hash(collection))}


def relevant_qrels(collection: str | os.PathLike[str], split: str, what: str = "passage") -> dict[str, dict[str, int]]:
    """The judgements of a split, of the queries that have something relevant: a passage, or `what` is judged.

    Raises:
        InputError: no query has.
    """
    qrels = {query: grades for query, grades in load_qrels(collection, split).items() if max(grades.values()) > 0}
    if not qrels:
        raise InputError(f"No query of split {split!r} in {collection} has a relevant {what}.")
    return qrels


def relevant(qrels: Mapping[str, Mapping[str, int]]) -> dict[str, list[str]]:
    """The passages whose grade is above 0, by the id of their query."""
    return {query: [name for name, grade in grades.items() if grade > 0] for query, grades in qrels.items()}


def asked_texts(
    judged: Mapping[str, Iterable[str]],
    queries: Dataset,
    known: Container[str],
    collection: str | os.PathLike[str],
    *,
    empty: bool = False,
) -> dict[str, str]:
    """The texts of the queries that are judged, by id, once the judgements are found to be of this collection.

    Args:
        judged: ids of passages, or of documents, by the id of their query.
        queries: columns `id` and `text`.
        known: ids of the passages that there are.
        collection: named in errors.
        empty: whether queries may be without words.

    Raises:
        InputError: a query has no text, or a passage is not known.
    """
    texts = dict(zip(queries["id"], queries["text"], strict=True))
    for query, passages in judged.items():
        if query not in texts:
            raise InputError(f"The judgements of {collection} name the query {query!r}; the queries lack it.")
        if not empty and not texts[query].strip():
            raise InputError(f"The query {query!r} of {collection} is empty; give its text or remove its judgements.")
        for name in passages:
            if name not in known:
                raise InputError(
                    f"The judgements of {collection} name {name!r} for query {query!r}, which is not in the corpus; "
                    "complete the corpus or remove the judgement."
                )
    return {query: texts[query] for query in judged}
