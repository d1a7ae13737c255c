"""Documents out of whatever holds them, one after the other, in memory that does not grow.

A document that cannot be read is left out and counted under the reason, and the first ones are named; the rest goes on.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args

from hf_dense.data.boilerplate import Boilerplate, drawn_evenly
from hf_dense.data.corpus import hub_builder, table_files
from hf_dense.data.folders import written_files
from hf_dense.data.hub_names import divided
from hf_dense.data.readers.kinds import KINDS, read_page
from hf_dense.data.readers.page import CodeOption, Section, UnreadableError
from hf_dense.data.rows import (
    IDS,
    MAX_BYTES,
    NAMED,
    SURROGATE,
    TABLES,
    BrokenTableError,
    Row,
    plain_text,
    read_rows,
    table_kind,
    with_plain_names,
)
from hf_dense.errors import InputError
from hf_dense.storage.fingerprints import fingerprint_files, fingerprint_values
from hf_dense.storage.places import Source

logger = logging.getLogger(__name__)

_TITLES: Final = ("title", "name")
_TEXTS: Final = ("text", "contents", "content", "body", "passage", "paragraphs")
_KNOWN: Final = ", ".join((*KINDS, *TABLES))  # in folders
# Kinds whose files hold more than their text.
_PACKED: Final = (".pdf", ".docx", ".ipynb", ".odt", ".epub", ".pptx", ".rtf", ".eml")
_OF_SITES: Final = (".html", ".htm", ".xhtml")
_ASKED: Final = re.compile(r"(?:queries|qrels)\.")  # beside BEIR's and MS MARCO's passages
_NO_TABLE: Final = "skipped tables that hold no documents"
_WINDOWS: Final = "read as Windows-1252, being no UTF-8"
_EMPTY: Final[tuple[object, ...]] = (None, "", [])
_NAMED: Final = 3  # documents that were left out, of a reason
_FIRST: Final = 1000  # rows by which all columns have been seen
_ORDINARY: Final = re.compile(r"\.[a-z][a-z0-9]{0,7}")  # suffixes that are counted by name


@dataclass(frozen=True)
class TextDocument:
    """A document.

    Args:
        id: path of its file below the source, or what its row says.
        title: "" if there is none.
        sections: in their order; one without a path where the source knows of none.
    """

    id: str
    title: str
    sections: tuple[Section, ...]

    @property
    def text(self) -> str:
        """All of it; paragraphs are divided by empty lines."""
        return "\n\n".join(section.text for section in self.sections)


@dataclass(frozen=True)
class _Opened:
    """A source that is there.

    Args:
        read: its documents, each behind the name of what it is one of: its file, a collection, a dataset.
        fingerprint: of what is read.
        whole: whether it is a folder, all documents of which are read.
    """

    read: Callable[[], Iterator[tuple[str, TextDocument]]]
    fingerprint: Callable[[], str]
    whole: bool = False


class DocumentReader:
    """The documents of one or several sources, in their order.

    Args:
        sources: each a folder of files of the `KINDS` (hf_dense.data.readers.kinds), or one such file; a .jsonl,
            .parquet, .csv or .tsv file (also .gz) or a folder of them; a .json file, a list of objects; a collection
            in published form or BEIR layout; or a dataset of the Hub (`name` or `name:configuration`). A .tsv file has
            a header with a column of ids, as DPR's psgs_w100, or is MS MARCO's documents (docid, url, title, body) or
            passages (pid, passage). Columns are found by their usual names.
        columns: where they have other names: `{"id": ..., "title": ..., "text": ...}`.
        split: of a Hub dataset.
        code: what becomes of blocks of code: `keep` their words, `drop` them, or keep them between ``` (`fence`).

    Attributes:
        counts: of the last reading: documents read, and left out by reason: `broken UTF-8`, `empty`, `too long` (10
            MB), `unreadable` (not JSON, a broken PDF, ...), `no text where one belongs` (an object, say), `duplicate
            id` (within a table), and `ids of several tables, told apart`; files and folders skipped, by name.
        pages: whether there are files of text among the sources, not only rows of tables.
        rows: whether there are tables, or datasets of the Hub.
        published: whether there are datasets of the Hub.

    Raises:
        InputError: there is nothing at a source, it has no column of texts, or what reads it is not installed.
    """

    def __init__(
        self,
        *sources: str,
        columns: Mapping[str, str] | None = None,
        split: str = "train",
        code: CodeOption = "keep",
    ) -> None:
        if code not in get_args(CodeOption):
            raise InputError(f"code is {code!r}; allowed: {', '.join(get_args(CodeOption))}.")
        self.sources = sources
        self.columns = dict(columns or {})
        self.split = split
        self.code = code
        self.counts: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()  # files, which are counted before any is read
        self._left_out: dict[str, Counter[str]] = {}  # by reason the names of the first ones
        self._told = False
        self.pages = self.rows = self.published = False
        self._names: set[str] = set()  # of files
        self.opened = [self._open(source) for source in sources]

    def __iter__(self) -> Iterator[TextDocument]:
        seen: dict[bytes, str] = {}  # of each id what had it first
        self.counts.clear()  # of an earlier reading
        self.counts.update(self._skipped)
        self._left_out.clear()
        for within, document in (found for opened in self.opened for found in opened.read()):
            text = document.text
            where = document.id if document.id.startswith(within) else f"{within}: {document.id}"
            if not text.strip():
                self._leave_out("empty", where)
                continue
            if SURROGATE.search(text) or SURROGATE.search(document.id + document.title):
                self._leave_out("broken UTF-8", where)
                continue
            if seen.get(_key(document.id), within) != within:
                document = replace(document, id=f"{within}-{document.id}")
                self.counts["ids of several tables, told apart"] += 1
            if (key := _key(document.id)) in seen:
                self._leave_out("duplicate id", where)
                continue
            seen[key] = within
            self.counts["documents read"] += 1
            yield document
        for reason, named in () if self._told else self._left_out.items():
            names = [repr(name) + (f" ({number:,})" if number > 1 else "") for name, number in named.items()]
            more = self.counts[reason] - named.total()
            said = f"Documents {reason}" if reason == _WINDOWS else f"Left out, {reason}"
            logger.warning("%s: %s%s", said, ", ".join(names), f" and {more:,} more" if more else "")
        self._told = True

    def _leave_out(self, reason: str, name: str, number: int = 1) -> None:
        """Count documents, or rows of a file, left out or guessed at, and keep the names of the first ones."""
        self.counts[reason] += number
        named = self._left_out.setdefault(reason, Counter())
        if name in named or len(named) < _NAMED:
            named[name] += number

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
            if table := table_files(path):
                return self._local(table, path, collection=path.name)
            return self._local(self._readable(path), path, whole=True)
        if path.is_file():
            _check_file(path)
            return self._local([path], path.parent)
        if path.is_absolute() or source.startswith(".") or source.count("/") > 1:
            raise InputError(f"The source {source} does not exist.")
        return self._published(source)

    def _readable(self, folder: Path) -> list[Path]:
        """The files of a folder that can be read; the others are counted."""
        skipped: Counter[str] = Counter()
        files = []
        for path in written_files(folder, skipped):
            if reason := _reason(path):
                skipped[f"skipped {reason}"] += 1
            else:
                files.append(path)
        self.counts += skipped
        self._skipped += skipped
        if not files:
            also = "".join(f"; {number:,} {what}" for what, number in skipped.items())
            raise InputError(f"The folder {folder} holds no documents ({_KNOWN}){also}.")
        return files

    def _local(self, files: list[Path], folder: Path, whole: bool = False, collection: str = "") -> _Opened:
        names = _names(files, folder)
        while names & self._names and folder != (above := folder.absolute().parent):
            # Those of another source: they are told apart by the folders that they are in.
            files, folder = [file.absolute() for file in files], above
            names = _names(files, folder)
        self._names |= names
        pages = any(table_kind(file) in KINDS for file in files)
        self.pages |= pages
        self.rows |= any(table_kind(file) in (*TABLES, *NAMED) for file in files)

        def read() -> Iterator[tuple[str, TextDocument]]:
            boilerplate = self._boilerplate([file for file in files if table_kind(file) in _OF_SITES])
            for file in files:
                name = file.relative_to(folder).as_posix()
                try:
                    for document in self._file(file, name):
                        if table_kind(file) in _OF_SITES:
                            document = replace(document, sections=boilerplate.removed_from(document.sections))
                        yield collection or name, document
                except InputError as error:
                    if not pages or self.columns or table_kind(file) in KINDS:
                        raise
                    is_broken = isinstance(error, BrokenTableError)
                    reason = "tables that are broken, read to there" if is_broken else _NO_TABLE
                    self._leave_out(reason, name)
            if boilerplate.number:
                self.counts["left-out paragraphs that most pages have"] += boilerplate.number

        return _Opened(read, lambda: fingerprint_files(files, folder), whole)

    def _published(self, source: str) -> _Opened:
        """A dataset of the Hub, streamed."""
        from datasets.exceptions import DatasetNotFoundError

        named, _, configuration = source.partition(":")
        name, revision = divided(named)
        self.rows = self.published = True
        try:
            builder = hub_builder(name, configuration or None, revision)
            rows = builder.as_streaming_dataset(split=self.split)
        except (DatasetNotFoundError, FileNotFoundError, ConnectionError, ValueError) as error:
            raise InputError(
                f"{source!r} is neither a path nor a dataset of the Hub to be reached (split {self.split!r})."
            ) from error
        splits: Mapping[str, list[str]] = builder.config.data_files
        files = splits[self.split] if self.split in splits else [file for split in splits.values() for file in split]
        return _Opened(
            lambda: ((name, document) for document in self._documents(iter(rows), name)),
            lambda: _fingerprint_published(name, files),
        )

    def _file(self, path: Path, name: str) -> Iterator[TextDocument]:
        if table_kind(path) in KINDS:
            yield from self._page(path, name)
            return
        left_out = Counter[str]()  # rows
        try:
            yield from self._documents(read_rows(path, table_kind(path), left_out), name)
        finally:
            for reason, number in left_out.items():
                self._leave_out(reason, name, number)

    def _boilerplate(self, pages: list[Path]) -> Boilerplate:
        """What nearly all pages of a site have, as far as they can be read."""
        found = []
        for path in drawn_evenly(pages):
            with suppress(UnicodeDecodeError, UnreadableError, OSError):
                if path.stat().st_size <= MAX_BYTES:
                    found.append(read_page(path, self.code).sections)
        return Boilerplate(found)

    def _page(self, path: Path, name: str) -> Iterator[TextDocument]:
        try:
            if path.stat().st_size > MAX_BYTES and table_kind(path) not in _PACKED:
                self._leave_out("too long", name)
                return
            page = read_page(path, self.code)
        except UnicodeDecodeError:
            self._leave_out("broken UTF-8", name)
        except (UnreadableError, OSError):
            self._leave_out("unreadable", name)
        else:
            if page.is_windows:
                self._leave_out(_WINDOWS, name)
            yield TextDocument(name, page.title or path.stem, page.sections)

    def _documents(self, rows: Iterator[Row], name: str) -> Iterator[TextDocument]:
        """Rows with columns as documents; a row without id is called after its file and its number there.

        What a row lacks others may have: lines of JSON name what they hold each for itself.

        Raises:
            InputError: no row has a column that was named, or one of texts; of a long table none of the first ones.
        """
        usual = {"id": IDS, "title": _TITLES, "text": _TEXTS}
        roles = {role: (self.columns[role],) if role in self.columns else names for role, names in usual.items()}
        seen: dict[str, None] = {}  # columns of the rows
        without = 0  # rows that have none for their text
        for index, written in enumerate(rows):
            row = with_plain_names(written)
            seen |= dict.fromkeys(written)
            if index == _FIRST:
                self._check_columns(seen, roles["text"], name)
            if row.keys().isdisjoint(roles["text"]):
                without += 1
                continue
            cells = {
                role: next((row[at] for at in names if row.get(at) not in _EMPTY), None)
                for role, names in roles.items()
            }
            key, title, text = plain_text(cells["id"]), plain_text(cells["title"]), _paragraphs(cells["text"])
            if key is None or title is None or text is None:
                self._leave_out("no text where one belongs", name)
            elif len(text) > MAX_BYTES:
                self._leave_out("too long", name)
            else:
                yield TextDocument(key or f"{name}-{index}", title, (Section("", text),))
        if seen:
            self._check_columns(seen, roles["text"], name)
        if without:
            self._leave_out("empty", name, without)

    def _check_columns(self, seen: Collection[str], texts: Collection[str], name: str) -> None:
        """Raise `InputError` where no row has a column that was named, or one of texts."""
        known = with_plain_names(dict.fromkeys(seen))
        wrong = [column for column in self.columns.values() if column not in known]
        if wrong or known.keys().isdisjoint(texts):
            lacking = repr(wrong[0]) if wrong else "of texts (" + ", ".join(_TEXTS) + ")"
            raise InputError(
                f"{name} has no column {lacking}; it has: {', '.join(seen)}. Name the one to read (hf-dense data "
                "passages --text_column)."
            )


def _key(name: str) -> bytes:
    """8 bytes that no two ids share."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _names(files: Iterable[Path], folder: Path) -> set[str]:
    """What files are called below a folder."""
    return {file.relative_to(folder).as_posix() for file in files}


def _paragraphs(value: object) -> str | None:
    """The text of a cell, or of a list of paragraphs; None where it holds something else."""
    parts = [plain_text(part) for part in (value if isinstance(value, list) else [value])]
    return None if None in parts else "\n\n".join(part for part in parts if part)


def _check_file(path: Path) -> None:
    """Raise `InputError` where a file cannot be read."""
    kind = table_kind(path)
    if kind not in (*KINDS, *TABLES, *NAMED):
        raise InputError(f"{path} is of no known kind; give one of: {', '.join((_KNOWN, *NAMED))}.")
    if kind in KINDS and (lacking := KINDS[kind].lacks()):
        raise InputError(f"Reading {kind} files needs {lacking}.")


def _reason(path: Path) -> str:
    """Why a file of a folder is not read; "" where it is."""
    kind = table_kind(path)
    if kind in TABLES:
        return "queries and judgements" if _ASKED.match(path.name) or path.parent.name == "qrels" else ""
    if kind not in KINDS:
        return kind if _ORDINARY.fullmatch(kind) else "files of no known kind"
    lacking = KINDS[kind].lacks()
    return f"{kind} (needs {lacking})" if lacking else ""


def _fingerprint_published(name: str, files: list[str]) -> str:
    """Of files on the Hub, whose digests it knows, and of the name that rows without id are called after."""
    from huggingface_hub import HfApi, HfFileSystem

    parts: list[Any] = [HfFileSystem().resolve_path(file) for file in files]
    paths = [part.path_in_repo for part in parts]
    found: Any = HfApi().get_paths_info(parts[0].repo_id, paths, revision=parts[0].revision, repo_type="dataset")
    digests = {file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in found}
    return fingerprint_values({"name": name, "files": [[path, digests[path]] for path in paths]})
