"""Hard negatives: what a dense retriever finds for a query and nobody judged relevant."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.data.answers import has_answer
from hf_dense.data.collections import load_answers
from hf_dense.errors import InputError
from hf_dense.finetuning.lists import KIND
from hf_dense.finetuning.negatives import DEPTH, SPARE, Filter, Judged, Origin, load_judged, skipping, write_lists
from hf_dense.hub.hybrid import hybrid_head
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.precision import FP32, Reading
from hf_dense.search.approximate import rescore
from hf_dense.search.cross_encoder import load_reranker, read_part
from hf_dense.search.dense import Floats, Indices, check_kind, encode_corpus, encode_queries, searcher
from hf_dense.search.fingerprints import cross_encoder_source, retriever_source
from hf_dense.search.first_stage import check_hybrid_kind, hybrid_searcher, hybrid_vectors
from hf_dense.storage.output import Output
from hf_dense.storage.process_group import is_main_process

_QUERIES = 50_000  # searched at once: the corpus is read once for each


def mine_negatives(
    model: str | Path | SentenceTransformer,
    collection: str | os.PathLike[str],
    out: str | os.PathLike[str] | Output,
    split: str = "train",
    *,
    depth: int = DEPTH,
    skip: int = 0,
    kind: str = "exact",
    margin: float | None = None,
    filter_by: str | Path | None = None,
    filter_margin: float | None = None,
    precision: str = FP32,
    max_length: int | None = None,
    batch_size: int = 64,
) -> Path:
    """Write a training list for every judged query: its positives, and what a retriever ranks highest among the rest.

    Left out are positives and passages equal or nearly equal to one, and, where the collection knows the answers of
    its queries, passages that hold one; the card counts them. A query whose highest hits are left out in great numbers
    has fewer negatives than asked for. A run that was killed goes on with the vectors of the corpus that it had made.

    Args:
        model: the retriever, by its own similarity: an exported directory, a Hub id or a loaded model.
        out: holds `negatives/<split>.parquet` with the columns of `TRAINING`, and a card.
        split, depth: of the judgements; greatest number of negatives of a query.
        skip: leaves out so many of the highest hits that are not positives.
        kind: of search (see `hf_dense.search.dense.searcher`).
        margin: leaves out hits whose similarity is above that of the best positive less this margin.
        filter_by: a cross-encoder, by directory or Hub id; of the hits that are left it keeps those whose raw score is
            below the best positive's less `filter_margin`, by default 0 (RocketQA; Sentence-Transformers' lists: 3).
        precision, max_length: that models read in, and the retriever's longest text (`hf_dense.hub.precision.Reading`).
        batch_size: texts encoded at once.

    Raises:
        InputError: a model or the collection cannot be read, judgements name unknown queries or passages, an option is
            out of range, the cross-encoder gives no number, or something else is in `out`.
    """
    output, reading, judged = Output.of(out), Reading(precision, max_length), load_judged(collection, split, depth)
    check_kind(kind, len(judged.ids))
    skipped = skipping(skip)
    check_filter_margin(filter_by, filter_margin)
    retriever = load_retriever(model)
    check_hybrid_kind(retriever, kind)
    cross_encoder = None if filter_by is None else load_reranker(filter_by)
    sources = {"collection": judged.source, "retriever": retriever_source(retriever, model)}
    settings = {"search": kind, "split": split, "depth": depth, "skip": skip, "margin": margin, **reading.settings}
    retriever = reading.apply(retriever)
    if cross_encoder is not None:
        sources["cross-encoder"] = cross_encoder_source(cross_encoder, filter_by)
        settings["margin of the cross-encoder"] = filter_margin or 0.0
        cross_encoder = reading.apply(cross_encoder)
    with output.stage(KIND, settings, sources, resumable=True) as work:
        if not work.done and is_main_process():
            search = _open(retriever, judged, kind, batch_size, work.pieces)
            filters = skipped | _filters(search, collection, margin, cross_encoder, filter_margin or 0.0)
            origin = _origin(work.manifest.sources, search, depth)
            write_lists(work, judged, depth, search, origin, filters, spare=skip + SPARE, together=_QUERIES)
            work.facts["seconds"] = time.perf_counter() - search.started
    return output.path


def check_filter_margin(filter_by: object, filter_margin: object) -> None:
    """Raise `InputError` for a margin of no cross-encoder."""
    if filter_margin is not None and filter_by is None:
        raise InputError("filter_margin is of the cross-encoder that filter_by names; give both, or leave it out.")


class _Search:
    """A retriever's search for queries by their ids; what was encoded in a folder before is not encoded again."""

    def __init__(
        self, retriever: SentenceTransformer, judged: Judged, kind: str, batch_size: int, folder: Path
    ) -> None:
        self.started = time.perf_counter()
        self.retriever, self.judged, self.kind, self.batch_size = retriever, judged, kind, batch_size
        self.queries: dict[str, Floats] = {}  # id -> vector, of those searched last
        self._prepare(folder)

    def _prepare(self, folder: Path) -> None:
        self.vectors = encode_corpus(self.retriever, self.judged.texts, folder, self.batch_size)
        self.search = searcher(self.vectors, self.kind)

    def _similarities(self, name: str, indices: Indices) -> Floats:
        """(indices,) of passages and a query that was searched last."""
        found: Floats = self.vectors.take(indices) @ self.queries[name]
        return found

    def __call__(self, names: list[str], hits: int) -> tuple[Floats, Indices]:
        texts = [self.judged.queries[name] for name in names]
        queries = encode_queries(self.retriever, texts, self.batch_size)
        self.queries = dict(zip(names, queries, strict=True))
        found = self.search(queries, hits)
        # Scores of compressed vectors are none that a margin, or a reader of the lists, could go by.
        return rescore(queries, found[1], self.vectors, found[1].shape[1]) if self.kind == "ivfpq" else found

    def at_most(self, margin: float, name: str, scores: Floats, indices: Indices) -> NDArray[np.bool_]:
        """Which hits have a similarity of at most that of the best positive less a margin."""
        positives = self._similarities(name, np.array([*chain(*self.judged.positives[name])]))
        kept: NDArray[np.bool_] = scores <= positives.max() - margin
        return kept


class _HybridSearch(_Search):
    """The same by DupMAE's hybrid vectors, which are kept sparse: whole ones take 120 KB a passage."""

    def _prepare(self, folder: Path) -> None:
        self.index = hybrid_vectors(self.retriever, self.judged.texts, folder, self.batch_size)
        self.find = hybrid_searcher(self.retriever, self.index, self.batch_size)

    def _similarities(self, name: str, indices: Indices) -> Floats:
        query = self.retriever.encode_query([self.judged.queries[name]], show_progress_bar=False)[0]
        return self.index.score(query, indices)

    def __call__(self, names: list[str], hits: int) -> tuple[Floats, Indices]:
        return self.find([self.judged.queries[name] for name in names], hits)


def _origin(sources: Mapping[str, str], search: _Search, depth: int) -> Origin:
    return Origin(
        title=f"Hard negatives of {Path(sources['collection']).name}",
        about=f"For every judged query of the split {search.judged.split} up to {depth} passages that the retriever "
        f"`{sources['retriever']}` ranks highest ({search.retriever.similarity_fn_name} similarity, {search.kind} "
        "search), without its positives, those of a query of the same words, passages equal or nearly equal to one, "
        "and what else is counted below.",
        negative_scores="the retriever's similarity of query and negative",
    )


def _open(retriever: SentenceTransformer, judged: Judged, kind: str, batch_size: int, folder: Path) -> _Search:
    """The search that a retriever's vectors need."""
    search = _HybridSearch if hybrid_head(retriever) else _Search
    return search(retriever, judged, kind, batch_size, folder)


def _filters(
    search: _Search,
    collection: str | os.PathLike[str],
    margin: float | None,
    cross_encoder: CrossEncoder | None,
    filter_margin: float,
) -> dict[str, Filter]:
    """What leaves hits out, one after the other, by its name on the card."""
    filters: dict[str, Filter] = {}
    if answers := _answers(collection):
        filters["passages with an answer"] = partial(_no_answer, answers, search.judged)
    if margin is not None:
        filters[f"similarity above the best positive's less {margin}"] = partial(search.at_most, margin)
    if cross_encoder is not None:
        reason = f"cross-encoder's score not below the best positive's less {filter_margin}"
        filters[reason] = partial(_denoised, cross_encoder, filter_margin, search.judged, search.batch_size)
    return filters


def _answers(collection: str | os.PathLike[str]) -> dict[str, list[str]]:
    try:
        return load_answers(collection)
    except InputError:  # they are not known
        return {}


def _no_answer(
    answers: Mapping[str, list[str]], judged: Judged, name: str, scores: Floats, indices: Indices
) -> NDArray[np.bool_]:
    """Which passages hold no answer to the query."""
    strings = answers[name] or []
    return np.array([not has_answer(text, strings) for text in judged.texts[indices]], dtype=bool)


def _denoised(
    cross_encoder: CrossEncoder,
    margin: float,
    judged: Judged,
    batch_size: int,
    name: str,
    scores: Floats,
    indices: Indices,
) -> NDArray[np.bool_]:
    """Which passages a cross-encoder scores below the best positive less a margin."""
    texts = judged.texts[[*indices, *chain(*judged.positives[name])]]
    query = read_part(cross_encoder, judged.queries[name])
    pairs = [(query, text) for text in texts]
    found = cross_encoder.predict(pairs, batch_size=batch_size, show_progress_bar=False)
    if not np.isfinite(found).all():
        raise InputError(f"The cross-encoder's score of a passage for query {name!r} is no number; train it again.")
    kept: NDArray[np.bool_] = found[: len(indices)] < found[len(indices) :].max() - margin
    return kept
