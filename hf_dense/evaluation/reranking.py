"""What a cross-encoder, or another retriever, makes of a retriever's ranking."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from mteb.abstasks.retrieval import AbsTaskRetrieval
from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.errors import InputError
from hf_dense.evaluation.answers import Answers
from hf_dense.evaluation.documents import Documents
from hf_dense.evaluation.result import RANKINGS_FILE, RetrievalResult, load_rankings
from hf_dense.evaluation.retrieval import IDENTICAL_IDS, Passages
from hf_dense.evaluation.runner import Found, Protocol, Rankings, run_protocol
from hf_dense.search.candidates import candidate_texts, rank_candidates
from hf_dense.search.reranking import RERANK_DEPTH, order_anew
from hf_dense.storage.fingerprints import fingerprint_path
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source


class FirstPassages(Protocol):
    """The best passages, or documents, of an earlier evaluation, ordered anew; those below them follow as they were.

    A document is as good as the best of its passages.

    Args:
        first_stage: what an evaluation wrote; its split is measured.
        searched: what it searched, of the same protocol.
        depth: passages or documents of a query that are ordered anew.

    Raises:
        InputError: no evaluation there, one by another protocol, of another collection, or with queries among their
            own hits where they are dropped now.
    """

    name = "re-ranking"
    models = (SentenceTransformer, CrossEncoder)

    def __init__(
        self, first_stage: str | os.PathLike[str], searched: Passages | Documents | Answers, depth: int = RERANK_DEPTH
    ) -> None:
        before, manifest = RetrievalResult.load(first_stage), Manifest.load(first_stage)
        collection, rankings = searched.sources["collection"], Path(first_stage) / RANKINGS_FILE
        if manifest is None or manifest.made_from.get("protocol") != searched.name:
            raise InputError(f"{first_stage} cannot be re-ranked: it is not an evaluation of {searched.name}.")
        if manifest.made_from["collection"] != collection.fingerprint:
            raise InputError(
                f"{first_stage} is an evaluation of something else: it was measured on another collection than "
                f"{collection.name}."
            )
        if manifest.made_from.get(IDENTICAL_IDS) != searched.settings.get(IDENTICAL_IDS):
            raise InputError(f"{first_stage} has queries among their own hits; measure it again with --overwrite.")
        ranked = {query: [*found] for query, found in load_rankings(first_stage).items()}
        self.searched = searched
        self.first = {query: found[:depth] for query, found in ranked.items()}
        self.rest = {query: found[depth:] for query, found in ranked.items()}
        self.passages_by_name = searched.passages_of({name for found in self.first.values() for name in found})
        self.texts = candidate_texts(searched.corpus, {one for all_ in self.passages_by_name.values() for one in all_})
        sources = {**searched.sources, "first stage": Source(str(first_stage), fingerprint_path(rankings))}
        asked = {query: searched.queries[query] for query in next(iter(before.per_query.values()))}
        more = {} if searched.name == Passages.name else {"of": searched.name}
        more |= {name: value for name, value in searched.settings.items() if name == IDENTICAL_IDS}
        super().__init__(before.split, sources, asked, len(self.texts), depth=depth, below="follows", **more)
        self.said = {"orders": f"the first {depth} of {before.name} ({manifest.sources['model']})"}

    def rank(self, model: Any, folder: Path, batch_size: int) -> Found:
        """What was found first by the model's scores; what follows has one less than the one before."""
        parts = self.passages_by_name
        candidates = {query: [one for name in names for one in parts[name]] for query, names in self.first.items()}
        scored = rank_candidates(model, self.queries, candidates, self.texts, folder, batch_size)
        found: dict[str, dict[str, float]] = {}
        for query, names in self.first.items():
            best = {name: max(scored[query][one] for one in parts[name]) for name in names}
            found[query] = order_anew(best, self.rest[query])
        return Found(found)

    def score(self, rankings: Rankings) -> dict[str, dict[str, float]]:
        """As of the first stage; recall at `depth` and below is the first stage's."""
        return self.searched.score(rankings)


def evaluate_reranker(
    reranker: str | Path | CrossEncoder | SentenceTransformer,
    first_stage: str | os.PathLike[str],
    dataset: str | os.PathLike[str] | AbsTaskRetrieval,
    *,
    name: str,
    out: str | os.PathLike[str] | Output,
    depth: int = RERANK_DEPTH,
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
    return run_protocol(FirstPassages(first_stage, load(split), depth), reranker, out, name=name)
