"""Is one retriever better than another, or was it luck with the queries?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import bootstrap, permutation_test

from hf_dense.errors import InputError


@dataclass(frozen=True)
class Comparison:
    """A paired comparison of two retrievers on the same queries.

    Attributes:
        difference: mean over the queries of first minus second.
        low: lower end of the 95 % bootstrap (percentile) interval of `difference`; -1 for one query, which tells
            nothing of others.
        high: upper end; 1 for one query.
        p_value: two-sided, of the paired randomisation test; never below 2 / (resamples + 1) when drawn at random.
        queries: how many were compared.
    """

    difference: float
    low: float
    high: float
    p_value: float
    queries: int


def compare_paired(
    first: Mapping[str, float], second: Mapping[str, float], *, resamples: int = 10_000, seed: int = 0
) -> Comparison:
    """Test whether two retrievers differ in a metric, by flipping at random the sign of each query's difference.

    Args:
        first: query id -> value of the metric for one retriever.
        second: the same for the other, over the same queries.
        resamples: sign flips drawn, and bootstrap samples drawn.
        seed: of both draws.

    Returns:
        Difference, interval and p-value.

    Raises:
        InputError: the two do not cover the same queries, or there is none.

    >>> compare_paired({"a": 0.5, "b": 1.0}, {"a": 0.5, "b": 1.0}).p_value
    1.0
    """
    if set(first) != set(second):
        raise InputError("The two results cover different queries; evaluate both on the same split.")
    if not first:
        raise InputError("A comparison needs a query.")
    differences = np.array([first[query] - second[query] for query in sorted(first)], dtype=np.float64)
    mean = float(differences.mean())
    if len(differences) == 1:
        return Comparison(difference=mean, low=-1.0, high=1.0, p_value=1.0, queries=1)
    if not differences.any():
        return Comparison(difference=0.0, low=0.0, high=0.0, p_value=1.0, queries=len(differences))
    drawn = {"n_resamples": resamples, "vectorized": True, "batch": 256}
    data, rng = (differences,), np.random.default_rng
    test = permutation_test(data, np.mean, permutation_type="samples", rng=rng(seed), **drawn)
    interval = bootstrap(data, np.mean, method="percentile", rng=rng(seed), **drawn).confidence_interval
    return Comparison(mean, float(interval.low), float(interval.high), float(test.pvalue), len(differences))
