"""Passages as queries for those beside them (coCondenser's pairs)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from hf_dense.data.queries.passages import Document, Query
from hf_dense.data.sentences import split_sentences

_ONE_IN: Final = 4  # passages of a document that become queries, where there are as many; documents that have any


class NeighbourQueries:
    """Makes queries of passages: each asks for those before and after it, and leaves the corpus.

    It would be found first, else, and in vain. Of a document a quarter of the passages at most, and one at least,
    become queries, none beside another.

    Args:
        seed: of the draws.
        others: whether other kinds make queries too: then a drawn quarter of the documents alone loses passages, as
            few may be chosen of each, and the others need them.
    """

    def __init__(self, seed: int, others: bool = False) -> None:
        self.seed, self.others = seed, others

    def make(self, document: Document) -> list[Query]:
        """The queries among the passages that were chosen."""
        if self.others and random.Random(f"others:{self.seed}:{document.name}").randrange(_ONE_IN):
            return []
        order, made = document.left, list[Query]()
        random.Random(f"{self.seed}:{document.name}").shuffle(order)
        for at in order:
            beside = [other for other in (at - 1, at + 1) if 0 <= other < len(document.texts)]
            if len(made) >= max(1, len(order) // _ONE_IN):
                break
            if document.chosen[at] and beside and not document.gone.intersection(beside):
                if _overlap(document, at, beside):
                    continue
                document.gone.add(at)
                made.append(Query("neighbours", document.texts[at], at, dict.fromkeys(beside, 1)))
        return made


def _overlap(document: Document, at: int, beside: Sequence[int]) -> bool:
    """Whether a passage has a sentence in common with one beside it, as windows that overlap do."""
    own = split_sentences(document.texts[at])
    return any(sentence in document.texts[other] for sentence in own for other in beside)
