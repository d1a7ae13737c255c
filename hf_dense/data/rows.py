"""Rows of tables in files, one after the other, in memory that does not grow."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import logging
import re
import sys
import zlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from io import BufferedIOBase, TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

from pyarrow import ArrowException
from pyarrow.parquet import ParquetFile

from hf_dense.data.encodings import WINDOWS, windows_text
from hf_dense.errors import InputError

logger = logging.getLogger(__name__)

TABLES: Final = (".jsonl", ".parquet", ".csv", ".tsv")
NAMED: Final = (".json",)  # tables where a file is named; in folders they are settings, and what programs say
IDS: Final = ("id", "_id", "docid", "doc_id", "document_id", "pid")  # columns by which rows are known
MAX_BYTES: Final = 10_000_000  # of one row; books are below 5 million characters
SURROGATE: Final = re.compile("[\ud800-\udfff]")  # half a letter, which cannot be written
_DEEP: Final = 500  # brackets of a line that may be within each other
_BEFORE: Final = codecs.BOM_UTF8 + b" \t\r\n["  # the first value of a file
_START: Final = 1024  # bytes of a file by which it is a list of JSON
_CHUNK: Final = 1 << 20  # characters of it read at once
_BETWEEN: Final = re.compile(r"[, \r\n\t]*")  # its values
_LINES: Final = 1024  # rows of a Parquet file read at once
_QUOTED: Final = re.compile(r'"[^"]*"')
_DIVIDER: Final = re.compile(rb'"?sep=')  # above the header, by which Excel knows what stands between columns

Row = Mapping[str, Any]


class BrokenTableError(InputError):
    """A table that cannot be read, or not to its end."""


def read_rows(path: Path, kind: str, counts: Counter[str]) -> Iterator[Row]:
    """The rows of a table.

    Args:
        path: the file, perhaps packed by gzip.
        kind: one of `TABLES` or `NAMED`.
        counts: receives the number of rows left out, by reason: `broken UTF-8`, `too long`, `unreadable`.

    Raises:
        InputError: it is not of that kind.
    """
    readers = {".jsonl": _json_rows, ".json": _listed_rows, ".csv": _csv_rows, ".tsv": _tsv_rows}
    try:
        yield from _parquet_rows(path) if kind == ".parquet" else readers[kind](path, counts)
    except (ArrowException, OSError, EOFError, zlib.error, UnicodeError) as error:
        what = "a Parquet file" if kind == ".parquet" else "a file"
        raise BrokenTableError(f"{path} is not {what} that can be read: {str(error).splitlines()[0]}") from error


def table_kind(path: Path) -> str:
    """The suffix by which a file is read; a table may be packed."""
    suffix = path.suffix.lower()
    inner = path.with_suffix("").suffix.lower() if suffix == ".gz" else ""
    return inner if inner in (*TABLES, *NAMED) else suffix


def check_lines(file: Path) -> int:
    """Pass when no line of a JSON file crashes Arrow: nested deeply, which it reads by recursion, or `null` for a row;
    nor is another text than UTF-8, which it takes as it is.

    Returns:
        Bytes of the longest line.

    Raises:
        InputError: a line would.
    """
    longest, begins = 0, True  # a row; in a file of one value later lines may be a part of it
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            longest, rest = max(longest, len(line)), line.lstrip(_BEFORE)
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise InputError(f"Line {number} of {file} is not UTF-8; correct it.") from error
            if begins and rest.startswith(b"null"):
                raise InputError(f"Line {number} of {file} is null, which is no row; correct or remove it.")
            begins = file.suffix == ".jsonl" or (begins and not rest)
            if line.count(b"[") + line.count(b"{") > _DEEP:
                try:
                    json.loads(line)
                except RecursionError as error:
                    raise InputError(f"Line {number} of {file} is nested too deeply; correct or remove it.") from error
                except ValueError:  # which Arrow says
                    pass
    return longest


def broken_line(file: Path) -> int | None:
    """The number of the first line of a JSONL file that is no JSON, as where a download stopped; None without one."""
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                json.loads(line.removeprefix(codecs.BOM_UTF8).strip() or b"{}")
            except (ValueError, RecursionError):
                return number
    return None


def divider_of(head: str) -> str:
    """What stands between the columns of a .csv file, by its first line: Excel writes semicolons in much of Europe.

    >>> divider_of('id;"name, title";text'), divider_of("id,a;b"), divider_of("text")
    (';', ',', ',')
    """
    bare = _QUOTED.sub("", head)
    return next((sign for sign in ",\t;" if sign in bare), ",")


def check_head(names: Sequence[str], path: Path) -> None:
    """Pass when the columns of a table can be told apart.

    Raises:
        InputError: two have one name.
    """
    for at, name in enumerate(names):
        if name and name in names[:at]:
            raise InputError(f"{path} has two columns called {name!r}; call one of them something else.")


def with_plain_names(row: Row) -> dict[str, Any]:
    """A row with its columns by their names in small letters, too.

    >>> with_plain_names({" ID": 1})
    {'id': 1, ' ID': 1}
    """
    return {**{name.strip().lower(): cell for name, cell in row.items()}, **row}


def plain_text(value: object) -> str | None:
    """What a cell says in words, "" where it is empty; None where it holds no text: an object, a list, yes or no.

    >>> plain_text(" a "), plain_text(float("nan")), plain_text(3), plain_text(date(2024, 1, 2)), plain_text({"a": 1})
    (' a ', '', '3', '2024-01-02', None)
    """
    if value is None or value != value:  # what Python writes into JSON where pandas has nothing
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float | date):
        return None
    return str(value)


def _parquet_rows(path: Path) -> Iterator[Row]:
    for batch in ParquetFile(path).iter_batches(batch_size=_LINES):
        yield from batch.to_pylist()


def _json_rows(path: Path, counts: Counter[str]) -> Iterator[Row]:
    for line in _lines(path, counts):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):  # no JSON, a number of too many digits, or nested too deeply
            row = None
        if isinstance(row, dict):
            yield row
        else:
            counts["unreadable"] += 1


def _listed_rows(path: Path, counts: Counter[str]) -> Iterator[Row]:
    """The objects of a list, or of lines, which some write into files of this name, too."""
    with open_table(path) as stream:
        is_list = stream.read(_START).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
    if not is_list:
        yield from _json_rows(path, counts)
        return
    for row in listed_values(path):
        if isinstance(row, dict):
            yield row
        else:
            counts["unreadable"] += 1


def listed_values(path: Path) -> Iterator[Any]:
    """The values of a JSON file that holds one list, perhaps packed by gzip, without holding them all.

    Raises:
        InputError: it holds no list, or was cut off.
    """
    decoder = json.JSONDecoder()
    with open_table(path) as stream, TextIOWrapper(stream, encoding="utf-8-sig") as letters:
        try:
            text, ended = letters.read(_CHUNK).lstrip(), False
            if not text.startswith("["):
                raise InputError(f"{path} is not a list of JSON.")
            at = 1
            while True:
                at += len(_BETWEEN.match(text, at)[0])  # type: ignore[index]  # it matches nothing, too
                if text.startswith("]", at):
                    return
                try:
                    value, after = decoder.raw_decode(text, at)
                except (ValueError, RecursionError) as error:
                    if ended or not isinstance(error, json.JSONDecodeError):
                        raise InputError(f"{path} is not a list of JSON, or was cut off.") from error
                    after = len(text)
                if after == len(text) and not ended:  # it may go on
                    more = letters.read(max(_CHUNK, len(text) - at))
                    text, at, ended = text[at:] + more, 0, not more
                    continue
                yield value
                at = after
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not a list of JSON.") from error


def _csv_rows(path: Path, counts: Counter[str]) -> Iterator[Row]:
    """Rows below a header; of a row that is none, as with a quote that nothing closes, only the first line is lost."""
    csv.field_size_limit(min(MAX_BYTES, sys.maxsize))
    head: Sequence[str] | None = None
    taken, again = list[str](), deque[str]()  # lines of the row that is read, and those to be read anew
    with open_table(path) as stream:
        written = _csv_lines(stream)

        def lines() -> Iterator[str]:
            while (line := again.popleft() if again else next(written, None)) is not None:
                taken.append(line)
                yield line

        again.append(first := next(written, ""))
        divider = divider_of(first)
        rows = csv.DictReader(lines(), delimiter=divider, strict=True)
        while True:
            taken.clear()
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                is_long = "limit" in str(error)
                counts["too long" if is_long else "unreadable"] += 1
                again.extendleft([] if is_long else reversed(taken[1:]))
                rows = csv.DictReader(lines(), head, delimiter=divider, strict=True)
                continue
            if head is None:
                check_head(head := rows.fieldnames or (), path)
            if any(row.pop(None, ())):  # more cells than columns, such as a comma that nobody quoted
                counts["unreadable"] += 1
            else:
                yield row


def _csv_lines(stream: IO[bytes]) -> Iterator[str]:
    """Lines without what programs write above them; bytes that are no UTF-8 become surrogates, which give them away."""
    for number, line in enumerate(stream):
        line = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
        if number or not _DIVIDER.match(line):
            yield line.decode("utf-8", "surrogateescape")


def _tsv_rows(path: Path, counts: Counter[str]) -> Iterator[Row]:
    names: Sequence[str] | None = None
    quoted = False
    for line in _lines(path, counts):
        fields = line.split("\t")
        if names is None:
            head = [_unquoted(field) for field in fields]
            if quoted := any(name.strip().lower() in IDS for name in head):  # as CSV has it, like DPR's psgs_w100
                check_head(names := head, path)
                continue
            names = {4: ("id", "url", "title", "text"), 2: ("id", "text")}.get(len(fields))
            if names is None:
                raise InputError(
                    f"{path} has {len(fields)} columns; a .tsv file is MS MARCO's documents (4), its passages (2), "
                    f"or has a header that names the ids ({', '.join(IDS)})."
                )
        if len(fields) != len(names):
            counts["unreadable"] += 1
            continue
        yield dict(zip(names, map(_unquoted, fields) if quoted else fields, strict=True))


def _unquoted(cell: str) -> str:
    """A cell without the quotes that CSV puts around it; one with quotes of its own stays.

    >>> _unquoted('"He said ""so""."'), _unquoted('"Yes", she said, "no"')
    ('He said "so".', '"Yes", she said, "no"')
    """
    inner = cell[1:-1].replace('""', "")
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner else cell


def _lines(path: Path, counts: Counter[str]) -> Iterator[str]:
    """Lines of a UTF-8 file; none longer than `MAX_BYTES` is ever held."""
    with open_table(path) as stream:
        mark = codecs.BOM_UTF8  # of the file, which is no part of its first line
        while line := stream.readline(MAX_BYTES + 1).removeprefix(mark):
            mark = b""
            if len(line) > MAX_BYTES and not line.endswith(b"\n"):
                counts["too long"] += 1
                while (rest := stream.readline(MAX_BYTES)) and not rest.endswith(b"\n"):
                    pass
                continue
            try:
                text = line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                counts["broken UTF-8"] += 1
                continue
            if text.strip():
                yield text


@contextmanager
def open_table(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked, as UTF-8.

    What begins with the mark of UTF-16 is in that, as Excel's Unicode text is; what is no UTF-8, and no longer than
    `MAX_BYTES`, may be Windows-1252, as Excel's CSV is, which is said.
    """
    packed = path.suffix.lower() == ".gz"
    with gzip.open(path, "rb") if packed else path.open("rb") as stream:
        encoding = _encoding(_head(stream))
        stream.seek(0)
        if encoding == "utf-8":
            yield stream  # type: ignore[misc]
            return
        if encoding == WINDOWS:
            logger.warning("%s is no UTF-8; it is read as Windows-1252, for which its letters and words speak.", path)
        with TemporaryFile() as copy, TextIOWrapper(stream, encoding=encoding, newline="") as letters:
            while part := letters.read(_CHUNK):
                copy.write(part.encode())
            copy.seek(0)
            yield copy


def _head(stream: BufferedIOBase) -> bytes:
    """The beginning of a file, also of one that is damaged behind it."""
    head = b""
    with suppress(OSError, EOFError, zlib.error):
        while len(head) < MAX_BYTES and (part := stream.read(_CHUNK)):
            head += part
    return head


def _encoding(head: bytes) -> str:
    """Of a table, by its beginning: UTF-8 where it is no other."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last letter may be cut
    except UnicodeDecodeError:
        is_whole = len(head) < MAX_BYTES  # what comes behind may be UTF-8
        return WINDOWS if is_whole and windows_text(head) is not None else "utf-8"
    return "utf-8"
