"""Jupyter notebooks, by nbformat: their Markdown and their code; what the code gave is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from warnings import catch_warnings

from hf_dense.data.readers.markdown import markdown_blocks
from hf_dense.data.readers.page import Block, Code, CodeOption, Page, UnreadableError, build_page


def read_notebook(content: str, code: CodeOption) -> Page:
    """The page of a notebook.

    Raises:
        UnreadableError: it is none.
    """
    import nbformat

    try:
        with catch_warnings(action="ignore", category=nbformat.warnings.MissingIDFieldWarning):
            notebook: Any = nbformat.reads(content, as_version=4)
    except Exception as error:  # nbformat raises whatever it comes to over a broken file
        raise UnreadableError from error
    return build_page(_blocks(notebook), code=code)


def _blocks(notebook: Any) -> Iterator[Block]:
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield from markdown_blocks(cell.source)
        elif cell.cell_type == "code":
            yield Code(cell.source)
