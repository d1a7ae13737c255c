"""Sections of documents as what passages are cut from."""

from __future__ import annotations

from hf_dense.data.sections import join_short


def test_empty_lines_divide_paragraphs_whatever_white_space_is_in_them() -> None:
    [part] = join_short([("", "a b\n \t\nc d\r\n\r\ne\nf\n\n\ng")], 8, lambda texts: [1 for _ in texts])
    assert part.paragraphs == ["a b", "c d", "e f", "g"]
