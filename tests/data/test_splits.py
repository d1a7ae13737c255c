"""Documents are divided by nothing but their ids."""

from __future__ import annotations

import pytest

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


def test_a_query_is_in_the_split_of_all_its_documents() -> None:
    splits = divide_documents("abcdefghij", parse_shares("50/50/0"))
    by_split: dict[str, list[str]] = {}
    for name, split in splits.items():
        by_split.setdefault(split, []).append(name)
    assert {common_split(names, splits) for names in by_split.values()} == {"train", "dev"}
    assert common_split([names[0] for names in by_split.values()], splits) is None


@pytest.mark.parametrize("text", ["80/20", "80/10/20", "a/b/c", "-10/100/10", "nan/50/50", "", "80/10/10/0", "inf/0/0"])
def test_what_are_no_shares(text: str) -> None:
    with pytest.raises(InputError, match="not three percentages for train/dev/test, such as 80/10/10"):
        parse_shares(text)
