"""Passages by whatever names them: a published corpus, a table of passages, or documents, which are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
from datasets import Dataset
from pyarrow import parquet

from hf_dense.data.collections import check_passages, folder_of, holds_corpus, plain_columns
from hf_dense.data.corpus import table_files, table_rows
from hf_dense.data.documents import DocumentReader
from hf_dense.data.engines import Engine
from hf_dense.data.passage_corpus import Cutting, listed, write_passages
from hf_dense.data.schemas import CORPUS
from hf_dense.errors import InputError, first_line
from hf_dense.storage.fingerprints import fingerprint_files
from hf_dense.storage.places import Source

BATCH: Final = 10_000  # rows read at once
_PLAIN: Final = pa.schema([CORPUS.arrow_schema.field(name) for name in ("id", "title", "text")])

Tables = Callable[[], Iterator[pa.Table]]  # the passages, from the first one


@dataclass(frozen=True)
class PassageSource:
    """Passages that can be opened.

    Args:
        open: given a folder for what lies between, and counts that are added to.
        sources: what they are made from, for a manifest.
        read: what was read and left out of rows that are passages as they are; it is of the last time that they were.
    """

    open: Callable[[Path, Counter[str]], Tables]
    sources: Mapping[str, Source]
    read: Counter[str] = field(default_factory=Counter)


def find_source(name: str, out: Path, cutting: Mapping[str, Any] | None = None) -> PassageSource:
    """The passages of a corpus.

    Args:
        name: a published corpus, or one in BEIR layout; a table, whose rows are passages unless there is a `cutting`;
            or a source with files of text, which are cut as `hf-dense data passages` does by default: they have the
            same ids.
        out: what is written, which may not lie among the documents.
        cutting: of another corpus that documents are read and cut like, as `cutting_of` has it.

    Raises:
        InputError: there is nothing, or passages without an id of their own, or without text.
    """
    folder = folder_of(name) if holds_corpus(name) else Path(name)
    files = table_files(folder)
    if files and files[0].suffix == ".parquet":
        check_passages(files)
        source = Source(name, fingerprint_files(files, folder))
        return PassageSource(lambda pieces, counts: lambda: _stored(files), {"corpus": source})
    given = {name: value for name, value in (cutting or {}).items() if name != "fingerprint"}
    reader = DocumentReader(name, columns=given.pop("columns", None), code=given.pop("code", "keep"))
    sources = {"corpus": reader.made_from(out)["documents"]}

    def cut(pieces: Path, counts: Counter[str]) -> Tables:
        folder = pieces / "corpus"
        counts.update(write_passages(reader, folder, pieces, Cutting(**given), Engine())[0])
        return lambda: _stored(sorted(folder.glob("*.parquet")))

    def as_they_are(pieces: Path, counts: Counter[str]) -> Tables:
        return lambda: plain_tables({"id": row.id, "title": row.title, "text": row.text} for row in reader)

    if reader.pages or cutting is not None:
        return PassageSource(cut, sources)
    return PassageSource(as_they_are, sources, reader.counts)


def given_passages(passages: Mapping[str, tuple[str, str]]) -> PassageSource:
    """Passages that are at hand: title and text by id."""

    def rows() -> Iterator[Mapping[str, str]]:
        return ({"id": name, "title": title, "text": text} for name, (title, text) in passages.items())

    return PassageSource(lambda pieces, counts: lambda: plain_tables(rows()), {})


def load_source(name: str, out: Path, cutting: Mapping[str, Any] | None = None) -> tuple[Dataset, Counter[str]]:
    """The passages of a corpus in memory, and what was read and left out by reason; see `find_source`.

    Raises:
        InputError: there is nothing, or none is left.
    """
    counts, source = Counter[str](), find_source(name, out, cutting)
    with TemporaryDirectory() as folder:
        tables = source.open(Path(folder), counts)
        found = [pa.Table.from_batches(table.to_batches()) for table in tables()]
    counts = counts or source.read
    if not found:
        why = listed(counts) or "it is empty"
        raise InputError(f"{name} holds no passage that can be read: {why}; name a corpus that has texts.")
    return table_rows(pa.concat_tables(found)), counts


def plain_tables(rows: Iterable[Mapping[str, Any]]) -> Iterator[pa.Table]:
    """Rows of id, title and text as tables."""
    return (pa.Table.from_pylist(part, schema=_PLAIN) for part in in_batches(rows))


def in_batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Rows, many at once."""
    left = iter(rows)
    while part := list(islice(left, BATCH)):
        yield part


def _stored(files: Sequence[Path]) -> Iterator[pa.Table]:
    """The passages of a published corpus, with the documents and sections that they were cut from.

    Raises:
        InputError: a column holds something else than text.
    """
    for file in files:
        with parquet.ParquetFile(file) as opened:
            written = dict(zip(plain_columns(opened.schema_arrow.names), opened.schema_arrow.names, strict=True))
            columns = {name: written[name] for name in CORPUS if name in written and name != "split"}
            schema = pa.schema([CORPUS.arrow_schema.field(name) for name in columns])
            for batch in opened.iter_batches(batch_size=BATCH, columns=[*columns.values()]):
                try:
                    table = pa.Table.from_batches([batch]).select([*columns.values()])
                    table = table.rename_columns([*columns]).cast(schema)
                except pa.ArrowException as error:
                    raise InputError(f"{file} cannot be read: {first_line(error)}") from error
                yield table
