"""The first hits of a question are ordered by a cross-encoder's own scores; those below them follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_retriever import random_words, write_cross_encoder

from hf_dense.errors import InputError
from hf_dense.search.cross_encoder import load_reranker
from hf_dense.search.index import Hit
from hf_dense.search.reranking import rerank_hits


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cross_encoder(tmp_path_factory.mktemp("reranker"))


def found(size: int) -> list[Hit]:
    return [Hit(1 - at / 10, f"p{at}", f"t{at}" * (at % 2), word) for at, word in enumerate(random_words(size))]


def test_the_first_are_ordered_by_the_scores_of_title_and_text(reranker: Path) -> None:
    hits = found(7)
    ordered, few, nothing = rerank_hits(str(reranker), ["ab cd", "ef", "gh"], [hits, hits[:2], []], depth=4)
    pairs = [("ab cd", f"{hit.title} {hit.text}".strip()) for hit in hits[:4]]
    scores = load_reranker(reranker).predict(pairs, show_progress_bar=False).tolist()
    order = sorted(range(4), key=lambda at: -scores[at])
    assert [hit.id for hit in ordered] == [*(f"p{at}" for at in order), "p4", "p5", "p6"]
    assert [hit.score for hit in ordered[:4]] == pytest.approx([scores[at] for at in order], abs=1e-6)
    assert [ordered[at].score - ordered[at + 1].score for at in (4, 5)] == [1, 1]
    assert ordered[3].score > ordered[4].score
    assert {(hit.id, hit.title, hit.text) for hit in ordered} == {(hit.id, hit.title, hit.text) for hit in hits}
    assert (len(few), nothing) == (2, [])
    assert rerank_hits(reranker, [], []) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"questions": ["a", "b"]}, "2 questions and 1 lists"),
        ({"depth": 0}, "The depth is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_mistakes(given: dict[str, Any], said: str, reranker: Path) -> None:
    with pytest.raises(InputError, match=said):
        rerank_hits(reranker, **{"questions": ["a"], "hits": [found(2)], **given})
