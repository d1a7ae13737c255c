from __future__ import annotations

from hf_dense.storage.markdown import markdown_table


def test_a_cell_keeps_its_bars_to_itself() -> None:
    assert markdown_table(["", "a|b"], [["x | y", "1"]], numbers={1}).splitlines() == [
        r"|  | a\|b |",
        "| --- | ---: |",
        r"| x \| y | 1 |",
    ]
