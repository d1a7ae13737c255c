"""What a cross-encoder, or another retriever, makes of a retriever's ranking."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from pyarrow import parquet
from sentence_transformers import CrossEncoder

from hf_dense.data.collections import load_corpus, load_qrels, load_queries
from hf_dense.errors import InputError
from hf_dense.evaluation.retrieval import (
    RANKINGS_FILE,
    RESULT_FILE,
    RetrievalResult,
    mean_metrics,
    score_queries,
    write_rankings,
)
from hf_dense.files import atomic_directory
from hf_dense.finetuning.scoring import rerank
from hf_dense.hub.loading import load_retriever
from hf_dense.replacing import check_replaceable
from hf_dense.vectors import encode_corpus, encode_queries


def evaluate_reranker(
    reranker: str | Path | CrossEncoder,
    first_stage: str | Path,
    dataset_dir: str | Path,
    *,
    name: str,
    output_dir: str | Path,
    depth: int = 100,
    batch_size: int = 64,
) -> RetrievalResult:
    """Order the best passages of an earlier evaluation anew, and measure that.

    Args:
        reranker: a cross-encoder (a directory, a Hub id or a loaded one), or the directory of a retriever, whose
            similarities order the passages then (SEED-Encoder's columns "Rerank").
        first_stage: what `evaluate_retriever` wrote; its split is measured.
        dataset_dir: the collection that was searched.
        name: of the result, in tables.
        output_dir: receives `result.json` and `rankings.parquet`, complete or not at all.
        depth: passages of a query that are read, at most the 100 that an evaluation keeps.
        batch_size: pairs read at once.

    Returns:
        The metrics and their values per query; `recall@100` is the first stage's where `depth` is 100.

    Raises:
        InputError: no evaluation there, or nothing to load.
    """
    check_replaceable(output_dir, marker=RESULT_FILE)
    before = RetrievalResult.load(first_stage)
    started = time.perf_counter()
    candidates: dict[str, list[str]] = {}
    for row in parquet.read_table(Path(first_stage) / RANKINGS_FILE).to_pylist():
        if row["rank"] <= depth:
            candidates.setdefault(row["query-id"], []).append(row["corpus-id"])
    corpus, queries = load_corpus(dataset_dir), load_queries(dataset_dir)
    wanted = {passage for found in candidates.values() for passage in found}
    places = {name: at for at, name in enumerate(corpus["id"][:]) if name in wanted}
    if len(places) < len(wanted):
        raise InputError(f"{first_stage} is not an evaluation on {dataset_dir}: it ranks passages that are not there.")
    rows = corpus[list(places.values())]
    texts = {
        passage: f"{title} {text}".strip()
        for passage, title, text in zip(places, rows["title"], rows["text"], strict=True)
    }
    words = dict(zip(queries["id"], queries["text"], strict=True))
    if _is_retriever(reranker):
        rankings = _order(str(reranker), words, candidates, texts, batch_size)
    else:
        rankings = rerank(reranker, words, candidates, texts, batch_size)
    judged = load_qrels(dataset_dir, before.split)
    qrels = {query: judged[query] for query in before.per_query["mrr@10"]}
    per_query = score_queries(qrels, rankings)
    result = RetrievalResult(name, before.split, mean_metrics(per_query), per_query, time.perf_counter() - started)
    with atomic_directory(output_dir) as work:
        write_rankings(rankings, work / RANKINGS_FILE)
        (work / RESULT_FILE).write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")
    return result


def _is_retriever(model: str | Path | CrossEncoder) -> bool:
    if isinstance(model, CrossEncoder):
        return False
    config = Path(str(model)) / "config_sentence_transformers.json"
    found = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    return bool(found.get("model_type") == "SentenceTransformer")


def _order(
    model: str,
    queries: Mapping[str, str],
    candidates: Mapping[str, Sequence[str]],
    texts: Mapping[str, str],
    batch_size: int,
) -> dict[str, dict[str, float]]:
    """Candidates of each query with a retriever's similarities; every text is encoded once."""
    retriever = load_retriever(model)
    names = list(texts)
    rows = {name: at for at, name in enumerate(names)}
    with TemporaryDirectory() as folder:
        vectors = encode_corpus(retriever, [texts[name] for name in names], Path(folder), batch_size)
        asked = encode_queries(retriever, [queries[query] for query in candidates], batch_size)
        found = {}
        for vector, (query, passages) in zip(asked, candidates.items(), strict=True):
            scores = vectors.take(np.array([rows[passage] for passage in passages])) @ vector
            found[query] = dict(zip(passages, scores.tolist(), strict=True))
    return found
