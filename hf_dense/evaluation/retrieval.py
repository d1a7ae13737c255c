"""Retrieval quality on a dataset directory, measured by MTEB, kept per query."""

from __future__ import annotations

import json
import re
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mteb
import pyarrow as pa
import pytrec_eval
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from pyarrow import parquet
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from hf_dense.data.collections import load_corpus, load_qrels, load_queries
from hf_dense.errors import InputError
from hf_dense.evaluation.provenance import describe_run
from hf_dense.files import atomic_directory
from hf_dense.hub.loading import load_retriever
from hf_dense.replacing import check_replaceable

BM25 = "bm25"
METRICS = ("ndcg@10", "mrr@10", "recall@100")  # what tables show
MORE_METRICS = ("recall@50", "recall@1000")
RESULT_FILE, RANKINGS_FILE = "result.json", "rankings.parquet"
_SCORES_FILE = "scores.json"
_RANKS_KEPT = 100
_TIMED = 20  # queries


@dataclass(frozen=True)
class RetrievalResult:
    """What one retriever scored on one split.

    Attributes:
        name: of the retriever, as the caller gave it.
        split: of the qrels.
        metrics: `METRICS` and `MORE_METRICS`, as trec_eval defines them: fractions, means over the queries.
        per_query: for each metric, query id -> value.
        seconds: wall-clock time of encoding, search and scoring.
        origin: what else is known: `commit`, `hardware`, `date`, `passages` encoded, `dimensions` of a vector, `tokens`
            read, `query_seconds` that one query takes to encode, and `peak_memory`, bytes of main memory that the
            process ever had.
    """

    name: str
    split: str
    metrics: dict[str, float]
    per_query: dict[str, dict[str, float]]
    seconds: float
    origin: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def load(cls, directory: str | Path) -> RetrievalResult:
        """Read back what `evaluate_retriever` wrote in `directory`.

        Raises:
            InputError: no result there.
        """
        path = Path(directory) / RESULT_FILE
        if not path.is_file():
            raise InputError(f"There is no evaluation result {path}.")
        return cls(**json.loads(path.read_text(encoding="utf-8")))


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
            `corpus-id`, `rank` from 1 to 100, `score`), complete or not at all.
        batch_size: texts encoded at once.

    Returns:
        The metrics and their values per query.

    Raises:
        InputError: nothing to load, a dataset without that split, a split without a relevant passage, or an
            `output_dir` that holds something else.
    """
    check_replaceable(output_dir, marker=RESULT_FILE)
    retriever = load_model(model, name)
    task = build_task(dataset_dir, split)
    return measure_task(retriever, task, "default", split, name=name, output_dir=output_dir, batch_size=batch_size)


def load_model(model: str | Path | SentenceTransformer, name: str) -> Any:
    """A retriever that MTEB takes, called `name` there.

    Raises:
        InputError: nothing to load.
    """
    retriever = mteb.get_model("mteb/baseline-bm25s") if model == BM25 else load_retriever(model)
    if isinstance(retriever, SentenceTransformer):
        retriever.model_card_data.model_name = f"local/{_slug(name)}"
    return retriever


def measure_task(
    retriever: Any,
    task: AbsTaskRetrieval,
    subset: str,
    split: str,
    *,
    name: str,
    output_dir: str | Path,
    batch_size: int = 64,
) -> RetrievalResult:
    """Run one loaded MTEB task; see `evaluate_retriever` for what is written and returned.

    Args:
        retriever: from `load_model`.
        task: with its data loaded.
        subset: of the task's data.
        split: of the judgements.
    """
    qrels = {
        query: graded
        for query, graded in task.dataset[subset][split]["relevant_docs"].items()
        if any(grade > 0 for grade in graded.values())
    }
    started = time.perf_counter()
    with atomic_directory(output_dir) as work, _counted_tokens(retriever) as tokens:
        # No cache: MTEB's is keyed by model name, and would hand one local model the scores of another.
        results = mteb.evaluate(
            retriever,
            task,
            cache=None,
            prediction_folder=work,
            co2_tracker=False,
            encode_kwargs={"batch_size": batch_size},
        )
        seconds = time.perf_counter() - started
        rankings = _take_rankings(work / task.prediction_file_name, subset, split)
        if task.ignore_identical_ids:  # MTEB drops them when it scores, after it has written its predictions
            for query, ranking in rankings.items():
                ranking.pop(query, None)
        per_query = score_queries(qrels, rankings)
        origin = {**describe_run(), "passages": len(task.dataset[subset][split]["corpus"])}
        if isinstance(retriever, SentenceTransformer):
            origin |= {"dimensions": retriever.get_embedding_dimension(), "tokens": sum(tokens)}
            origin["query_seconds"] = _time_queries(retriever, task.dataset[subset][split]["queries"][:_TIMED]["text"])
        origin["peak_memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        result = RetrievalResult(name, split, mean_metrics(per_query), per_query, seconds, origin)
        write_rankings(rankings, work / RANKINGS_FILE)
        (work / RESULT_FILE).write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")
        results.task_results[0].to_disk(work / _SCORES_FILE)
    return result


@contextmanager
def _counted_tokens(retriever: Any) -> Iterator[list[int]]:
    """The tokens of each batch that a retriever reads meanwhile, without padding; BM25 reads none."""
    read: list[int] = []

    def count(_: nn.Module, given: tuple[dict[str, Tensor]]) -> None:
        if "attention_mask" in given[0]:
            read.append(int(given[0]["attention_mask"].sum()))

    hook = retriever[0].register_forward_pre_hook(count) if isinstance(retriever, SentenceTransformer) else None
    try:
        yield read
    finally:
        if hook is not None:
            hook.remove()


def _time_queries(retriever: SentenceTransformer, queries: Sequence[str]) -> float:
    """Seconds that a query takes to encode, one at a time, in the mean."""
    started = time.perf_counter()
    for query in queries:
        retriever.encode_query(query, show_progress_bar=False)
    return (time.perf_counter() - started) / len(queries)


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


def score_queries(
    qrels: Mapping[str, Mapping[str, int]], rankings: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Compute each metric for each query, with the ties broken as trec_eval does (by id, descending).

    Args:
        qrels: query id -> passage id -> grade; above 0 is relevant.
        rankings: query id -> passage id -> score, higher is better.

    Returns:
        metric -> query id -> value; a query of `qrels` without a ranking counts 0.

    >>> scores = score_queries({"q": {"a": 1}}, {"q": {"b": 2.0, "a": 1.0}})
    >>> scores["mrr@10"], scores["recall@100"]
    ({'q': 0.5}, {'q': 1.0})
    """
    evaluator = pytrec_eval.RelevanceEvaluator(
        {query: dict(grades) for query, grades in qrels.items()}, {"ndcg_cut.10", "recip_rank", "recall.50,100,1000"}
    )
    measured = evaluator.evaluate({query: dict(ranking) for query, ranking in rankings.items()})
    values: dict[str, dict[str, float]] = {metric: dict.fromkeys(qrels, 0.0) for metric in (*METRICS, *MORE_METRICS)}
    for query, scores in measured.items():
        values["ndcg@10"][query] = scores["ndcg_cut_10"]
        values["mrr@10"][query] = scores["recip_rank"] if scores["recip_rank"] >= 0.1 else 0.0
        for depth in (50, 100, 1000):
            values[f"recall@{depth}"][query] = scores[f"recall_{depth}"]
    return values


def mean_metrics(per_query: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Means over the queries of what `score_queries` gives."""
    return {metric: sum(values.values()) / len(values) for metric, values in per_query.items()}


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


def _take_rankings(predictions: Path, subset: str, split: str) -> dict[str, dict[str, float]]:
    """Read MTEB's predictions, the top 1,000 of each query, and remove their large file."""
    rankings: dict[str, dict[str, float]] = json.loads(predictions.read_text(encoding="utf-8"))[subset][split]
    predictions.unlink()
    return rankings


def write_rankings(rankings: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Keep the first 100 passages of each query, best first."""
    rows = [
        (query, passage, rank, score)
        for query, ranking in rankings.items()
        for rank, (score, passage) in enumerate(
            sorted(((score, passage) for passage, score in ranking.items()), reverse=True)[:_RANKS_KEPT], start=1
        )
    ]
    names = {"query-id": pa.string(), "corpus-id": pa.string(), "rank": pa.int32(), "score": pa.float64()}
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], pa.schema(list(names.items())))
    parquet.write_table(table, path)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)
