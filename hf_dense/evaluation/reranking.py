"""What a cross-encoder, or another retriever, makes of a retriever's ranking."""

from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path
from typing import Any, Final

from mteb.abstasks.retrieval import AbsTaskRetrieval
from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.errors import InputError
from hf_dense.evaluation.measures import score_queries
from hf_dense.evaluation.result import RANKINGS_FILE, RetrievalResult, load_rankings
from hf_dense.evaluation.retrieval import Passages
from hf_dense.evaluation.runner import Found, Protocol, Rankings, run_protocol
from hf_dense.search.candidates import candidate_texts, rank_candidates
from hf_dense.storage.fingerprints import fingerprint_path
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

RERANK_DEPTH: Final = 100


class FirstPassages(Protocol):
    """The best passages of an earlier evaluation, ordered anew; those below them follow as they were.

    Args:
        first_stage: what `evaluate_retriever` wrote; its split is measured.
        searched: what it searched.
        depth: passages of a query that are ordered anew.

    Raises:
        InputError: no evaluation there, not one of passages, or of another collection.
    """

    name = "re-ranking"
    models = (SentenceTransformer, CrossEncoder)

    def __init__(self, first_stage: str | os.PathLike[str], searched: Passages, depth: int = RERANK_DEPTH) -> None:
        before, manifest = RetrievalResult.load(first_stage), Manifest.load(first_stage)
        collection, rankings = searched.sources["collection"], Path(first_stage) / RANKINGS_FILE
        if "mrr@10" not in before.per_query:
            raise InputError(f"{first_stage} cannot be re-ranked: it is not an evaluation of passages.")
        if manifest is None or manifest.made_from["collection"] != collection.fingerprint:
            raise InputError(
                f"{first_stage} is an evaluation of something else: it was measured on another collection than "
                f"{collection.name}."
            )
        ranked = {query: [*found] for query, found in load_rankings(first_stage).items()}
        self.candidates = {query: found[:depth] for query, found in ranked.items()}
        self.rest = {query: found[depth:] for query, found in ranked.items()}
        self.texts = candidate_texts(searched.corpus, {name for found in self.candidates.values() for name in found})
        self.qrels = {query: searched.qrels[query] for query in before.per_query["mrr@10"]}
        sources = {**searched.sources, "first stage": Source(str(first_stage), fingerprint_path(rankings))}
        asked = {query: searched.queries[query] for query in self.qrels}
        super().__init__(before.split, sources, asked, len(self.texts), depth=depth, below="follows")

    def rank(self, model: Any, folder: Path, batch_size: int) -> Found:
        """The candidates of every query by the model's scores; what follows has one less than the one before."""
        found = rank_candidates(model, self.queries, self.candidates, self.texts, folder, batch_size)
        for query, scores in found.items():
            least = math.floor(min(scores.values(), default=0.0))
            scores.update({passage: float(least - below) for below, passage in enumerate(self.rest[query], start=1)})
        return Found(found)

    def score(self, rankings: Rankings) -> dict[str, dict[str, float]]:
        """As of passages; recall at `depth` and below is the first stage's."""
        return score_queries(self.qrels, rankings)


def evaluate_reranker(
    reranker: str | Path | CrossEncoder | SentenceTransformer,
    first_stage: str | os.PathLike[str],
    dataset: str | os.PathLike[str] | AbsTaskRetrieval,
    *,
    name: str,
    out: str | os.PathLike[str] | Output,
    depth: int = RERANK_DEPTH,
    batch_size: int = 64,
) -> RetrievalResult:
    """Order the best passages of an earlier evaluation anew, and measure that.

    Args:
        reranker: a cross-encoder (a directory, a Hub id or a loaded one), or a retriever, whose similarities order the
            passages then (SEED-Encoder's columns "Rerank").
        first_stage: see `FirstPassages`, and for the rest `run_protocol`.
        dataset: what was searched: the directory of a collection, or an MTEB task with its data loaded.
    """
    split = RetrievalResult.load(first_stage).split
    load = partial(Passages, dataset) if isinstance(dataset, AbsTaskRetrieval) else partial(Passages.load, dataset)
    return run_protocol(FirstPassages(first_stage, load(split), depth), reranker, out, name=name, batch_size=batch_size)
