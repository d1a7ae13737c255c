"""Reading a corpus of passages, of whatever form: a directory, a file, a Hub dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pandas  # type: ignore[import-untyped]
import pyarrow as pa
from datasets import (
    Dataset,
    DatasetBuilder,
    DatasetDict,
    Features,
    IterableDataset,
    IterableDatasetDict,
    LargeList,
    List,
    Value,
    load_dataset,
    load_dataset_builder,
)
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError
from pyarrow.dataset import ParquetFragmentScanOptions

from hf_dense.data.hub_names import divided
from hf_dense.data.readers.kinds import KINDS
from hf_dense.data.rows import broken_line, check_lines, divider_of
from hf_dense.errors import InputError
from hf_dense.storage.fingerprints import fingerprint_values

Rows = TypeVar("Rows", Dataset, IterableDataset)
_ABOUT = ("README", "LICENSE", "NOTICE", "CHANGELOG")
_LISTS = (List, LargeList)
_TEXTS = ("string", "large_string", "string_view")  # as other writers of Parquet have them, too
_FILES = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv", ".txt": "text"}


def load_passages(source: str, text_column: str = "text") -> Dataset:
    """Read a corpus of passages, mapped from disk.

    Args:
        source: a dataset directory of this package or BEIR layout, a .jsonl/.parquet/.csv/.txt file, or a Hub
            dataset, `owner/name[@revision]`.
        text_column: the column holding the text; it is called `text` from here on, in place of another of that name.

    Returns:
        The passages, with all their columns.

    Raises:
        InputError: nothing is there, it is empty, or the column is missing.
    """
    corpus = _open(source, streaming=False)
    assert isinstance(corpus, Dataset)
    if len(corpus) == 0:
        raise InputError(f"The corpus {source} is empty.")
    return _with_text(corpus, source, corpus.column_names, text_column)


def stream_passages(source: str, text_column: str = "text") -> IterableDataset:
    """As `load_passages`, but the rows are read as they are asked for, also from the Hub.

    Raises:
        InputError: as `load_passages`.
    """
    corpus = _open(source, streaming=True)
    assert isinstance(corpus, IterableDataset)
    try:
        first = next(iter(corpus))
    except (StopIteration, DatasetGenerationError, ValueError) as error:
        raise _unreadable(source, error) from error
    return _with_text(corpus, source, list(first), text_column)


def _with_text(corpus: Rows, source: str, columns: list[str], text_column: str) -> Rows:
    """The corpus with its text column called `text`."""
    if text_column not in columns:
        raise InputError(
            f"The corpus {source} has no column {text_column!r}; it has: {', '.join(columns)}. "
            "Name the right one with --text_column."
        )
    check_texts(corpus, [text_column], source, lists=False)
    if text_column == "text":
        return corpus
    others = corpus.remove_columns("text") if "text" in columns else corpus
    return others.rename_column(text_column, "text")


def check_texts(
    corpus: Dataset | IterableDataset, columns: Iterable[str], source: str = "", *, lists: bool = True
) -> None:
    """Pass when columns hold texts; of a stream whose columns are not known before, always.

    Args:
        corpus: the passages.
        columns: their names.
        source: of the corpus, for errors.
        lists: whether they may be lists of texts.

    Raises:
        InputError: one holds something else.
    """
    for name in columns:
        kind = (corpus.features or {}).get(name)
        found = kind.feature if lists and isinstance(kind, _LISTS) else kind
        if found is not None and not (isinstance(found, Value) and found.dtype in _TEXTS):
            what = found.dtype if isinstance(found, Value) else type(found).__name__
            where = f"the corpus {source}".rstrip()
            raise InputError(f"The column {name!r} of {where} holds {what}, no texts; name another.")


def _open(source: str, streaming: bool) -> Dataset | IterableDataset:
    path = Path(source)
    if not path.exists() and (path.is_absolute() or source.startswith(".") or source.count("/") > 1):
        raise InputError(f"The corpus {source} does not exist.")
    try:
        return _load(path, streaming) if path.exists() else _load_named(source, streaming)
    except (DatasetGenerationError, ValueError, StopIteration) as error:
        if isinstance(error, InputError):
            raise
        raise _unreadable(source, error) from error
    except (DatasetNotFoundError, FileNotFoundError, ConnectionError) as error:
        raise InputError(f"The corpus {source!r} is neither a path nor a dataset that can be reached.") from error


def _unreadable(source: str, error: Exception) -> InputError:
    """The error of a corpus of which there is no first row."""
    if isinstance(error, UnicodeDecodeError) or isinstance(error.__cause__, UnicodeDecodeError):
        return InputError(
            f"The corpus {source} is not UTF-8; turn it into that (iconv -f WINDOWS-1252 -t UTF-8), or let hf-dense "
            "data passages read it, which knows Windows-1252."
        )
    path = Path(source)
    for file in [path] if path.is_file() else table_files(path):
        if file.suffix == ".jsonl" and (number := broken_line(file)):
            return InputError(f"Line {number} of {file} is not JSON; correct or remove it.")
    return InputError(f"The corpus {source} is empty or cannot be read as what its name says it is.")


def table_files(folder: Path, table: str = "corpus") -> list[Path]:
    """The files of a table of a collection, in published form or of BEIR; none where it is not there."""
    lines = folder / f"{table}.jsonl"
    return sorted(folder.glob(f"{table}/*.parquet")) or ([lines] if lines.is_file() else [])


def open_files(files: Sequence[Path], streaming: bool = False) -> Dataset | IterableDataset:
    """The rows of files of one kind: mapped from a copy in the cache of `datasets`, or read as they are asked for."""
    kind = _FILES[files[0].suffix]
    options: dict[str, Any] = {}
    if kind == "json":
        for file in files:
            check_lines(file)
    if kind == "csv":
        options |= _as_written(files[0])
    if kind == "parquet" and not streaming:  # else Arrow reads ahead through the whole file
        options["fragment_scan_options"] = ParquetFragmentScanOptions(pre_buffer=False)
    named = [str(file) for file in files]
    return load_dataset(kind, _state_of(files), data_files=named, split="train", streaming=streaming, **options)


def table_rows(table: pa.Table) -> Dataset:
    """The rows of a table in memory, under a name of their own; `datasets` copies them several times to make one."""
    return Dataset(table, fingerprint=uuid4().hex)


def _state_of(files: Sequence[Path]) -> str:
    """A name of files as they are: `datasets` takes another file of the same place and time for what it has a copy of.

    The time that something was written to a place at is nobody's to set, unlike that of a file.
    """
    states = [file.stat() for file in files]
    return fingerprint_values({"files": [[state.st_ino, state.st_size, state.st_ctime_ns] for state in states]})[:16]


def _as_written(file: Path) -> dict[str, Any]:
    """Options by which the cells of a .csv file stay what they are: 007 no number, NA no empty cell.

    Raises:
        InputError: a row has more cells than the header; pandas would move all of them by a column.
    """
    with file.open(encoding="utf-8", errors="replace") as stream:
        divider = divider_of(stream.readline())
    head = pandas.read_csv(file, nrows=1, sep=divider)
    if not isinstance(head.index, pandas.RangeIndex):
        raise InputError(f"Rows of {file} have more cells than its header names; quote texts that hold commas.")
    features = Features({name: Value("string") for name in head.columns})
    return {"sep": divider, "features": features, "keep_default_na": False, "na_values": [""]}


def corpus_files(path: Path) -> list[Path]:
    """The files that a local corpus is read from.

    Raises:
        InputError: a directory holds none, or texts beside it that would not be read.
    """
    if not path.is_dir():
        return [path]
    if files := table_files(path):
        return files
    files = sorted(path.glob("*.parquet")) or sorted(path.glob("*.jsonl"))
    if not files:
        known = "corpus/*.parquet, corpus.jsonl, *.parquet or *.jsonl; hf-dense data passages makes one of documents"
        if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
            known += "; what save_to_disk wrote is written anew by to_parquet"
        raise InputError(f"The directory {path} holds no corpus ({known}).")
    if beside := [file.name for file in sorted(path.iterdir()) if file not in files and _is_read_elsewhere(file)]:
        more = f" and {len(beside) - 1} more" if len(beside) > 1 else ""
        raise InputError(
            f"Of the directory {path}, {files[0].name} would be read and {beside[0]}{more} not; name the file, or cut "
            f"its documents into passages first: hf-dense data passages {path} --out PASSAGES."
        )
    return files


def _is_read_elsewhere(file: Path) -> bool:
    """Whether a file holds texts, or documents that passages are cut from."""
    kinds = {".jsonl", ".parquet", ".csv", *KINDS}  # of .json there are manifests
    named = not file.name.startswith(".") and file.stem.upper() not in _ABOUT
    return named and file.suffix.lower() in kinds and file.is_file()


def _load(path: Path, streaming: bool) -> Dataset | IterableDataset:
    """A local file or directory."""
    if path.is_dir():
        return open_files(corpus_files(path), streaming)
    if path.suffix not in _FILES:
        raise InputError(f"{path} is of no known kind; give a file ending in {', '.join(_FILES)} or a directory.")
    if path.stat().st_size == 0:
        raise InputError(f"The corpus {path} is empty.")
    return open_files([path], streaming)


def _load_named(source: str, streaming: bool) -> Dataset | IterableDataset:
    """A Hub dataset: its `corpus` configuration when it has one, the default one otherwise; all splits."""
    name, revision = divided(source)
    try:
        hub_builder(name, "corpus", revision)
        loaded = load_dataset(name, "corpus", streaming=streaming, revision=revision)
    except ValueError:
        loaded = load_dataset(name, streaming=streaming, revision=revision)
    assert isinstance(loaded, (DatasetDict, IterableDatasetDict))
    return loaded["train"] if "train" in loaded else loaded[next(iter(loaded))]


def hub_builder(name: str, configuration: str | None, revision: str | None) -> DatasetBuilder:
    """What reads a dataset of the Hub.

    Raises:
        FileNotFoundError: there is none. By a name such as `json` or `text`, which is a reader of files, `datasets`
            would read whatever lies in the working directory.
    """
    builder = load_dataset_builder(name, configuration, revision=revision)
    if builder.repo_id is None:
        raise FileNotFoundError(name)
    return builder
