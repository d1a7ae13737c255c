"""Documents out of whatever holds them, one after the other, in memory that does not grow.

A document that cannot be read is left out and counted under the reason; the rest goes on.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from pyarrow import ArrowException
from pyarrow.parquet import ParquetFile

from hf_dense.data.corpus import table_files
from hf_dense.data.pages import PAGES, UnreadableError, read_page
from hf_dense.errors import InputError
from hf_dense.storage.fingerprints import fingerprint_files, fingerprint_values
from hf_dense.storage.places import Source

MAX_BYTES: Final = 10_000_000  # of one document; books are below 5 million characters

_IDS: Final = ("id", "_id", "docid", "doc_id", "document_id", "pid")
_TITLES: Final = ("title", "name")
_TEXTS: Final = ("text", "contents", "content", "body", "passage", "paragraphs")
_TABLES: Final = (".jsonl", ".parquet", ".csv", ".tsv")
_LINES: Final = 1024  # rows of a Parquet file read at once

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TextDocument:
    """A document: its paragraphs are divided by empty lines in `text`."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class _Opened:
    """A source that is there.

    Args:
        read: its documents.
        fingerprint: of what is read.
        whole: whether it is a folder, all documents of which are read.
    """

    read: Callable[[], Iterator[TextDocument]]
    fingerprint: Callable[[], str]
    whole: bool = False


class DocumentReader:
    """The documents of one or several sources, in their order.

    Args:
        sources: each a folder of .txt, .md, .html and .pdf files; a .jsonl, .parquet, .csv or .tsv file (also .gz) or a
            folder of them; a collection in published form or BEIR layout; or a dataset of the Hub (`name` or
            `name:configuration`). A .tsv file is MS MARCO's documents (docid, url, title, body), its passages (pid,
            passage) or DPR's psgs_w100 (with its header). Columns are found by their usual names.
        columns: where they have other names: `{"id": ..., "title": ..., "text": ...}`.
        split: of a Hub dataset.

    Attributes:
        counts: documents read, and left out by reason: `broken UTF-8`, `empty`, `too long` (10 MB), `unreadable`
            (not JSON, a broken PDF, ...), `duplicate id`.

    Raises:
        InputError: there is nothing at a source, or it has no column of texts.
    """

    def __init__(self, *sources: str, columns: Mapping[str, str] | None = None, split: str = "train") -> None:
        self.sources = sources
        self.columns = dict(columns or {})
        self.split = split
        self.counts: Counter[str] = Counter()
        self.opened = [self._open(source) for source in sources]

    def __iter__(self) -> Iterator[TextDocument]:
        seen: set[bytes] = set()
        for document in (document for opened in self.opened for document in opened.read()):
            if not document.text.strip():
                self.counts["empty"] += 1
                continue
            key = hashlib.blake2b(document.id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            if key in seen:
                self.counts["duplicate id"] += 1
                continue
            seen.add(key)
            self.counts["documents read"] += 1
            yield document

    def made_from(self, out: Path) -> dict[str, Source]:
        """The sources, for the manifest of an output: fingerprints of the very files that are read.

        Raises:
            InputError: `out` lies inside a folder that is read whole, so that it would be read by the next run.
        """
        found: dict[str, Source] = {}
        for number, (source, opened) in enumerate(zip(self.sources, self.opened, strict=True), start=1):
            if opened.whole and Path(source).resolve() in out.resolve().parents:
                raise InputError(f"{out} lies inside {source}, all of which is read; name a directory outside of it.")
            found["documents" if number == 1 else f"documents {number}"] = Source(source, opened.fingerprint())
        return found

    def _open(self, source: str) -> _Opened:
        path = Path(source)
        if path.is_dir():
            files = _files_of(path)
            if not files:
                raise InputError(f"The folder {path} holds no documents ({', '.join((*PAGES, *_TABLES))}).")
            return self._local(files, path, whole=not table_files(path))
        if path.is_file():
            return self._local([path], path.parent)
        if path.is_absolute() or source.startswith(".") or source.count("/") > 1:
            raise InputError(f"The source {source} does not exist.")
        return self._published(source)

    def _local(self, files: list[Path], folder: Path, whole: bool = False) -> _Opened:
        def read() -> Iterator[TextDocument]:
            return (document for file in files for document in self._file(file, folder))

        return _Opened(read, lambda: fingerprint_files(files, folder), whole)

    def _published(self, source: str) -> _Opened:
        """A dataset of the Hub, streamed."""
        from datasets import load_dataset_builder
        from datasets.exceptions import DatasetNotFoundError

        name, _, configuration = source.partition(":")
        try:
            builder = load_dataset_builder(name, configuration or None)
            rows = builder.as_streaming_dataset(split=self.split)
        except (DatasetNotFoundError, FileNotFoundError, ConnectionError, ValueError) as error:
            raise InputError(
                f"{source!r} is neither a path nor a dataset of the Hub to be reached (split {self.split!r})."
            ) from error
        splits: Mapping[str, list[str]] = builder.config.data_files
        files = splits[self.split] if self.split in splits else [file for split in splits.values() for file in split]
        return _Opened(lambda: self._documents(iter(rows), name), lambda: _fingerprint_published(name, files))

    def _file(self, path: Path, folder: Path) -> Iterator[TextDocument]:
        name = path.relative_to(folder).as_posix()
        kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
        if kind in PAGES:
            yield from self._page(path, name)
        elif kind == ".parquet":
            yield from self._documents(_parquet_rows(path), name)
        elif kind == ".jsonl":
            yield from self._documents(self._json_rows(path), name)
        elif kind == ".csv":
            yield from self._documents(self._csv_rows(path), name)
        elif kind == ".tsv":
            yield from self._documents(self._tsv_rows(path), name)
        else:
            raise InputError(f"{path} is of no known kind; give one of: {', '.join((*PAGES, *_TABLES))}.")

    def _page(self, path: Path, name: str) -> Iterator[TextDocument]:
        if path.stat().st_size > MAX_BYTES and path.suffix != ".pdf":
            self.counts["too long"] += 1
            return
        try:
            title, text = read_page(path)
        except UnicodeDecodeError:
            self.counts["broken UTF-8"] += 1
        except UnreadableError:
            self.counts["unreadable"] += 1
        else:
            yield TextDocument(name, title or path.stem, text)

    def _documents(self, rows: Iterator[Row], name: str) -> Iterator[TextDocument]:
        """Rows with columns as documents; a row without id is called after its file and its number there."""
        chosen: dict[str, str | None] | None = None
        for index, row in enumerate(rows):
            chosen = chosen or self._columns_of(row, name)
            text = row.get(chosen["text"] or "")
            if isinstance(text, list):
                text = "\n\n".join(str(paragraph) for paragraph in text)
            key = row.get(chosen["id"]) if chosen["id"] else None
            title = row.get(chosen["title"]) if chosen["title"] else None
            document = TextDocument(f"{name}-{index}" if key is None else str(key), str(title or ""), str(text or ""))
            if any("\ud800" <= letter <= "\udfff" for letter in document.text):
                self.counts["broken UTF-8"] += 1
            elif len(document.text) > MAX_BYTES:
                self.counts["too long"] += 1
            else:
                yield document

    def _columns_of(self, row: Row, name: str) -> dict[str, str | None]:
        """Which column holds what."""
        known = {"id": _IDS, "title": _TITLES, "text": _TEXTS}
        chosen = {
            role: self.columns.get(role) or next((usual for usual in usuals if usual in row), None)
            for role, usuals in known.items()
        }
        wrong = [column for column in self.columns.values() if column not in row]
        if wrong or chosen["text"] is None:
            lacking = repr(wrong[0]) if wrong else "of texts (" + ", ".join(_TEXTS) + ")"
            raise InputError(f"{name} has no column {lacking}; it has: {', '.join(row)}. Name the columns to read.")
        return chosen

    def _json_rows(self, path: Path) -> Iterator[Row]:
        for line in self._lines(path):
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                row = None
            if isinstance(row, dict):
                yield row
            else:
                self.counts["unreadable"] += 1

    def _csv_rows(self, path: Path) -> Iterator[Row]:
        csv.field_size_limit(min(MAX_BYTES, sys.maxsize))
        with _open(path) as stream:
            # Bytes that are no UTF-8 become surrogates, by which the row is found out.
            text = (line.decode("utf-8", "surrogateescape") for line in stream)
            rows = csv.DictReader(text, strict=True)
            while True:
                try:
                    yield next(rows)
                except StopIteration:
                    return
                except csv.Error as error:
                    self.counts["too long" if "limit" in str(error) else "unreadable"] += 1

    def _tsv_rows(self, path: Path) -> Iterator[Row]:
        names: tuple[str, ...] | None = None
        for line in self._lines(path):
            fields = line.split("\t")
            if names is None:
                if fields == ["id", "text", "title"]:
                    names = ("id", "text", "title")
                    continue
                names = {4: ("id", "url", "title", "text"), 2: ("id", "text")}.get(len(fields))
                if names is None:
                    raise InputError(
                        f"{path} has {len(fields)} columns; a .tsv file is MS MARCO's documents (4), its passages (2), "
                        "or DPR's psgs_w100 with its header."
                    )
            if len(fields) != len(names):
                self.counts["unreadable"] += 1
                continue
            row = dict(zip(names, fields, strict=True))
            if row["text"].startswith('"') and row["text"].endswith('"'):  # psgs_w100 quotes as CSV does
                row["text"] = row["text"][1:-1].replace('""', '"')
            yield row

    def _lines(self, path: Path) -> Iterator[str]:
        """Lines of a UTF-8 file; none longer than `MAX_BYTES` is ever held."""
        with _open(path) as stream:
            while line := stream.readline(MAX_BYTES + 1):
                if len(line) > MAX_BYTES and not line.endswith(b"\n"):
                    self.counts["too long"] += 1
                    while (rest := stream.readline(MAX_BYTES)) and not rest.endswith(b"\n"):
                        pass
                    continue
                try:
                    text = line.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError:
                    self.counts["broken UTF-8"] += 1
                    continue
                if text.strip():
                    yield text


def _files_of(folder: Path) -> list[Path]:
    """The files that make up a source: a collection's corpus, or all files of a kind that is known."""
    known = (*PAGES, *_TABLES)
    return table_files(folder) or sorted(path for path in folder.rglob("*") if path.suffix in known and path.is_file())


def _fingerprint_published(name: str, files: list[str]) -> str:
    """Of files on the Hub, whose digests it knows, and of the name that rows without id are called after."""
    from huggingface_hub import HfApi, HfFileSystem

    parts: list[Any] = [HfFileSystem().resolve_path(file) for file in files]
    paths = [part.path_in_repo for part in parts]
    found: Any = HfApi().get_paths_info(parts[0].repo_id, paths, revision=parts[0].revision, repo_type="dataset")
    digests = {file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in found}
    return fingerprint_values({"name": name, "files": [[path, digests[path]] for path in paths]})


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        for batch in ParquetFile(path).iter_batches(batch_size=_LINES):
            yield from batch.to_pylist()
    except (ArrowException, OSError) as error:
        raise InputError(f"{path} is not a Parquet file that can be read: {str(error).splitlines()[0]}") from error


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
