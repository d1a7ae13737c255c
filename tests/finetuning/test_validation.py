"""Which queries are held out, and which are trained on."""

from __future__ import annotations

import pytest
from datasets import Dataset

from hf_dense.errors import InputError
from hf_dense.finetuning.lists import Entry, PassageLists
from hf_dense.finetuning.validation import QueryShares, validation_ranking

ENTRIES = [Entry(f"q{at:05}", f"what {at}", ("p",)) for at in range(10_000)]  # ids of one length


@pytest.mark.parametrize(("fraction", "validation"), [(0.1, 0.2), (0.5, 0.1), (1.0, 0.3)])
def test_queries_held_out_are_a_share_of_those_that_are_used(fraction: float, validation: float) -> None:
    shares = QueryShares(fraction, validation, 42)
    trained, held = shares.trained_on(ENTRIES), shares.held_out(ENTRIES)
    used = 10_000 * fraction
    assert abs(len(held) - used * validation) < 0.2 * used * validation
    assert abs(len(trained) + len(held) - used) < 0.1 * used
    assert not {entry.id for entry in trained} & {entry.id for entry in held}
    more = QueryShares(1.0, validation, 42)
    assert {entry.id for entry in held} <= {entry.id for entry in more.held_out(ENTRIES)}
    assert {entry.id for entry in trained} <= {entry.id for entry in more.trained_on(ENTRIES)}


def test_queries_of_the_same_words_are_held_out_together() -> None:
    entries = [
        Entry(f"q{at:05}", ["What is {}?", "what  is {}?"][at % 2].format(at // 2), ("p",)) for at in range(2000)
    ]
    shares = QueryShares(1.0, 0.1, 42)
    trained, held = shares.trained_on(entries), shares.held_out(entries)
    assert len(trained) + len(held) == len(entries)
    assert not {entry.query.lower().split()[2] for entry in trained} & {entry.query.split()[2] for entry in held}
    alone = QueryShares(1.0, 0.1, 42).held_out(entries[::2])
    assert {entry.id for entry in alone} <= {entry.id for entry in held}, "the others' draws stay"


def test_a_share_that_holds_no_query_is_refused() -> None:
    with pytest.raises(InputError, match="The share validation 1e-09 of the training queries holds none"):
        QueryShares(1.0, 1e-9, 0).held_out(ENTRIES[:5])


def test_queries_held_out_without_a_negative_rank_nothing() -> None:
    corpus = Dataset.from_dict({"id": ["p"], "title": [""], "text": ["a passage"]})
    with pytest.raises(InputError, match="None of the 5 queries held out has a negative to rank the positive above"):
        validation_ranking(ENTRIES[:5], PassageLists([], corpus, 1, 0))
