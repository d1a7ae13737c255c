"""Documents are divided by nothing but their ids."""

from __future__ import annotations

import pytest

from hf_dense.data.splits import common_split, parse_shares, split_of
from hf_dense.errors import InputError


def test_shares_are_those_of_the_documents_and_a_seed_is_another_draw() -> None:
    shares = parse_shares("80/10/10")
    drawn = [split_of(f"document {at}", shares) for at in range(5000)]
    for name, share in shares.items():
        assert drawn.count(name) / 5000 == pytest.approx(share, abs=0.02)
    other = [split_of(f"document {at}", shares, seed=1) for at in range(5000)]
    assert sum(one != two for one, two in zip(drawn, other, strict=True)) == pytest.approx(5000 * 0.34, rel=0.1)
    assert {split_of(f"{at}", parse_shares("90/10/0")) for at in range(500)} == {"train", "dev"}


def test_a_query_is_in_the_split_of_all_its_documents() -> None:
    shares = parse_shares("50/50/0")
    by_split: dict[str, list[str]] = {}
    for name in "abcdefghij":
        by_split.setdefault(split_of(name, shares), []).append(name)
    assert {common_split(names, shares) for names in by_split.values()} == {"train", "dev"}
    assert common_split([names[0] for names in by_split.values()], shares) is None


@pytest.mark.parametrize("text", ["80/20", "80/10/20", "a/b/c", "-10/100/10", "nan/50/50", "", "80/10/10/0", "inf/0/0"])
def test_what_are_no_shares(text: str) -> None:
    with pytest.raises(InputError, match="not three percentages for train/dev/test, such as 80/10/10"):
        parse_shares(text)
