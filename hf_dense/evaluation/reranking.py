"""What a cross-encoder, or another retriever, makes of a retriever's ranking."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np
from mteb.abstasks.retrieval import AbsTaskRetrieval
from pyarrow import parquet
from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.errors import InputError
from hf_dense.evaluation.retrieval import (
    RANKINGS_FILE,
    RESULT_FILE,
    RetrievalResult,
    build_task,
    mean_metrics,
    score_queries,
    write_rankings,
)
from hf_dense.files import atomic_directory
from hf_dense.finetuning.scoring import rerank
from hf_dense.hub.loading import is_cross_encoder, load_retriever
from hf_dense.replacing import check_replaceable
from hf_dense.vectors import encode_corpus, encode_queries


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
        output_dir: receives `result.json` and `rankings.parquet`, complete or not at all.
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
    started = time.perf_counter()
    candidates: dict[str, list[str]] = {}
    for row in parquet.read_table(Path(first_stage) / RANKINGS_FILE).to_pylist():
        if row["rank"] <= depth:
            candidates.setdefault(row["query-id"], []).append(row["corpus-id"])
    task = dataset if isinstance(dataset, AbsTaskRetrieval) else build_task(dataset, before.split)
    data = next(iter(task.dataset.values()))[before.split]
    corpus, queries = data["corpus"], data["queries"]
    wanted = {passage for found in candidates.values() for passage in found}
    places = {name: at for at, name in enumerate(corpus["id"][:]) if name in wanted}
    judged = data["relevant_docs"]
    if len(places) < len(wanted) or not before.per_query["mrr@10"].keys() <= judged.keys():
        raise InputError(
            f"{first_stage} is an evaluation of something else: it has passages or queries that are not there."
        )
    rows = corpus[list(places.values())]
    titles = rows.get("title", [""] * len(places))
    texts = {
        passage: f"{title} {text}".strip() for passage, title, text in zip(places, titles, rows["text"], strict=True)
    }
    words = dict(zip(queries["id"], queries["text"], strict=True))
    with TemporaryDirectory() as folder:
        rankings = rank_candidates(reranker, words, candidates, texts, Path(folder), batch_size)
    qrels = {query: judged[query] for query in before.per_query["mrr@10"]}
    per_query = score_queries(qrels, rankings)
    result = RetrievalResult(name, before.split, mean_metrics(per_query), per_query, time.perf_counter() - started)
    with atomic_directory(output_dir) as work:
        write_rankings(rankings, work / RANKINGS_FILE)
        (work / RESULT_FILE).write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")
    return result


def rank_candidates(
    model: str | Path | CrossEncoder | SentenceTransformer,
    queries: Mapping[str, str],
    candidates: Mapping[str, Iterable[str]],
    texts: Mapping[str, str],
    folder: Path,
    batch_size: int = 64,
) -> dict[str, dict[str, float]]:
    """Score the candidates of every query with a cross-encoder, or by a retriever's similarities.

    Args:
        model: a directory, a Hub id, or a loaded one.
        queries: texts by id.
        candidates: ids of passages by the id of their query.
        texts: of passages by id, the title first where there is one.
        folder: receives the vectors of the passages, for a retriever; a run that was killed goes on with them.
        batch_size: pairs, or texts, read at once.

    Returns:
        Query id -> passage id -> score.

    Raises:
        InputError: nothing to load, or a score is no number.
    """
    if is_cross_encoder(model):
        listed = {query: list(passages) for query, passages in candidates.items()}
        return rerank(model, queries, listed, texts, batch_size)
    retriever = load_retriever(cast("str | Path | SentenceTransformer", model))
    vectors = encode_corpus(retriever, list(texts.values()), folder, batch_size)
    rows = {passage: at for at, passage in enumerate(texts)}
    asked = list(dict.fromkeys(queries[query] for query in candidates))  # the same words may be asked more than once
    places = {text: at for at, text in enumerate(asked)}
    encoded = encode_queries(retriever, asked, batch_size)
    found = {}
    for query, passages in candidates.items():
        names = list(passages)
        scores = vectors.take(np.array([rows[passage] for passage in names])) @ encoded[places[queries[query]]]
        found[query] = dict(zip(names, scores.tolist(), strict=True))
    return found
