"""The weighted sum of dense and lexical scores."""

from __future__ import annotations

import random

import pytest

from hf_dense.search.fusion import WEIGHTS, fuse


def drawn(seed: int, low: float, names: str) -> dict[str, float]:
    rng = random.Random(seed)
    return dict(sorted(((name, rng.uniform(low, 10)) for name in names), key=lambda pair: -pair[1]))


def test_at_the_ends_each_search_has_its_own_order() -> None:
    dense, lexical = drawn(0, -5, "abcdef"), drawn(1, 0, "defghi")
    assert list(fuse(dense, lexical, 1.0))[: len(dense)] == list(dense)
    assert list(fuse(dense, lexical, 0.0))[: len(lexical)] == list(lexical)
    for weight in WEIGHTS:
        found = fuse(dense, lexical, weight)
        assert found.keys() == dense.keys() | lexical.keys()
        assert list(found.values()) == sorted(found.values(), reverse=True)
        assert all(0 <= score <= 1 for score in found.values())


def test_scales_of_the_scores_do_not_matter() -> None:
    dense, lexical = drawn(0, -5, "abcdef"), drawn(1, 0, "defghi")
    scaled = {name: 0.01 * score + 0.8 for name, score in dense.items()}
    stretched = {name: 7 * score for name, score in lexical.items()}
    assert fuse(scaled, stretched, 0.3) == pytest.approx(fuse(dense, lexical, 0.3))


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_nothing_or_one_passage_found(weight: float) -> None:
    assert fuse({}, {}, weight) == {}
    assert fuse({"a": 0.3}, {}, weight) == {"a": weight}
    assert fuse({}, {"a": 3.0}, weight) == {"a": 1 - weight}
    assert fuse({}, {"a": 0.0}, weight) == {"a": 0.0}
