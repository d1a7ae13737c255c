"""Hits of an index, ordered anew by a cross-encoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from hf_dense.data.passage_texts import passage_text
from hf_dense.errors import InputError
from hf_dense.search.cross_encoder import check_batch, load_reranker, predict_scores

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import CrossEncoder

    from hf_dense.search.index import Hit

RERANK_DEPTH: Final = 100

Name = TypeVar("Name")


def rerank_hits(
    reranker: str | Path | CrossEncoder,
    questions: Sequence[str],
    hits: Sequence[Sequence[Hit]],
    depth: int = RERANK_DEPTH,
    batch_size: int = 64,
    done: Callable[[int], object] = lambda pairs: None,
) -> list[list[Hit]]:
    """Order the first hits of every question by a cross-encoder's scores; those below them follow as they were.

    Args:
        reranker: a directory, a Hub id, or a loaded cross-encoder.
        questions: as they were asked.
        hits: of each, best first, as `SearchIndex.search_many` finds them.
        depth: hits of a question that are ordered anew.
        batch_size: pairs read at once.
        done: called with the number of pairs of each batch.

    Returns:
        For each question as many hits, each with the raw logit of its title and text; what follows has one less than
        the one before.

    Raises:
        InputError: nothing to load, as many lists of hits as questions are not given, a number below 1, or a score is
            no number.
    """
    if len(questions) != len(hits):
        raise InputError(f"There are {len(questions)} questions and {len(hits)} lists of hits; give a list for each.")
    check_depth(depth)
    check_batch(batch_size)
    lists = [
        (question, [passage_text(hit.title, hit.text) for hit in found[:depth]])
        for question, found in zip(questions, hits, strict=True)
    ]
    scored = predict_scores(load_reranker(reranker), lists, batch_size, done) if lists else []
    ordered = []
    for found, scores in zip(hits, scored, strict=True):
        first = dict(zip(range(len(scores)), scores.tolist(), strict=True))
        order = order_anew(first, range(len(scores), len(found)))
        ordered.append([replace(found[place], score=score) for place, score in order.items()])
    return ordered


def check_depth(depth: int) -> None:
    """Raise `InputError` where no passage would be ordered anew."""
    if depth < 1:
        raise InputError(f"The depth is {depth}; at least one passage is ordered anew.")


def order_anew(first: Mapping[Name, float], rest: Sequence[Name]) -> dict[Name, float]:
    """What has new scores, the best first; what has none follows in its order, each with one less than the one before.

    >>> order_anew({"a": 0.5, "b": 2.5}, ["c", "d"])
    {'b': 2.5, 'a': 0.5, 'c': -1.0, 'd': -2.0}
    """
    least = math.floor(min(first.values(), default=0.0))
    below = {name: float(least - place) for place, name in enumerate(rest, start=1)}
    return dict(sorted(first.items(), key=lambda item: -item[1])) | below
