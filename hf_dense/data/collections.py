"""Reading a retrieval collection from a directory or the Hub, in published form or as a BEIR folder.

Published form: Parquet tables `corpus/*.parquet`, `queries/*.parquet` and `qrels/<split>.parquet` with the columns
of `hf_dense.data.schemas`; judgements renamed by the Hub (`<split>-00000-of-00001.parquet`) are read too.
BEIR folder: `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`, `text`) and `qrels/<split>.tsv`
(`query-id`, `corpus-id`, `score`, one header line; or, without one, these three or TREC's four columns).
MTEB's Parquet: as the published form, ids called `_id` and judgements in `default` or `data` perhaps.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from datasets import Dataset, Features
from datasets.exceptions import DatasetGenerationError
from pyarrow import compute, csv, json, parquet

from hf_dense.data.corpus import open_files, table_files, table_rows
from hf_dense.data.hub_names import collection_folder, is_named
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.data.rows import check_lines
from hf_dense.data.schemas import CORPUS, QRELS, QUERIES
from hf_dense.data.splits import plain_query
from hf_dense.errors import InputError, first_line
from hf_dense.storage.fingerprints import fingerprint_files

logger = logging.getLogger(__name__)

_REQUIRED_OF_CORPUS: Final = ("id", "text")
_IN_MEMORY: Final = 2**28  # bytes of Parquet files that are read at once
_BLOCK: Final = 2**20  # bytes of JSON lines that are parsed together
_GREATEST: Final = 10_000  # grade; measures hold a count for each grade below it
_SHARD: Final = re.compile(r"-\d{5}-of-\d{5}$")  # what the Hub adds to the name of a split
_ID: Final = {"_id": "id"}  # as BEIR and MTEB call it
_PLACES: Final = ("default", "data")  # of judgements, where MTEB's are a configuration of the Hub without a name
_UNNAMED: Final = {3: (0, 1, 2), 4: (0, 2, 3)}  # where, by their number, the columns are that no line names: of TREC 4
_PATTERNS: Final = (
    "corpus/*.parquet",
    "queries/*.parquet",
    "qrels/*.parquet",
    "corpus.jsonl",
    "queries.jsonl",
    "qrels/*.tsv",
)
_GRADE: Final = re.compile(r"-?\d+(\.0*)?")
_READ: Final = (".parquet", ".tsv")  # kinds of judgements
_BESIDE: Final = ("negatives/*.parquet", "README.md", "hf_dense.json")  # which are no data of a collection


def load_corpus(path: str | os.PathLike[str]) -> Dataset:
    """Passages of a collection: columns `id`, `title` ("" where there is none), `text`, and those of `section`,
    `document`, `position` and `split` that are there.

    Parquet files above 256 MB are read from disk as needed, from a copy that `datasets` keeps in its cache.

    Raises:
        InputError: the directory, its corpus or a column is missing, the corpus is empty, or two passages have the same
            id or one has none.
    """
    files = table_files(folder_of(path))
    if files and files[0].suffix == ".parquet" and sum(file.stat().st_size for file in files) > _IN_MEMORY:
        check_passages(files)
        return _open_corpus(files)
    rows = _read_table(Path(path), "corpus", _REQUIRED_OF_CORPUS)
    if rows.num_rows == 0:
        raise InputError(f"the corpus of {path} is empty; it needs at least one passage")
    with _sound(files[0]):
        return table_rows(_complete(rows))


def check_passages(files: Sequence[Path]) -> None:
    """Pass when Parquet files hold passages: an id and a text, each id once.

    Raises:
        InputError: they do not.
    """
    ids: list[pa.Array] = []
    for file in files:
        with _sound(file):
            names = parquet.read_schema(file).names
            _check_columns(plain_columns(names), _REQUIRED_OF_CORPUS, file)
            column = names[plain_columns(names).index("id")]
            ids += parquet.read_table(file, columns=[column]).column(column).cast(pa.string()).chunks
    _check_ids(pa.chunked_array(ids, pa.string()), files[0].parent)


def load_queries(path: str | os.PathLike[str]) -> Dataset:
    """Queries of a collection: columns `id` and `text`.

    Raises:
        InputError: the directory, its queries or a column is missing, or two queries have the same id or one has none.
    """
    rows = _read_table(Path(path), "queries", tuple(QUERIES))
    with _sound(Path(path) / "queries"):
        return table_rows(_select(rows, QUERIES))


def query_texts(path: str | os.PathLike[str]) -> dict[str, str]:
    """The texts of a collection's queries, by id.

    Raises:
        InputError: as `load_queries`.
    """
    rows = load_queries(path)[:]
    return dict(zip(rows["id"], rows["text"], strict=True))


def query_table(path: str | os.PathLike[str]) -> pa.Table:
    """Queries of a collection with all columns that they have: `id`, `text` and whatever else is there.

    Raises:
        InputError: as `load_queries`.
    """
    table = _read_table(Path(path), "queries", tuple(QUERIES))
    untitled = "title" in table.column_names and table.column("title").null_count == table.num_rows
    return table.drop_columns("title") if untitled else table  # which BEIR's passages have


def judged_splits(path: str | os.PathLike[str]) -> list[str]:
    """The splits of a collection that there are judgements of, by name.

    Raises:
        InputError: the directory is missing.
    """
    files = _judgements(path).glob("*")
    return sorted({_SHARD.sub("", file.stem) for file in files if file.suffix in _READ})


def load_qrels(path: str | os.PathLike[str], split: str) -> dict[str, dict[str, int]]:
    """Judgements of one split: query id -> {passage id: grade}, in the order of the file.

    Raises:
        InputError: the directory, the split or a column is missing, a passage has two grades for a query, or a grade is
            none.
    """
    folder = _judgements(path)
    name = escape(split.replace("/", "?"))  # no path, and no pattern
    published = sorted([*folder.glob(f"{name}.parquet"), *folder.glob(f"{name}-?????-of-?????.parquet")])
    beir = folder / f"{split.replace('/', '?')}.tsv"
    if published:
        table = _read_parquet(published)
    elif beir.is_file():
        table = _parse_judgements(beir)
    else:
        others = sorted([*folder.parent.glob("qrels*"), *folder.glob("**/*")])
        others = [file for file in others if file.is_file() and file.name.startswith((split, "qrels"))]
        unread = [file for file in others if file.parent != folder or file.suffix not in _READ]
        advice = f"; {unread[0]} is not read: put it, unpacked, into qrels/{split}.tsv" if unread else ""
        raise InputError(
            f"{path} has no relevance judgements for split {split!r}; it has {_listed(judged_splits(path))}{advice}"
        )
    origin = published[0] if published else beir
    if not published and not set(QRELS) & set(table.column_names):
        raise InputError(
            f"{beir} does not begin with a line that names its columns, as BEIR's judgements do: query-id, corpus-id "
            "and score, with tabs between them; nor does it hold these, or TREC's four columns, without one."
        )
    _check_columns(table.column_names, tuple(QRELS), origin)
    with _sound(origin):
        _check_grades(table.column("score"), origin)
        return _graded(_cast(table, QRELS), origin)


def _check_grades(scores: pa.ChunkedArray, origin: Path) -> None:
    """Raise `InputError` for a grade between two whole numbers; 1.0 is one as a program of tables writes it."""
    if not pa.types.is_floating(scores.type):
        return
    odd = scores.filter(compute.not_equal(scores, compute.floor(scores)))
    if len(odd):
        raise InputError(f"{origin} has the grade {odd[0]}; grades are whole numbers, and 0 is not relevant.")


def _graded(table: pa.Table, origin: Path) -> dict[str, dict[str, int]]:
    """The judgements of a table with the columns of `QRELS`."""
    qrels: dict[str, dict[str, int]] = {}
    columns, again = (table.column(name).to_pylist() for name in QRELS), 0
    for query, passage, grade in zip(*columns, strict=True):
        if query is None or passage is None or grade is None:
            raise InputError(f"{origin} has a judgement without query-id, corpus-id or score; each needs all three.")
        if abs(grade) > _GREATEST:
            raise InputError(
                f"{origin} gives the passage {passage!r} the grade {grade}, which is beyond {_GREATEST}; correct it."
            )
        graded = qrels.setdefault(query, {})
        if graded.setdefault(passage, grade) != grade:
            raise InputError(
                f"{origin} gives the passage {passage!r} two grades for the query {query!r}, {graded[passage]} and "
                f"{grade}; leave one of them."
            )
        again += 1
    again -= sum(map(len, qrels.values()))
    if again:
        logger.warning("%s says %s of its judgements twice; each counts once.", origin, f"{again:,}")
    return qrels


def asked_again(path: str | os.PathLike[str], split: str, trained_on: str) -> str:
    """How many queries of a split are among those of another one, which is trained on; "" where none is.

    Judgements of queries that are not there are passed over.

    Raises:
        InputError: as the loaders do.
    """
    texts = query_texts(path)
    asked, known = (
        [
            plain_query(texts[query])
            for query, graded in load_qrels(path, name).items()
            if query in texts and max(graded.values()) > 0
        ]
        for name in (split, trained_on)
    )
    if not (number := sum(map(set(known).__contains__, asked))):
        return ""
    return (
        f"{number:,} of the {len(asked):,} queries of {split} are asked in {trained_on}, too, but for case and white "
        "space: figures on them say little of new queries; leave them out of one of the two."
    )


def training_pairs(path: str | os.PathLike[str], split: str = "train") -> Dataset:
    """One row for each query and relevant passage (grade above 0) of `split`, in the order of the judgements.

    Where judgements name documents that the corpus is cut from, the first passage of a document stands for it.

    Returns:
        Columns `query`, `passage` (title and text), `query_id` and `passage_id`.

    Raises:
        InputError: as the loaders do, or the judgements name unknown passages or queries, or none is positive.
    """
    corpus, texts, qrels = load_corpus(path), query_texts(path), load_qrels(path, split)
    pairs = [(query, passage) for query, graded in qrels.items() for passage, grade in graded.items() if grade > 0]
    if not pairs:
        raise InputError(f"split {split!r} of {path} has no relevant passage to train on; choose another split")
    judged = judged_indices(corpus)
    _check_known([passage for _, passage in pairs], judged, "passages", "corpus", split)
    _check_known([query for query, _ in pairs], texts, "queries", "queries", split)
    rows = [judged[passage][0] for _, passage in pairs]
    return Dataset.from_dict(
        {
            "query": [texts[query] for query, _ in pairs],
            "passage": PassageTexts(corpus)[rows],
            "query_id": [query for query, _ in pairs],
            "passage_id": corpus.select_columns("id")[rows]["id"],
        }
    )


def plain_columns(names: Sequence[str]) -> list[str]:
    """Columns of passages and queries by the names that they have here."""
    return list(names) if "id" in names else [_ID.get(name, name) for name in names]


def judged_indices(corpus: Dataset) -> dict[str, list[int]]:
    """Indices of the rows that a judgement speaks of: one of a passage; of a document all rows that were cut from it.

    Args:
        corpus: column `id`, and `document` where documents were cut.

    Returns:
        By the id of the passage or document.
    """
    indices: dict[str, list[int]] = {}
    if "document" in corpus.column_names:
        for index, name in enumerate(corpus["document"][:]):
            indices.setdefault(name, []).append(index)
    indices.update((name, [index]) for index, name in enumerate(corpus["id"][:]))
    return indices


def load_answers(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """The answers of a collection's queries, by query id.

    Raises:
        InputError: the directory or its queries are missing, or their answers are not known.
    """
    table = _read_table(Path(path), "queries", (*QUERIES, "answers"))
    return dict(zip(table.column("id").to_pylist(), table.column("answers").to_pylist(), strict=True))


def content_hash(path: str | os.PathLike[str]) -> str:
    """SHA-256 (hexadecimal) of the data files of a collection, names and bytes; the card has no part in it.

    Raises:
        InputError: the directory is missing or holds no data file.
    """
    folder = folder_of(path)
    files = sorted({file for pattern in _PATTERNS for file in folder.glob(pattern) if file.is_file()})
    if (judged := _judgements(path)).name in _PLACES:
        files = sorted([*files, *judged.glob("*.parquet")])
    if not files:
        raise InputError(f"{path} is not a collection: it holds neither corpus/*.parquet nor corpus.jsonl")
    return fingerprint_files(files, folder)


def folder_of(collection: str | os.PathLike[str]) -> Path:
    """The directory of a collection; of one on the Hub, by its name, a copy in the cache.

    Raises:
        InputError: it is neither a directory nor a dataset that can be reached.
    """
    return collection_folder(collection, (*_PATTERNS, *_BESIDE))


def _judgements(collection: str | os.PathLike[str]) -> Path:
    """The folder of a collection's judgements, whether it is there or not."""
    folder = folder_of(collection)
    if not (folder / "qrels").is_dir() and table_files(folder, "queries"):  # of other datasets all may lie in `data`
        folder = collection_folder(collection, tuple(f"{name}/*.parquet" for name in _PLACES))
        for place in (folder / name for name in _PLACES):
            if any(place.glob("*.parquet")):
                return place
    return folder / "qrels"


def holds_corpus(place: str | os.PathLike[str]) -> bool:
    """Whether a directory, or a dataset of the Hub, has the corpus of a collection."""
    return (Path(place).is_dir() or is_named(place)) and bool(table_files(folder_of(place)))


def named_split(given: str, split: str) -> tuple[str, str] | None:
    """Collection and split of `COLLECTION[:SPLIT]`; None where there is no such collection.

    Args:
        given: a directory or a dataset of the Hub, `owner/name[@revision]`.
        split: where none is said.

    Raises:
        InputError: what may be a name of the Hub is none, or the Hub is not reached.
    """
    place, _, said = given.rpartition(":")
    for name, part in ((given, split), (place, said)):
        if name and Path(name).is_dir():
            return name, part
    for name, part in ((given, split), (place, said)):
        if name and is_named(name):
            folder_of(name)
            return name, part
    return None


def _read_table(folder: Path, name: str, required: Sequence[str]) -> pa.Table:
    """The Parquet files of `folder/name`, or `folder/name.jsonl`, as one table with a column `id`."""
    folder = folder_of(folder)
    files = table_files(folder, name)
    if not files:
        advice = "; hf-dense data passages makes one of documents" if name == "corpus" else ""
        if (packed := folder / f"{name}.jsonl.gz").is_file():
            advice = f"; unpack {packed} (gunzip)"
        raise InputError(f"{folder} has no {name}: neither {name}/*.parquet nor {name}.jsonl is there{advice}.")
    if files[0].suffix == ".parquet":
        table, origin = _read_parquet(files), folder / name
    else:
        table, origin = _parse(files[0], {"_id": pa.string(), "title": pa.string(), "text": pa.string()}), files[0]
    table = table.rename_columns(plain_columns(table.column_names))
    _check_columns(table.column_names, required, origin)
    _check_ids(table.column("id"), origin)
    return table


def _read_parquet(files: Sequence[Path]) -> pa.Table:
    """Parquet files as one table; a column that some of them lack is empty there."""
    tables = []
    for file in files:
        with _sound(file):
            tables.append(parquet.read_table(file))
    with _sound(files[0].parent):
        return pa.concat_tables(tables, promote_options="default")


@contextmanager
def _sound(origin: Path) -> Iterator[None]:
    """Raise `InputError` where Arrow cannot read what there is, or not as what it should be."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, DatasetGenerationError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise InputError(f"{origin} cannot be read: {first_line(cause)}") from error


def _check_ids(ids: pa.ChunkedArray, origin: Path) -> None:
    """Raise `InputError` unless every row has an id of its own."""
    if ids.null_count:
        raise InputError(f"{origin} has a row without id; every row needs its own.")
    with _sound(origin):
        if compute.count_distinct(ids).as_py() == len(ids):
            return
        counts = compute.value_counts(ids.combine_chunks())
    twice = next(count["values"] for count in counts.to_pylist() if count["counts"] > 1)
    raise InputError(f"{origin} has the id {twice!r} more than once; every row needs its own.")


def _parse(file: Path, types: dict[str, pa.DataType]) -> pa.Table:
    """A JSON lines or tab-separated file; columns named in `types` are read as such."""
    if file.stat().st_size == 0:
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})
    longest = check_lines(file) if file.suffix != ".tsv" else 0
    with _sound(file):
        if file.suffix == ".tsv":
            table = csv.read_csv(
                file,
                parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
                convert_options=csv.ConvertOptions(column_types=types),
            )
        else:
            table = _parse_lines(file, types, longest)
        if not table.column_names:  # which are decoded here, and may be no text
            raise InputError(f"{file} has no columns.")
    return table


def _parse_judgements(file: Path) -> pa.Table:
    """BEIR's judgements; or, where the first line names no column but holds a grade, its three or TREC's four."""
    types = {"query-id": pa.string(), "corpus-id": pa.string(), "score": pa.float64()}
    with _sound(file), file.open(encoding="utf-8-sig") as lines:
        head = next((line for line in lines if line.strip()), "")
        divider = "\t" if "\t" in head else None
        at = _UNNAMED.get(len(first := head.split(divider)))
        if at is None or not _GRADE.fullmatch(first[-1].strip()):
            return _parse(file, types)
        lines.seek(0)
        rows = [line.strip().split(divider) for line in lines if line.strip()]
        if odd := next((row for row in rows if len(row) != len(first)), None):
            raise InputError(
                f"{file} has a line of {len(odd)} columns, {' '.join(odd)!r}, not {len(first)}; correct it."
            )
        columns = (pa.array([row[column] for row in rows], pa.string()) for column in at)
        named = zip(types.items(), columns, strict=True)
        return pa.table({name: column.cast(kind) for (name, kind), column in named})


def _parse_lines(file: Path, types: dict[str, pa.DataType], longest: int) -> pa.Table:
    """A JSON lines file; ids may be whole numbers.

    Args:
        file: the file.
        types: of columns.
        longest: bytes of a line.
    """
    reading = json.ReadOptions(block_size=min(max(_BLOCK, longest + 1), 2**31 - 1))
    for kind in (pa.string(), pa.int64()):
        schema = pa.schema(list((types | {"_id": kind}).items()))
        try:
            table = json.read_json(file, reading, json.ParseOptions(explicit_schema=schema))
        except pa.ArrowInvalid as error:
            if "Column(/_id)" not in str(error):
                raise
        else:
            at = table.column_names.index("_id")
            return table.set_column(at, "_id", table.column(at).cast(pa.string()))
    raise InputError(f"{file} has ids that are neither all texts nor all whole numbers; put them in quotes.")


def _check_columns(names: Sequence[str], required: Sequence[str], origin: Path) -> None:
    for name in required:
        if name not in names:
            raise InputError(f"{origin} has no column {name!r}; its columns are {_listed(names)}")


def _check_known(names: Sequence[str], known: Mapping[str, object], what: str, where: str, split: str) -> None:
    unknown = list(dict.fromkeys(name for name in names if name not in known))
    if unknown:
        raise InputError(
            f"the judgements of split {split!r} name {len(unknown)} {what} that are not in the {where}, "
            f"the first being {unknown[0]!r}; remove them or complete the {where}"
        )


def _open_corpus(files: Sequence[Path]) -> Dataset:
    """The corpus in Parquet files, on disk."""
    with _sound(files[0].parent):
        stored = open_files(files)
        assert isinstance(stored, Dataset)
        names, rows = stored.column_names, stored.with_format("arrow")  # no row becomes an object of Python's
        how: dict[str, Any] = {"batched": True, "features": _features(plain_columns(names)), "remove_columns": names}
        return rows.map(_complete, desc="Opening the corpus", **how).with_format(None)


def _complete(rows: pa.Table) -> pa.Table:
    """The columns of a corpus, with a title for every passage."""
    rows = rows.rename_columns(plain_columns(rows.column_names))
    if "title" not in rows.column_names:
        rows = rows.append_column("title", pa.array([""] * rows.num_rows, pa.string()))
    return _select(rows, _features(rows.column_names))


def _features(names: Sequence[str]) -> Features:
    """Those of a corpus that are there, and the title."""
    return Features({name: CORPUS[name] for name in CORPUS if name in {*names, "title"}})


def _select(table: pa.Table, features: Features) -> pa.Table:
    """Those columns of `table` that `features` name, as strings or integers, no text absent."""
    found = _cast(table, features)
    columns = {
        name: column.fill_null("") if pa.types.is_string(column.type) else column
        for name, column in zip(found.column_names, found.columns, strict=True)
    }
    return pa.table(columns, schema=features.arrow_schema)


def _cast(table: pa.Table, features: Features) -> pa.Table:
    """The columns of `table` that `features` name, in their types; raises Arrow's error where a text is no UTF-8."""
    found = table.select(list(features)).cast(features.arrow_schema)
    found.validate(full=True)
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"
