"""What may be asked of an adaptation."""

from __future__ import annotations

from typing import Any

import pytest

from hf_dense.errors import InputError
from hf_dense.experiments.adaptation.options import PLAIN, TRIED, AdaptOptions
from hf_dense.methods import METHODS


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"budget": "soon"}, "write a time such as 10m"),
        ({"budget": "10"}, "write a time such as 10m"),
        ({"budget": "20s"}, "less than a minute"),
        ({"method": "bert"}, "allowed: auto, none, condenser"),
        ({"length": 4}, "at least 16 tokens"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_loaded(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        AdaptOptions("docs", "out", **given)


def test_a_budget_is_one_however_it_is_written() -> None:
    kept = {AdaptOptions("docs", "out", budget=budget).budget for budget in ("2m", "120s", "1m60s", "2.0m")}
    assert kept == {"2m"}
    assert AdaptOptions("docs", "out", budget="1000000.5h").seconds == 3_600_001_800


def test_auto_tries_several() -> None:
    assert AdaptOptions("docs", "out", method="auto").methods == ("retromae", "dupmae")
    assert AdaptOptions("docs", "out", method="cotmae").methods == ("cotmae",)
    assert AdaptOptions("docs", "out", method="none").methods == ()


def test_plain_methods_read_passages_and_their_neighbours_alone() -> None:
    reading = {name for name, method in METHODS.items() if set(method.config().sources) <= {"text", "neighbour"}}
    assert set(PLAIN) == reading
    assert set(TRIED) <= reading
