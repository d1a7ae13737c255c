"""What a cross-encoder, or another retriever, makes of a retriever's ranking."""

from __future__ import annotations

import shutil
from pathlib import Path

from mteb.abstasks.retrieval import AbsTaskRetrieval
from pyarrow import parquet
from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.errors import InputError
from hf_dense.evaluation.costs import CostMeter
from hf_dense.evaluation.measures import mean_metrics, score_queries
from hf_dense.evaluation.result import RANKINGS_FILE, RESULT_FILE, RetrievalResult
from hf_dense.evaluation.retrieval import build_task
from hf_dense.search.candidates import candidate_texts, load_ranker, rank_candidates
from hf_dense.storage.legacy import atomic_directory, check_replaceable


def evaluate_reranker(
    reranker: str | Path | CrossEncoder | SentenceTransformer,
    first_stage: str | Path,
    dataset: str | Path | AbsTaskRetrieval,
    *,
    name: str,
    output_dir: str | Path,
    depth: int = 100,
    batch_size: int = 64,
) -> RetrievalResult:
    """Order the best passages of an earlier evaluation anew, and measure that.

    Args:
        reranker: a cross-encoder (a directory, a Hub id or a loaded one), or a retriever, whose similarities order the
            passages then (SEED-Encoder's columns "Rerank").
        first_stage: what `evaluate_retriever` or `measure_task` wrote; its split is measured.
        dataset: what was searched: the directory of a collection, or an MTEB task with its data loaded.
        name: of the result, in tables.
        output_dir: receives `result.json` and `rankings.parquet`, complete or not at all. The vectors of a retriever
            stand in `<output_dir>.partial` until then; a run that was killed goes on with them.
        depth: passages of a query that are read, at most the 100 that an evaluation keeps.
        batch_size: pairs read at once.

    Returns:
        The metrics and their values per query; `recall@100` is the first stage's where `depth` is 100.

    Raises:
        InputError: no evaluation there, or not one of passages, or of another dataset, or nothing to load.
    """
    check_replaceable(output_dir, marker=RESULT_FILE)
    before = RetrievalResult.load(first_stage)
    if "mrr@10" not in before.per_query:
        raise InputError(f"{first_stage} cannot be re-ranked: it is not an evaluation of passages.")
    candidates: dict[str, list[str]] = {}
    for row in parquet.read_table(Path(first_stage) / RANKINGS_FILE).to_pylist():
        if row["rank"] <= depth:
            candidates.setdefault(row["query-id"], []).append(row["corpus-id"])
    task = dataset if isinstance(dataset, AbsTaskRetrieval) else build_task(dataset, before.split)
    data = next(iter(task.dataset.values()))[before.split]
    corpus, queries = data["corpus"], data["queries"]
    wanted = {passage for found in candidates.values() for passage in found}
    texts = candidate_texts(corpus, wanted)
    judged = data["relevant_docs"]
    if len(texts) < len(wanted) or not before.per_query["mrr@10"].keys() <= judged.keys():
        raise InputError(
            f"{first_stage} is an evaluation of something else: it has passages or queries that are not there."
        )
    words = dict(zip(queries["id"], queries["text"], strict=True))
    ranker, vectors = load_ranker(reranker), Path(f"{output_dir}.partial")
    qrels = {query: judged[query] for query in before.per_query["mrr@10"]}
    with CostMeter(ranker) as meter:
        rankings = rank_candidates(ranker, words, candidates, texts, vectors, batch_size)
        per_query = score_queries(qrels, rankings)
    origin = meter.describe(len(texts), [words[query] for query in qrels])
    result = RetrievalResult(name, before.split, mean_metrics(per_query), per_query, meter.seconds, origin)
    with atomic_directory(output_dir) as work:
        result.save(work, rankings)
    shutil.rmtree(vectors, ignore_errors=True)
    return result
