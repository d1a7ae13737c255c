"""Retrieval quality on a dataset directory, measured by MTEB, kept per query."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import mteb
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from sentence_transformers import SentenceTransformer

from hf_dense.data.collections import load_corpus, load_qrels, load_queries
from hf_dense.errors import InputError
from hf_dense.evaluation.costs import CostMeter
from hf_dense.evaluation.measures import mean_metrics, score_queries
from hf_dense.evaluation.mteb_model import Recorded, SearchingRetriever
from hf_dense.evaluation.result import RESULT_FILE, RetrievalResult
from hf_dense.hub.loading import load_retriever
from hf_dense.search.first_stage import BM25
from hf_dense.storage.legacy import atomic_directory, check_replaceable

_SCORES_FILE: Final = "scores.json"
_BM25: Final = "mteb/baseline-bm25s"


def evaluate_retriever(
    model: str | Path | SentenceTransformer,
    dataset_dir: str | Path,
    split: str,
    *,
    name: str,
    output_dir: str | Path,
    batch_size: int = 64,
) -> RetrievalResult:
    """Search the whole corpus for every query of `split` with `mteb.evaluate`.

    Args:
        model: an exported directory, a Hub id, a loaded model, or `"bm25"` for MTEB's BM25 baseline
            (English stop words and stemmer).
        dataset_dir: a dataset directory, published form or BEIR folder; a document's text is title + " " + text.
        split: which qrels: train, dev or test.
        name: of the retriever, in results and tables.
        output_dir: receives `result.json`, MTEB's `TaskResult` in `scores.json`, and `rankings.parquet` (`query-id`,
            `corpus-id`, `rank` from 1 to 100, `score`), complete or not at all. The vectors of the corpus stand in
            `<output_dir>.partial` until then; a run that was killed goes on with them.
        batch_size: texts encoded at once.

    Returns:
        `METRICS` and `MORE_METRICS` (hf_dense.evaluation.measures), means and per query.

    Raises:
        InputError: nothing to load, a dataset without that split, a split without a relevant passage, or an
            `output_dir` that holds something else.
    """
    check_replaceable(output_dir, marker=RESULT_FILE)
    task = build_task(dataset_dir, split)
    return measure_task(model, task, "default", split, name=name, output_dir=output_dir, batch_size=batch_size)


def measure_task(
    model: str | Path | SentenceTransformer,
    task: AbsTaskRetrieval,
    subset: str,
    split: str,
    *,
    name: str,
    output_dir: str | Path,
    batch_size: int = 64,
) -> RetrievalResult:
    """Run one loaded MTEB task; see `evaluate_retriever` for the model, and for what is written and returned.

    Args:
        model: a directory, a Hub id, a loaded model, or `"bm25"`.
        task: with its data loaded.
        subset: of the task's data.
        split: of the judgements.
    """
    data = task.dataset[subset][split]
    qrels = {query: grades for query, grades in data["relevant_docs"].items() if any(g > 0 for g in grades.values())}
    retriever = model if model == BM25 else load_retriever(model)
    vectors = Path(f"{output_dir}.partial")
    dense = SearchingRetriever(retriever, name, vectors) if isinstance(retriever, SentenceTransformer) else None
    recorded = Recorded(dense or mteb.get_model(_BM25))
    with CostMeter(retriever) as meter:
        # No cache: MTEB's is keyed by model name, and would hand one local model the scores of another.
        results = mteb.evaluate(recorded, task, cache=None, co2_tracker=False, encode_kwargs={"batch_size": batch_size})
    rankings = recorded.rankings[subset, split]
    if task.ignore_identical_ids:  # MTEB drops them when it scores
        for query, ranking in rankings.items():
            ranking.pop(query, None)
    per_query = score_queries(qrels, rankings)
    origin = meter.describe(len(data["corpus"]), data["queries"]["text"][:], dense.find if dense else None)
    result = RetrievalResult(name, split, mean_metrics(per_query), per_query, meter.seconds, origin)
    with atomic_directory(output_dir) as work:
        result.save(work, rankings)
        results.task_results[0].to_disk(work / _SCORES_FILE)
    shutil.rmtree(vectors, ignore_errors=True)
    return result


def build_task(dataset_dir: str | Path, split: str) -> AbsTaskRetrieval:
    """Make an MTEB retrieval task of one split of a dataset directory, loaded and ready to evaluate.

    Raises:
        InputError: no such dataset or split, no query of the split has a relevant passage, one of them is empty, or a
            relevant passage is not in the corpus.
    """
    directory = Path(dataset_dir)
    qrels = {
        query: grades for query, grades in load_qrels(directory, split).items() if any(g > 0 for g in grades.values())
    }
    if not qrels:
        raise InputError(f"No query of split {split!r} in {directory} has a relevant passage.")
    queries = load_queries(directory).select_columns(["id", "text"])
    queries = queries.select([row for row, query in enumerate(queries["id"]) if query in qrels])
    if len(queries) < len(qrels):
        raise InputError(f"{directory} lacks the text of {len(qrels) - len(queries)} queries of split {split!r}.")
    corpus = load_corpus(directory).select_columns(["id", "title", "text"])
    check_asked(dict(zip(queries["id"], queries["text"], strict=True)), directory)
    relevant = {passage: query for query, grades in qrels.items() for passage, grade in grades.items() if grade > 0}
    for passage in relevant.keys() - set(corpus["id"][:]):
        raise InputError(
            f"The judgements of split {split!r} in {directory} name {passage!r} for query {relevant[passage]!r}, which "
            "is not in the corpus; complete the corpus or remove the judgement."
        )
    task = _LocalRetrieval(split)
    task.dataset = {
        "default": {split: {"corpus": corpus, "queries": queries, "relevant_docs": qrels, "top_ranked": None}}
    }
    task.data_loaded = True
    return task


def check_asked(queries: Mapping[str, str], origin: str | Path) -> None:
    """Refuse queries without words.

    Raises:
        InputError: one is empty.
    """
    for query, text in queries.items():
        if not text.strip():
            raise InputError(f"The query {query!r} of {origin} is empty; give its text or remove its judgements.")


class _LocalRetrieval(AbsTaskRetrieval):
    """A retrieval task whose data comes from a directory instead of the Hub."""

    def __init__(self, split: str) -> None:
        self.metadata = TaskMetadata(
            name="LocalRetrieval",
            description="Retrieval over a local dataset directory.",
            dataset={"path": "local/dataset", "revision": "local"},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=[split],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )
        super().__init__()

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Do nothing: `build_task` has put the data in place."""
