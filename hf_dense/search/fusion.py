"""Dense and lexical scores of passages as one: a weighted sum, which words and meanings both have a say in.

Source: the convex combination of Bruch, Gai and Ingber (2210.11934), who find it better than reciprocal ranks, and one
weight enough, of few labelled queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Scores = Mapping[str, float]  # of the passages that a search found for one query, by id

WEIGHTS: Final = tuple(round(0.1 * step, 1) for step in range(11))  # that one is chosen of


def fuse(dense: Scores, lexical: Scores, weight: float) -> dict[str, float]:
    """Score what either search found: weight x dense + (1 - weight) x lexical.

    Both are scaled within the query: the best passage has 1; dense scores have 0 where their hits end, lexical ones
    where no word is shared. A passage that a search did not find has 0 there. At weight 1 and 0 the order is the
    search's own, followed by what only the other one found.

    Args:
        dense: similarities of the dense search's hits.
        lexical: BM25 scores of the lexical search's hits, at least 0.
        weight: of the dense scores, from 0 to 1.

    Returns:
        Passage id -> score, best first.

    >>> fuse({"a": 0.9, "b": 0.7, "c": 0.5}, {"b": 12.0, "d": 3.0}, 0.5)
    {'b': 0.75, 'a': 0.5, 'd': 0.125, 'c': 0.0}
    """
    least = min(dense.values(), default=0.0)
    width = max(dense.values(), default=0.0) - least
    best = max(lexical.values(), default=0.0)
    found = {
        passage: weight * ((dense[passage] - least) / width if passage in dense and width else float(passage in dense))
        + (1 - weight) * (lexical.get(passage, 0.0) / best if best else 0.0)
        for passage in {**dense, **lexical}
    }
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))
