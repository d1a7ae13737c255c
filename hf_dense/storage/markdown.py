"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Container[int] = ()) -> str:
    """A table in Markdown, without a line break at its end.

    Args:
        head: names of the columns.
        rows: cells, of any text.
        numbers: indices of the columns that hold numbers, which stand at the right.

    >>> print(markdown_table(["", "MRR@10"], [["BM25", "0.5"]], numbers={1}))
    |  | MRR@10 |
    | --- | ---: |
    | BM25 | 0.5 |
    """
    rule = ["---:" if column in numbers else "---" for column in range(len(head))]
    lines = ([escaped(cell) for cell in cells] for cells in (head, rule, *rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escaped(cell: str) -> str:
    """A text as it stands in the cell of a table."""
    return cell.replace("|", "\\|")
