from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hf_dense import InputError
from hf_dense.evaluation.significance import Comparison, compare_paired


def by_query(values: list[float]) -> dict[str, float]:
    return {f"q{index}": value for index, value in enumerate(values)}


def test_p_value_equals_the_enumeration_of_all_sign_flips() -> None:
    differences = [0.5, 0.1, 0.3, -0.2, 0.4, 0.25, 0.05, -0.1]
    flipped = [abs(np.dot(signs, differences)) for signs in product([1, -1], repeat=len(differences))]
    exact = np.mean(np.array(flipped) >= abs(sum(differences)) - 1e-12)

    found = compare_paired(by_query(differences), by_query([0.0] * len(differences)))
    assert found.p_value == pytest.approx(exact, abs=1e-9)
    assert found.difference == pytest.approx(np.mean(differences))
    assert found.low < found.difference < found.high
    assert found.queries == 8


def test_equal_retrievers_are_rarely_called_different() -> None:
    generator = np.random.default_rng(0)
    p_values = []
    for _ in range(60):
        first, second = generator.random((2, 40)).tolist()
        p_values.append(compare_paired(by_query(first), by_query(second), resamples=400).p_value)
    assert np.mean(np.array(p_values) < 0.1) < 0.25
    assert np.mean(np.array(p_values) < 0.5) > 0.25


def test_a_clear_difference_is_found_and_the_interval_excludes_zero() -> None:
    generator = np.random.default_rng(1)
    second = generator.random(500)
    first = second + generator.normal(0.05, 0.1, 500)
    found = compare_paired(by_query(first.tolist()), by_query(second.tolist()))
    assert found.p_value == pytest.approx(2 / 10_001)
    assert 0 < found.low < 0.05 < found.high


def test_interval_agrees_with_the_normal_one() -> None:
    generator = np.random.default_rng(2)
    differences = generator.normal(0.02, 0.2, 800)
    found = compare_paired(by_query(differences.tolist()), by_query([0.0] * 800))
    half = 1.96 * differences.std(ddof=1) / np.sqrt(800)
    assert found.low == pytest.approx(differences.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(differences.mean() + half, abs=0.1 * half)


def test_swapping_the_two_swaps_the_sign_and_the_seed_repeats() -> None:
    generator = np.random.default_rng(3)
    first, second = (by_query(row) for row in generator.random((2, 50)).tolist())
    forth, back = compare_paired(first, second), compare_paired(second, first)
    assert forth.difference == pytest.approx(-back.difference)
    assert forth.p_value == pytest.approx(back.p_value, abs=0.02)
    assert compare_paired(first, second) == forth


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="different queries"):
        compare_paired({"a": 1.0, "b": 1.0}, {"a": 1.0, "c": 1.0})
    with pytest.raises(InputError, match="needs a query"):
        compare_paired({}, {})


def test_one_query_tells_nothing_of_others() -> None:
    for value in (0.0, 0.25):
        assert compare_paired({"a": value}, {"a": 0.0}) == Comparison(value, -1.0, 1.0, 1.0, 1)
