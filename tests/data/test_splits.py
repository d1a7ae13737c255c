"""Documents are divided by nothing but their ids."""

from __future__ import annotations

from collections import Counter

import pytest

from hf_dense.data import splits
from hf_dense.data.splits import common_split, divide_documents, parse_shares
from hf_dense.errors import InputError


def test_shares_are_those_of_the_documents_and_a_seed_is_another_draw() -> None:
    shares, documents = parse_shares("80/10/10"), [f"document {at}" for at in range(5000)]
    drawn, other = divide_documents(documents, shares), divide_documents(documents, shares, seed=1)
    for name, share in shares.items():
        assert [*drawn.values()].count(name) / 5000 == pytest.approx(share, abs=0.02)
    assert sum(drawn[name] != other[name] for name in documents) == pytest.approx(5000 * 0.34, rel=0.1)
    assert set(divide_documents(documents, parse_shares("90/10/0")).values()) == {"train", "dev"}
    fewer = divide_documents(documents[:4000], shares)
    assert fewer == {name: drawn[name] for name in documents[:4000]}, "one moved when others were added"


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("seed", range(10))
def test_few_documents_are_divided_too(number: int, seed: int) -> None:
    shares, documents = parse_shares("98/1/1"), [f"document {at}" for at in range(number)]
    divided = divide_documents(documents, shares, seed)
    assert divided.keys() == set(documents)
    expected = ["train"] * max(number - 2, min(number, 1)) + ["dev"] * (number > 1) + ["test"] * (number > 2)
    assert sorted(divided.values()) == sorted(expected)
    assert divide_documents(reversed(documents), shares, seed) == divided


@pytest.mark.parametrize("seed", range(10))
def test_of_dozens_of_documents_every_split_has_a_good_part_of_its_queries(seed: int) -> None:
    shares = parse_shares("80/10/10")
    documents = [f"document {at}" for at in range(40) for _ in range(1 + at % 13)]
    divided = divide_documents(documents, shares, seed)
    have = Counter(divided[name] for name in documents)
    assert all(have[name] >= share * len(documents) / 2 for name, share in shares.items()), have


def test_the_first_draw_stays_where_it_is_even(monkeypatch: pytest.MonkeyPatch) -> None:
    shares, documents = parse_shares("80/10/10"), [f"document {at}" for at in range(2000)]
    divided = divide_documents(documents, shares, seed=3)
    monkeypatch.setattr(splits, "_DRAWS", 1)
    assert divide_documents(documents, shares, seed=3) == divided


def test_a_query_is_in_the_split_of_all_its_documents() -> None:
    divided = divide_documents("abcdefghij", parse_shares("50/50/0"))
    by_split: dict[str, list[str]] = {}
    for name, split in divided.items():
        by_split.setdefault(split, []).append(name)
    assert {common_split(names, divided) for names in by_split.values()} == {"train", "dev"}
    assert common_split([names[0] for names in by_split.values()], divided) is None


@pytest.mark.parametrize("text", ["80/20", "80/10/20", "a/b/c", "-10/100/10", "nan/50/50", "", "80/10/10/0", "inf/0/0"])
def test_what_are_no_shares(text: str) -> None:
    with pytest.raises(InputError, match="not three percentages for train/dev/test, such as 80/10/10"):
        parse_shares(text)
