from __future__ import annotations

import pytest

from hf_dense.evaluation.cases import shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("so  short", "so short"),
        ("see ...", "see ..."),
        ("word " * 100, "word " * 79 + "..."),
        ("d.md#1: " + "退货" * 400, "d.md#1: " + "退货" * 194 + " ..."),
    ],
)
def test_long_texts_are_cut_and_not_lost_where_they_have_no_spaces(text: str, shown: str) -> None:
    assert shortened(text) == shown
