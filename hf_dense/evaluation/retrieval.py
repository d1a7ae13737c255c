"""Retrieval of passages, searched and scored by MTEB, kept per query."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import mteb
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.types import EncodeKwargs
from sentence_transformers import SentenceTransformer

from hf_dense.data.collections import load_corpus, load_queries
from hf_dense.data.languages import Language, language_of
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.errors import InputError
from hf_dense.evaluation.measures import score_queries
from hf_dense.evaluation.mteb_model import ComposedTexts, Recorded, SearchingRetriever
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.runner import (
    AS_IT_IS,
    Found,
    Protocol,
    Rankings,
    asked_texts,
    collection_source,
    relevant,
    relevant_qrels,
    run_protocol,
)
from hf_dense.evaluation.tasks import drops_queries
from hf_dense.hub.precision import Reading
from hf_dense.storage.fingerprints import fingerprint_rows, fingerprint_values
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

_SUBSET: Final = "default"  # of a local task
SCORES_FILE: Final = "scores.json"
IDENTICAL_IDS: Final = "identical_ids"  # setting of local tasks that drop hits with the id of their query
_BM25: Final = "mteb/baseline-bm25s"


class Passages(Protocol):
    """Passages of a whole corpus, found; MTEB's own scores, which count what BM25 has not found, are in `scores.json`.

    Args:
        task: of MTEB, with its data loaded.
        split: of the judgements; queries with a relevant passage count.
        sources: the data; the rows that the task has loaded by default.
        settings: what else the figures depend on.

    Raises:
        InputError: the task has several parts.
    """

    name = "passages"

    def __init__(
        self, task: AbsTaskRetrieval, split: str, sources: Mapping[str, Source] | None = None, **settings: Any
    ) -> None:
        subset, *more = task.dataset
        if more:
            raise InputError(
                f"{task.metadata.name} has {len(more) + 1} parts ({subset}, {more[0]}, ...), each a collection of its "
                "own; give directories of those that are meant."
            )
        self.task, self.place = task, (subset, split)
        data: Any = task.dataset[subset][split]
        judged = data["relevant_docs"].items()
        self.corpus = data["corpus"]
        self.qrels = {query: grades for query, grades in judged if any(grade > 0 for grade in grades.values())}
        asked = dict(zip(data["queries"]["id"], data["queries"]["text"], strict=True))
        known = sources or {"collection": Source(task.metadata.name, _fingerprint_data(data))}
        super().__init__(split, known, asked, len(self.corpus), **settings)

    @classmethod
    def load(cls, collection: str | os.PathLike[str], split: str) -> Self:
        """Of a collection, published form or BEIR folder; a passage's text is title + " " + text.

        Where its directory is called like a data set of MTEB's that drops a hit with the id of its query, so does this.
        """
        task = build_task(collection, split)
        settings = {IDENTICAL_IDS: "dropped"} if task.ignore_identical_ids else {}
        return cls(task, split, collection_source(collection), **settings)

    def rank(self, model: Any, folder: Path, batch_size: int) -> Found:
        """The first 1,000 passages of each query."""
        dense = SearchingRetriever(model, folder) if isinstance(model, SentenceTransformer) else None
        recorded = Recorded(dense or ComposedTexts(mteb.get_model(_BM25)))
        options = EncodeKwargs(batch_size=batch_size)
        # No cache: MTEB's is keyed by model name, and would hand one local model the scores of another.
        results = mteb.evaluate(recorded, self.task, cache=None, co2_tracker=False, encode_kwargs=options)
        rankings = recorded.rankings[self.place]
        if self.task.ignore_identical_ids:  # MTEB drops them when it scores
            for query, ranking in rankings.items():
                ranking.pop(query, None)
        if dense is None:  # MTEB's BM25 goes on with passages that have no word of the query
            rankings = {query: {name: by for name, by in of.items() if by > 0} for query, of in rankings.items()}
        return Found(rankings, dense.find if dense else None, {SCORES_FILE: results.task_results[0].to_disk})

    def score(self, rankings: Rankings) -> dict[str, dict[str, float]]:
        """`METRICS` and `MORE_METRICS` (hf_dense.evaluation.measures)."""
        return score_queries(self.qrels, rankings)


def evaluate_retriever(
    model: str | Path | SentenceTransformer,
    collection: str | os.PathLike[str],
    split: str,
    *,
    name: str,
    out: str | os.PathLike[str] | Output,
    batch_size: int = 64,
    reading: Reading = AS_IT_IS,
) -> RetrievalResult:
    """Measure how well a model finds passages, with `mteb.evaluate`: see `Passages` and `run_protocol`."""
    protocol = Passages.load(collection, split)
    return run_protocol(protocol, model, out, name=name, batch_size=batch_size, reading=reading)


def build_task(collection: str | os.PathLike[str], split: str) -> AbsTaskRetrieval:
    """Make an MTEB retrieval task of one split of a collection, loaded and ready to evaluate.

    Raises:
        InputError: no such collection or split, no query of the split has a relevant passage, one of them is empty,
            or a relevant passage is not in the corpus.
    """
    qrels = relevant_qrels(collection, split)
    queries = load_queries(collection).select_columns(["id", "text"])
    corpus = load_corpus(collection).select_columns(["id", "title", "text"])
    asked_texts(relevant(qrels), queries, set(corpus["id"][:]), collection)
    queries = queries.select([row for row, query in enumerate(queries["id"]) if query in qrels])
    task = _LocalRetrieval(split, language_of(PassageTexts(corpus)))
    task.ignore_identical_ids = drops_queries(f"{Path(collection).resolve().name}-{split}")
    task.dataset = {
        _SUBSET: {split: {"corpus": corpus, "queries": queries, "relevant_docs": qrels, "top_ranked": None}}
    }
    task.data_loaded = True
    return task


def _fingerprint_data(data: Mapping[str, Any]) -> str:
    rows = {name: fingerprint_rows(data[name], data[name].column_names) for name in ("corpus", "queries")}
    return fingerprint_values({**rows, "judgements": data["relevant_docs"], "candidates": data.get("top_ranked")})


class _LocalRetrieval(AbsTaskRetrieval):
    """A retrieval task whose data comes from a directory instead of the Hub."""

    def __init__(self, split: str, language: Language) -> None:
        self.metadata = TaskMetadata(
            name="LocalRetrieval",
            description="Retrieval over a local dataset directory.",
            dataset={"path": "local/dataset", "revision": "local"},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=[split],
            eval_langs=[language.tag],
            main_score="ndcg_at_10",
        )
        super().__init__()

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Do nothing: `build_task` has put the data in place."""
