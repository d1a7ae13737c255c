"""Reading a retrieval collection from a directory, in published form or as a BEIR folder, and publishing one.

Published form: Parquet tables `corpus/*.parquet`, `queries/*.parquet` and `qrels/<split>.parquet` with the columns
of `hf_dense.data.schemas`; judgements renamed by the Hub (`<split>-00000-of-00001.parquet`) are read too.
BEIR folder: `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`, `text`) and `qrels/<split>.tsv`
(`query-id`, `corpus-id`, `score`, one header line).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from datasets import Dataset, Features, Value
from huggingface_hub import create_repo, upload_folder
from pyarrow import csv, dataset, json, parquet

from hf_dense.data.schemas import CORPUS, QRELS, QUERIES
from hf_dense.errors import InputError
from hf_dense.storage.fingerprints import fingerprint_files

_REQUIRED_OF_CORPUS: Final = ("id", "text")
_IN_MEMORY: Final = 2**28  # bytes of Parquet files that are read at once
_PATTERNS: Final = (
    "corpus/*.parquet",
    "queries/*.parquet",
    "qrels/*.parquet",
    "corpus.jsonl",
    "queries.jsonl",
    "qrels/*.tsv",
)


def load_corpus(path: str | os.PathLike[str]) -> Dataset:
    """Passages of a collection: columns `id`, `title` ("" where there is none), `text`, and those of `document`,
    `position` and `split` that are there.

    Parquet files above 256 MB are read from disk as needed, from a copy that `datasets` keeps in its cache.

    Raises:
        InputError: the directory, its corpus or a column is missing, or the corpus is empty.
    """
    files = sorted(_existing(Path(path)).glob("corpus/*.parquet"))
    if sum(file.stat().st_size for file in files) > _IN_MEMORY:
        return _open_corpus(files)
    table = _read_table(Path(path), "corpus", _REQUIRED_OF_CORPUS)
    if table.num_rows == 0:
        raise InputError(f"the corpus of {path} is empty; it needs at least one passage")
    if "title" not in table.column_names:
        table = table.append_column("title", pa.array([""] * table.num_rows, pa.string()))
    features = Features({name: CORPUS[name] for name in CORPUS if name in table.column_names})
    return _to_dataset(table, features)


def load_queries(path: str | os.PathLike[str]) -> Dataset:
    """Queries of a collection: columns `id` and `text`.

    Raises:
        InputError: the directory, its queries or a column is missing.
    """
    return _to_dataset(_read_table(Path(path), "queries", tuple(QUERIES)), QUERIES)


def load_qrels(path: str | os.PathLike[str], split: str) -> dict[str, dict[str, int]]:
    """Judgements of one split: query id -> {passage id: grade}, in the order of the file.

    Raises:
        InputError: the directory, the split or a column is missing.
    """
    folder = _existing(Path(path)) / "qrels"
    published = sorted([*folder.glob(f"{split}.parquet"), *folder.glob(f"{split}-?????-of-?????.parquet")])
    beir = folder / f"{split}.tsv"
    if published:
        table = pa.concat_tables([parquet.read_table(file) for file in published])
    elif beir.exists():
        table = _parse(beir, {"query-id": pa.string(), "corpus-id": pa.string(), "score": pa.int32()})
    else:
        there = sorted(file.stem for file in folder.glob("*") if file.suffix in (".parquet", ".tsv"))
        raise InputError(f"{path} has no relevance judgements for split {split!r}; it has {_listed(there)}")
    _check_columns(table, tuple(QRELS), published[0] if published else beir)
    qrels: dict[str, dict[str, int]] = {}
    columns = (table.column(name).to_pylist() for name in QRELS)
    for query, passage, grade in zip(*columns, strict=True):
        qrels.setdefault(str(query), {})[str(passage)] = int(grade)
    return qrels


def training_pairs(path: str | os.PathLike[str], split: str = "train") -> Dataset:
    """One row for each query and relevant passage (grade above 0) of `split`, in the order of the judgements.

    Where judgements name documents that the corpus is cut from, the first passage of a document stands for it.

    Returns:
        Columns `query`, `passage` (title and text), `query_id` and `passage_id`.

    Raises:
        InputError: as the loaders do, or the judgements name unknown passages or queries, or none is positive.
    """
    corpus, queries, qrels = load_corpus(path), load_queries(path), load_qrels(path, split)
    pairs = [(query, passage) for query, graded in qrels.items() for passage, grade in graded.items() if grade > 0]
    if not pairs:
        raise InputError(f"split {split!r} of {path} has no relevant passage to train on; choose another split")
    rows, questions = corpus[:], queries[:]
    places_of_passage = judged_places(corpus)
    place_of_query = {name: at for at, name in enumerate(questions["id"])}
    _check_known([passage for _, passage in pairs], places_of_passage, "passages", "corpus", split)
    _check_known([query for query, _ in pairs], place_of_query, "queries", "queries", split)
    places = [places_of_passage[passage][0] for _, passage in pairs]
    return Dataset.from_dict(
        {
            "query": [questions["text"][place_of_query[query]] for query, _ in pairs],
            "passage": [f"{rows['title'][at]} {rows['text'][at]}".strip() for at in places],
            "query_id": [query for query, _ in pairs],
            "passage_id": [rows["id"][at] for at in places],
        }
    )


def judged_places(corpus: Dataset) -> dict[str, list[int]]:
    """Rows that a judgement speaks of when it names a passage (one row), or a document (all rows cut from it)."""
    places: dict[str, list[int]] = {}
    if "document" in corpus.column_names:
        for at, name in enumerate(corpus["document"][:]):
            places.setdefault(name, []).append(at)
    places.update((name, [at]) for at, name in enumerate(corpus["id"][:]))
    return places


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
    folder = _existing(Path(path))
    files = sorted({file for pattern in _PATTERNS for file in folder.glob(pattern)})
    if not files:
        raise InputError(f"{path} is not a collection: it holds neither corpus/*.parquet nor corpus.jsonl")
    return fingerprint_files(files, folder)


def push_collection(path: str | os.PathLike[str], repository: str, private: bool = False) -> None:
    """Publish the Parquet files and the card of a directory to the Hub, as they are.

    Raises:
        InputError: the directory has no card.
    """
    folder = _existing(Path(path))
    if not (folder / "README.md").exists():
        raise InputError(f"{path} has no README.md; only what hf-dense data wrote can be pushed")
    create_repo(repository, repo_type="dataset", private=private, exist_ok=True)
    upload_folder(
        repo_id=repository,
        folder_path=folder,
        repo_type="dataset",
        allow_patterns=["*.parquet", "README.md", "*.json"],
        commit_message="Upload the dataset",
    )


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise InputError(f"{folder} is not a directory; give the directory of a collection")
    return folder


def _read_table(folder: Path, name: str, required: Sequence[str]) -> pa.Table:
    """The Parquet files of `folder/name`, or `folder/name.jsonl`, as one table with a column `id`."""
    files = sorted(_existing(folder).glob(f"{name}/*.parquet"))
    lines = folder / f"{name}.jsonl"
    if files:
        table, origin = pa.concat_tables([parquet.read_table(file) for file in files]), folder / name
    elif lines.exists():
        table, origin = _parse(lines, {"_id": pa.string(), "title": pa.string(), "text": pa.string()}), lines
        if "id" not in table.column_names:
            table = table.rename_columns([{"_id": "id"}.get(column, column) for column in table.column_names])
    else:
        raise InputError(f"{folder} has no {name}: neither {name}/*.parquet nor {name}.jsonl is there")
    _check_columns(table, required, origin)
    return table


def _parse(file: Path, types: dict[str, pa.DataType]) -> pa.Table:
    """A JSON lines or tab-separated file; columns named in `types` are read as such."""
    if file.stat().st_size == 0:
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})
    try:
        if file.suffix == ".tsv":
            return csv.read_csv(
                file,
                parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
                convert_options=csv.ConvertOptions(column_types=types),
            )
        return json.read_json(file, parse_options=json.ParseOptions(explicit_schema=pa.schema(list(types.items()))))
    except pa.ArrowInvalid as error:
        raise InputError(f"{file} cannot be read: {str(error).splitlines()[0]}") from error


def _check_columns(table: pa.Table, required: Sequence[str], origin: Path) -> None:
    for name in required:
        _check_column(name, table.column_names, origin)


def _check_column(name: str, names: Sequence[str], origin: Path) -> None:
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
    names = parquet.read_schema(files[0]).names
    for name in _REQUIRED_OF_CORPUS:
        _check_column(name, names, files[0])
    features = Features({name: CORPUS[name] for name in CORPUS if name in {*names, "title"}})
    stored = Dataset.from_parquet(
        [str(file) for file in files],
        # Else Arrow reads ahead through the whole file.
        fragment_scan_options=dataset.ParquetFragmentScanOptions(pre_buffer=False),
    )
    assert isinstance(stored, Dataset)

    def complete(rows: pa.Table) -> pa.Table:
        if "title" not in names:
            rows = rows.append_column("title", pa.array([""] * rows.num_rows, pa.string()))
        return _select(rows, features)

    # Arrow to Arrow: no row becomes an object of Python's.
    return (
        stored.with_format("arrow")
        .map(complete, batched=True, features=features, remove_columns=names, desc="Opening the corpus")
        .with_format(None)
    )


def _to_dataset(table: pa.Table, features: Features) -> Dataset:
    """Those columns of `table` that `features` name, as strings or integers, no text absent."""
    return Dataset(_select(table, features))


def _select(table: pa.Table, features: Features) -> pa.Table:
    columns = {}
    for name, feature in features.items():
        assert isinstance(feature, Value)
        column = table.column(name).cast(feature.pa_type)
        columns[name] = column.fill_null("") if feature.dtype == "string" else column
    return pa.table(columns, schema=features.arrow_schema)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"
