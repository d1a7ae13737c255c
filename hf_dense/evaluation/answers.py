"""Open-domain question answering: whether the passages that a retriever finds hold the answer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from hf_dense.data.answers import has_answer
from hf_dense.data.collections import load_answers, load_corpus, load_qrels, load_queries
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.errors import InputError
from hf_dense.evaluation.runner import Found, Protocol, Rankings, asked_texts, collection_source
from hf_dense.search.first_stage import by_id, open_search

DEPTHS: Final = (20, 100)  # numbers of passages that are read
_QUERIES: Final = 1_000  # whose passages are read at once


class Answers(Protocol):
    """Questions for which one of the best passages holds an answer.

    Source: top-k retrieval accuracy of DPR (Karpukhin et al., 2020), with its rule for answers (`has_answer`) on the
    text of a passage, without the title.

    Args:
        collection: its queries have answers; what is searched is title + " " + text.
        split: the queries of its judgements are asked, relevant passages or not, and all queries where it has no
            judgement; queries without answers are left out.

    Raises:
        InputError: no answers are known, or an empty question.
    """

    name = "answers"

    def __init__(self, collection: str | os.PathLike[str], split: str) -> None:
        qrels, known, queries = load_qrels(collection, split), load_answers(collection), load_queries(collection)
        self.answers = {query: strings for query in qrels or known if (strings := known.get(query))}
        if not self.answers:
            raise InputError(f"No query of split {split!r} in {collection} has an answer.")
        asked = asked_texts(dict.fromkeys(self.answers, ()), queries, (), collection)
        self.corpus = load_corpus(collection)
        super().__init__(split, collection_source(collection), asked, len(self.corpus), depths=[*DEPTHS])

    def rank(self, model: Any, folder: Path, batch_size: int) -> Found:
        """As many passages as the greatest depth."""
        search = open_search(model, PassageTexts(self.corpus), folder, batch_size)
        found = search(list(self.queries.values()), max(DEPTHS))
        return Found(by_id(self.queries, self.corpus["id"][:], *found), search)

    def score(self, rankings: Rankings) -> dict[str, dict[str, float]]:
        """`answer_recall@k` for every depth: 1 for a query with an answer in its first k passages, else 0."""
        wanted = {passage for ranking in rankings.values() for passage in ranking}
        rows = {passage: row for row, passage in enumerate(self.corpus["id"][:]) if passage in wanted}
        first: dict[str, float] = {}
        asked = list(self.queries)
        for part in (asked[start : start + _QUERIES] for start in range(0, len(asked), _QUERIES)):
            found = list({passage for query in part for passage in rankings.get(query, ())})
            texts = dict(zip(found, self.corpus[[rows[passage] for passage in found]]["text"], strict=True))
            first |= {
                query: answer_rank((texts[name] for name in rankings.get(query, ())), self.answers[query])
                for query in part
            }
        return {
            f"answer_recall@{depth}": {query: float(rank <= depth) for query, rank in first.items()} for depth in DEPTHS
        }


def answer_rank(texts: Iterable[str], answers: Sequence[str]) -> float:
    """The rank, from 1, of the first text that holds an answer; infinite where none does.

    >>> answer_rank(["a dog", "a cat"], ["cat", "cow"])
    2
    """
    return next((rank for rank, text in enumerate(texts, start=1) if has_answer(text, answers)), float("inf"))
