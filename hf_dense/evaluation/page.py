"""A page of headings, paragraphs, tables and pictures: one HTML file that needs nothing beside it, or Markdown."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hf_dense.storage.markdown import markdown_table

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ccc; }
h3 { font-size: 1rem; margin-top: 1.6rem; }
pre { background: #f4f4f4; padding: 0.6rem 0.8rem; overflow-x: auto; }
.wide { overflow-x: auto; } img { max-width: 100%; }
table { border-collapse: collapse; margin: 0.8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.7rem; text-align: start; vertical-align: top; border-bottom: 1px solid #e4e4e4;
  overflow-wrap: break-word; }
th { background: #f4f4f4; } td:first-child { white-space: nowrap; }
p, th, td, h1, h2, h3 { unicode-bidi: plaintext; }
"""


@dataclass(frozen=True)
class Heading:
    """A title of a part of the page; `level` 2 is the greatest."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Code:
    """Lines to be typed as they are."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows of cells; `head` may be of empty cells."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A PNG file, in whose place Markdown names it."""

    png: bytes
    description: str


Block = str | Heading | Code | Table | Picture  # a string is a paragraph


def as_html(title: str, blocks: Sequence[Block]) -> str:
    """The whole page; texts may hold anything, nothing in them is run."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{html.escape(title)}</h1>",
            *map(_block_as_html, blocks),
            "</body></html>\n",
        ]
    )


def _block_as_html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, Code):
        return f"<pre>{html.escape(block.text)}</pre>"
    if isinstance(block, Picture):
        data = base64.b64encode(block.png).decode("ascii")
        return f'<img alt="{html.escape(block.description)}" src="data:image/png;base64,{data}">'
    if isinstance(block, Table):
        rows = [_row_as_html(row, "td") for row in block.rows]
        head = [_row_as_html(block.head, "th")] if any(block.head) else []
        return "\n".join(['<div class="wide"><table>', *head, *rows, "</table></div>"])
    return f"<p>{html.escape(block)}</p>"


def _row_as_html(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def as_markdown(title: str, blocks: Sequence[Block]) -> str:
    """The same, with the names of pictures."""
    written = [_block_as_markdown(block) for block in blocks]
    return "\n\n".join([f"# {_escaped(title)}", *written]) + "\n"


def _block_as_markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {_escaped(block.text)}"
    if isinstance(block, Picture):
        return f"*{_escaped(block.description)}: a picture, on the HTML page.*"
    if isinstance(block, Code):
        return "\n".join(f"    {line}" for line in block.text.splitlines())
    if isinstance(block, Table):
        head, *rows = [[_escaped(cell) for cell in row] for row in (block.head, *block.rows)]
        return markdown_table(head, rows)
    return _escaped(block)


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is; tables see to their bars."""
    return re.sub(r"([\\`*_\[\]])", r"\\\1", html.escape(" ".join(text.split()), quote=False))
