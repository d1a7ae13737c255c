"""The passages that queries are made of, document by document, and what is changed in them for their queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from numpy.typing import NDArray

from hf_dense.data.corpus import load_passages
from hf_dense.data.passages import read_positions
from hf_dense.data.schemas import CORPUS
from hf_dense.errors import InputError

_COLUMNS: Final = ("id", "title", "section", "text", "document", "position")
_ROWS: Final = 1_000  # read at once, or all those of a longer document
_WRITTEN: Final = 10_000  # written at once


@dataclass(frozen=True)
class Query:
    """A query that was made.

    Args:
        kind: how it was made.
        text: as it is searched for.
        origin: index, in its document, of the passage that it is called after.
        relevant: index of a passage in the document -> grade, above 0.
    """

    kind: str
    text: str
    origin: int
    relevant: dict[int, int]


@dataclass
class Document:
    """A document by its passages. What becomes a query is taken out of them, so that no passage repeats its query.

    Args:
        name: its id.
        title: also where it is taken out.
        rows: of its passages in the corpus, in their order in the document.
        ids: of its passages.
        sections: the headings that each stands under, "" for none.
        texts: of its passages; changed by what makes queries.
        chosen: whether queries are made of each.
        untitled: whether the title is taken out of the passages.
        gone: indices of passages that have become queries themselves and leave the corpus.
    """

    name: str
    title: str
    rows: list[int]
    ids: list[str]
    sections: list[str]
    texts: list[str]
    chosen: list[bool]
    untitled: bool = False
    gone: set[int] = field(default_factory=set)

    @property
    def left(self) -> list[int]:
        """Indices of the passages that stay in the corpus."""
        return [at for at in range(len(self.texts)) if at not in self.gone]


class Passages:
    """A corpus of passages, by document.

    Args:
        source: see `hf_dense.data.corpus.load_passages`. Without a column `document` every passage is one.

    Attributes:
        rows: the corpus as it was read.
        table: `id`, `title`, `section`, `document` of each passage, as strings.

    Raises:
        InputError: the corpus cannot be read, or two passages have the same id.
    """

    def __init__(self, source: str) -> None:
        self.rows = load_passages(source)
        self.table = _described(self.rows)
        if pc.count_distinct(self.table.column("id")).as_py() < len(self.rows):
            raise InputError(f"Two passages of {source} have the same id; every passage needs one of its own.")
        codes = self.table.column("document").combine_chunks().dictionary_encode().indices.to_numpy()
        positions = read_positions(self.rows) if "position" in self.rows.column_names else np.arange(len(self.rows))
        self._order = np.lexsort((positions, codes))  # by document, in the order in which they come
        self._starts = np.flatnonzero(np.diff(codes[self._order], prepend=-1))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def documents(self) -> int:
        """How many there are."""
        return len(self._starts)

    def choose(self, limit: int | None, seed: int) -> NDArray[np.bool_]:
        """(passages,) of which queries are made: all, or `limit` of them, drawn, spread over as many documents."""
        if limit is None or limit >= len(self):
            return np.ones(len(self), dtype=np.bool_)
        drawn = np.random.default_rng(seed).random(len(self))
        lengths = np.diff(self._starts, append=len(self))
        document = np.empty(len(self), dtype=np.int64)
        document[self._order] = np.repeat(np.arange(self.documents), lengths)
        shuffled = np.lexsort((drawn, document))
        rank = np.empty(len(self), dtype=np.int64)  # of a passage among those of its document, drawn
        rank[shuffled] = np.arange(len(self)) - np.repeat(self._starts, lengths)
        chosen = np.zeros(len(self), dtype=np.bool_)
        chosen[np.lexsort((drawn, rank))[:limit]] = True
        return chosen

    def documents_of(self, chosen: NDArray[np.bool_]) -> int:
        """In how many documents passages were chosen."""
        return int(np.logical_or.reduceat(chosen[self._order], self._starts).sum())

    def read(self, chosen: NDArray[np.bool_]) -> Iterator[Document]:
        """The documents with a passage that was chosen, whole."""
        ends = np.append(self._starts[1:], len(self))
        waiting: list[NDArray[np.int64]] = []
        for start, end in zip(self._starts, ends, strict=True):
            rows = self._order[start:end]
            if chosen[rows].any():
                waiting.append(rows)
            if sum(map(len, waiting)) >= _ROWS:
                yield from self._documents(waiting, chosen)
                waiting = []
        if waiting:
            yield from self._documents(waiting, chosen)

    def _documents(self, parts: list[NDArray[np.int64]], chosen: NDArray[np.bool_]) -> Iterator[Document]:
        together = np.concatenate(parts)
        texts = iter(self.rows[together]["text"])
        described = self.table.take(pa.array(together))
        found = {name: iter(described.column(name).to_pylist()) for name in described.column_names}
        for rows in parts:
            own = {name: [next(values) for _ in rows] for name, values in found.items()}
            yield Document(
                name=own["document"][0],
                title=own["title"][0],
                rows=rows.tolist(),
                ids=own["id"],
                sections=own["section"],
                texts=[" ".join((next(texts) or "").split()) for _ in rows],
                chosen=chosen[rows].tolist(),
            )

    def changed(self, changes: Changes) -> Iterator[pa.Table]:
        """The passages as they are written: those that are left, with their changed titles and texts."""
        there = [name for name in _COLUMNS if name in (*self.rows.column_names, "id", "title")]
        schema = pa.schema([CORPUS.arrow_schema.field(name) for name in there])
        plain = [name for name in there if name in ("text", "position")]
        rows = self.rows.select_columns(plain).with_format("arrow")
        for start in range(0, len(self), _WRITTEN):
            end = min(start + _WRITTEN, len(self))
            table = rows[start:end]
            columns = {name: table.column(name) for name in plain}
            columns |= {name: self.table.column(name).slice(start, end - start) for name in there if name not in plain}
            read = {name: columns[name].to_pylist() for name in ("title", "text")}
            for at in changes.rows.keys() & range(start, end):
                read["title"][at - start], read["text"][at - start] = changes.rows[at]
            kept = pa.array([at not in changes.gone for at in range(start, end)])
            yield pa.table({name: read.get(name, columns[name]) for name in there}).cast(schema).filter(kept)


@dataclass
class Changes:
    """What is written differently from what was read.

    Attributes:
        rows: passage -> its title and text.
        gone: passages that are left out.
    """

    rows: dict[int, tuple[str, str]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)

    def note(self, document: Document) -> None:
        """Take over what has become of a document."""
        self.gone.update(document.rows[at] for at in document.gone)
        title = "" if document.untitled else document.title
        self.rows |= {row: (title, text) for row, text in zip(document.rows, document.texts, strict=True)}


def _words(rows: Dataset, name: str) -> pa.ChunkedArray:
    """A column as text; no row becomes an object of Python's."""
    column = rows.select_columns([name]).with_format("arrow")[:].column(name)
    try:
        return column.cast(pa.string())
    except pa.ArrowException as error:
        raise InputError(f"The column {name!r} of the corpus holds {column.type}, which is no text.") from error


def _described(rows: Dataset) -> pa.Table:
    """What is known of each passage beside its text and position."""
    names = {name: name for name in ("id", "title", "section", "document") if name in rows.column_names}
    if "id" not in names and "_id" in rows.column_names:
        names["id"] = "_id"
    columns = {name: _words(rows, column) for name, column in names.items()}
    numbers = pa.chunked_array([pa.array(range(len(rows))).cast(pa.string())])
    ids = pc.coalesce(columns["id"], numbers) if "id" in columns else numbers
    empty = pa.chunked_array([pa.array([""] * len(rows), pa.string())])
    texts = {name: columns[name].fill_null("") if name in columns else empty for name in ("title", "section")}
    documents = pc.coalesce(columns["document"], ids) if "document" in columns else ids
    return pa.table({"id": ids, **texts, "document": documents})
