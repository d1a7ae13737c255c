"""Hard negatives: what a dense retriever finds for a query and nobody judged relevant."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder, SentenceTransformer

from hf_dense.data.answers import has_answer
from hf_dense.data.collections import load_answers
from hf_dense.errors import InputError
from hf_dense.finetuning.negatives import DEPTH, SPARE, Filter, Judged, Origin, Places, Scores, load_judged, write_lists
from hf_dense.hub.loading import load_retriever
from hf_dense.search.cross_encoder import load_reranker
from hf_dense.search.dense import Vectors, check_kind, encode_corpus, encode_queries, searcher

_QUERIES = 50_000  # searched at once: the corpus is read once for each


def mine_negatives(
    model: str | Path | SentenceTransformer,
    collection: str | os.PathLike[str],
    out: str | os.PathLike[str],
    split: str = "train",
    *,
    depth: int = DEPTH,
    skip: int = 0,
    kind: str = "exact",
    margin: float | None = None,
    filter_by: str | Path | None = None,
    filter_margin: float = 0.0,
    batch_size: int = 64,
    licence: str = "other",
    command: str = "",
) -> Path:
    """Write a training list for every judged query: its positives, and what a retriever ranks highest among the rest.

    Left out are positives and passages equal or nearly equal to one, and, where the collection knows the answers of
    its queries, passages that hold one; the card counts them. A query whose highest hits are left out in great numbers
    has fewer negatives than asked for.

    Args:
        model: the retriever, by its own similarity: an exported directory, a Hub id or a loaded model.
        collection: see `hf_dense.data.collections`.
        out: holds `negatives/<split>.parquet` with the columns of `TRAINING`, and a card. The vectors of the corpus
            stand in `<out>.partial` until all is done; a run that was killed goes on with them.
        split: of the judgements.
        depth: greatest number of negatives of a query.
        skip: leaves out so many of the highest hits that are not positives.
        kind: of search (see `hf_dense.search.dense.dense_search`).
        margin: leaves out hits whose similarity is above that of the best positive less this margin.
        filter_by: a cross-encoder, by directory or Hub id, which reads the hits that are left; kept are those whose
            raw score is below that of the best positive less `filter_margin` (RocketQA's denoising;
            Sentence-Transformers' MS MARCO lists have a margin of 3).
        filter_margin: of the cross-encoder's scores.
        batch_size: texts encoded at once.
        licence: of the texts, for the card.
        command: what builds it, for the card.

    Returns:
        `out` as a path.

    Raises:
        InputError: a model or the collection cannot be read, judgements name unknown queries or passages, an option is
            out of range, the cross-encoder gives no number, or `<out>.partial` holds the vectors of another model or
            corpus.
    """
    judged = load_judged(collection, out, split, depth)
    check_kind(kind, len(judged.texts))
    if skip < 0:
        raise InputError(f"skip is {skip}; it is a number of hits, 0 or more.")
    retriever = load_retriever(model)
    cross_encoder = None if filter_by is None else load_reranker(filter_by)
    work = Path(f"{out}.partial")
    search = _Search(retriever, judged, encode_corpus(retriever, judged.texts, work, batch_size), kind, batch_size)
    filters: dict[str, Filter] = {}
    if skip:
        filters[f"the {skip} highest"] = lambda name, places, scores: np.arange(len(places)) >= skip
    if answers := _answers(collection):
        filters["passages with an answer"] = _without(answers, judged)
    if margin is not None:
        filters[f"similarity above the best positive's less {margin}"] = search.at_most(margin)
    if cross_encoder is not None:
        filters[f"cross-encoder's score not below the best positive's less {filter_margin}"] = _denoised(
            cross_encoder, filter_margin, judged, batch_size
        )
    name = model if isinstance(model, str | Path) else "a loaded model"
    origin = Origin(
        title=f"Hard negatives of {Path(collection).name}",
        about=f"For every judged query of the split {split} up to {depth} passages that the retriever `{name}` ranks "
        f"highest ({retriever.similarity_fn_name} similarity, {kind} search), without its positives, passages equal or "
        "nearly equal to them, and what else is counted below.",
        scores="the retriever's similarity of query and negative",
        source=str(collection),
        licence=licence,
        command=command,
    )
    write_lists(out, judged, depth, search, origin, filters, spare=skip + SPARE, together=_QUERIES)
    shutil.rmtree(work)
    return Path(out)


class _Search:
    """A retriever's search for queries by their ids."""

    def __init__(
        self, retriever: SentenceTransformer, judged: Judged, vectors: Vectors, kind: str, batch_size: int
    ) -> None:
        self.retriever, self.judged, self.vectors, self.batch_size = retriever, judged, vectors, batch_size
        self.search = searcher(vectors, kind)
        self.queries: dict[str, NDArray[np.float32]] = {}  # id -> vector, of those searched last

    def __call__(self, names: list[str], hits: int) -> tuple[Places, Scores]:
        texts = [self.judged.queries[name] for name in names]
        queries = encode_queries(self.retriever, texts, self.batch_size)
        self.queries = dict(zip(names, queries, strict=True))
        scores, places = self.search(queries, hits)
        return places, scores

    def at_most(self, margin: float) -> Filter:
        """Keep hits whose similarity is at most that of the best positive less a margin."""

        def keep(name: str, places: Places, scores: Scores) -> NDArray[np.bool_]:
            positives = self.vectors.take(np.array([*chain(*self.judged.positives[name])]))
            kept: NDArray[np.bool_] = scores <= (positives @ self.queries[name]).max() - margin
            return kept

        return keep


def _answers(collection: str | os.PathLike[str]) -> dict[str, list[str]]:
    try:
        return load_answers(collection)
    except InputError:  # they are not known
        return {}


def _without(answers: Mapping[str, list[str]], judged: Judged) -> Filter:
    """Keep passages that hold no answer to the query."""

    def keep(name: str, places: Places, scores: Scores) -> NDArray[np.bool_]:
        strings = answers[name] or []
        return np.array([not has_answer(judged.texts[place], strings) for place in places], dtype=bool)

    return keep


def _denoised(cross_encoder: CrossEncoder, margin: float, judged: Judged, batch_size: int) -> Filter:
    """Keep passages that a cross-encoder scores below the best positive less a margin."""

    def keep(name: str, places: Places, scores: Scores) -> NDArray[np.bool_]:
        read = [*places, *chain(*judged.positives[name])]
        pairs = [(judged.queries[name], judged.texts[place]) for place in read]
        device = cross_encoder.device.type
        with torch.autocast(device, torch.float16, enabled=device == "cuda"):
            found = cross_encoder.predict(pairs, batch_size=batch_size, show_progress_bar=False)
        if not np.isfinite(found).all():
            raise InputError(f"The cross-encoder's score of a passage for query {name!r} is no number; train it again.")
        kept: NDArray[np.bool_] = found[: len(places)] < found[len(places) :].max() - margin
        return kept

    return keep
