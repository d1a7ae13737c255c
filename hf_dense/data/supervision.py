"""Labelled queries in the forms they are published in, as collections: corpus, queries, judgements, training lists.

All end in one form (`hf_dense.data.schemas`), whether they were pairs, triples or lists.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pyarrow as pa
from pyarrow import parquet

from hf_dense.data.cards import write_card
from hf_dense.data.documents import DocumentReader
from hf_dense.data.schemas import CORPUS, QRELS, QUERIES, TRAINING
from hf_dense.data.shards import ShardWriter
from hf_dense.errors import InputError
from hf_dense.files import atomic_directory
from hf_dense.replacing import check_replaceable

Form = Literal["pairs", "dpr", "msmarco"]

_BATCH = 10_000
_COLUMNS: Final = ("id", "title", "text")
_POSITIVES: Final = ("positive", "positives", "pos", "passage", "answer")
_NEGATIVES: Final = ("negative", "negatives", "neg", "hard_negatives")


@dataclass
class Labels:
    """Queries and what was judged of them.

    Args:
        queries: text by id.
        grades: by query id, the grade of every judged passage id.
        negatives: by query id, passage ids that came as negatives.
        passages: id -> (title, text), of forms that bring their passages along.
    """

    queries: dict[str, str] = field(default_factory=dict)
    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    negatives: dict[str, list[str]] = field(default_factory=dict)
    passages: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, query: str, positives: Iterable[str], negatives: Iterable[str]) -> None:
        """Judge passages (ids) for a query that is known by its text; more of the same query is joined."""
        name = _name(query)
        self.queries[name] = query
        self.grades.setdefault(name, {}).update(dict.fromkeys(positives, 1))
        known = self.negatives.setdefault(name, [])
        known += [passage for passage in dict.fromkeys(negatives) if passage not in known]

    def keep(self, text: str, title: str = "", name: str = "") -> str:
        """Remember a passage; its id."""
        name = name or _name(f"{title}\0{text}" if title else text)
        self.passages.setdefault(name, (title, text))
        return name


def build_collection(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    form: Form = "pairs",
    split: str = "train",
    licence: str = "other",
    command: str = "",
) -> Path:
    """Write labelled queries as a collection.

    Args:
        source: `pairs`: a .jsonl or .csv file with the columns `query`, `positive` (a text or a list of them) and, if
            there are any, `negatives`; `dpr`: a .json file of DPR (`question`, `positive_ctxs`, `hard_negative_ctxs`);
            `msmarco`: a folder with `collection.tsv`, `queries.<split>.tsv` and `qrels.<split>.tsv` (also TREC DL's).
        out: holds `corpus/`, `queries/`, `qrels/<split>.parquet`, `negatives/<split>.parquet` (columns of `TRAINING`)
            and a card.
        split: what the labels are for: train, dev or test.

    Returns:
        `out` as a path.

    Raises:
        InputError: a file or column is missing, a row has no query or no positive passage, or names an unknown one.
    """
    if form not in get_args(Form):
        raise InputError(f"The form is {form!r}; allowed: {', '.join(get_args(Form))}.")
    check_replaceable(out, marker="README.md")
    path, target = Path(source), Path(out)
    if not path.exists():
        raise InputError(f"The source {path} does not exist.")
    labels = {"pairs": _read_pairs, "dpr": _read_dpr, "msmarco": _read_msmarco}[form](path, split)
    if not labels.queries:
        raise InputError(f"{path} holds no labelled query.")
    with atomic_directory(target) as work:
        counts = _write_corpus(work / "corpus", _passages(labels, path), labels)
        counts["queries"] = len(labels.queries)
        counts["judgements"] = sum(map(len, labels.grades.values()))
        counts["negatives"] = sum(map(len, labels.negatives.values()))
        rows = ({"id": name, "text": text} for name, text in labels.queries.items())
        _write(work / "queries" / "part-00000.parquet", rows, QUERIES.arrow_schema)
        _write(work / "qrels" / f"{split}.parquet", _judgements(labels), QRELS.arrow_schema)
        _write(work / "negatives" / f"{split}.parquet", _training(labels), TRAINING.arrow_schema)
        write_card(
            work,
            title=f"Labelled queries of {path.name}",
            about=f"Passages, queries and judgements of {path.name}, split {split}; lists to train on beside them.",
            columns={
                "corpus": "id, title, text",
                "queries": "id, text",
                split: "query-id, corpus-id, score: the judgements",
                "negatives": ", ".join(TRAINING),
            },
            counts=dict(sorted(counts.items())),
            rows=counts["passages"],
            source=str(source),
            licence=licence,
            command=command,
            configs={
                "corpus": "corpus/*.parquet",
                "queries": "queries/*.parquet",
                split: f"qrels/{split}.parquet",
                "negatives": f"negatives/{split}.parquet",
            },
        )
    return target


def _read_pairs(path: Path, split: str) -> Labels:
    """One's own pairs, triples or lists."""
    labels = Labels()
    for number, row in enumerate(_rows(path), start=1):
        query = str(row.get("query") or "").strip()
        positives = _texts(row, _POSITIVES)
        if not query or not positives:
            lacking = "query" if not query else "positive passage"
            raise InputError(f"Row {number} of {path} has no {lacking}; every row needs columns query and positive.")
        labels.add(query, map(labels.keep, positives), map(labels.keep, _texts(row, _NEGATIVES)))
    return labels


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.suffix not in (".jsonl", ".csv"):
        raise InputError(f"{path} is of no known kind; pairs come as .jsonl or .csv.")
    with path.open(encoding="utf-8", newline="") as stream:
        try:
            if path.suffix == ".csv":
                yield from csv.DictReader(stream)
            else:
                for number, line in enumerate(stream, start=1):
                    if line.strip():
                        try:
                            row = json.loads(line)
                        except json.JSONDecodeError as error:
                            raise InputError(f"Line {number} of {path} is not JSON: {error.msg}.") from error
                        yield row
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8.") from error


def _texts(row: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    found: Any = next((row[name] for name in names if row.get(name)), [])
    texts = [found] if isinstance(found, str) else found
    return [text for text in (str(text).strip() for text in texts) if text]


def _read_dpr(path: Path, split: str) -> Labels:
    """DPR's training files; a question without positive passage is left out, as DPR leaves it out."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise InputError(f"{path} is not a JSON file of DPR.") from error
    labels = Labels()
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or "question" not in row or "positive_ctxs" not in row:
            raise InputError(f"Entry {number} of {path} lacks question or positive_ctxs; it is not a file of DPR.")
        if row["positive_ctxs"]:
            kinds = (row["positive_ctxs"], row.get("hard_negative_ctxs") or [])
            positives, negatives = ([_keep_context(labels, context) for context in found] for found in kinds)
            labels.add(row["question"], positives, negatives)
    return labels


def _keep_context(labels: Labels, context: Mapping[str, Any]) -> str:
    name = str(context.get("passage_id") or context.get("psg_id") or "")
    return labels.keep(context["text"], context.get("title") or "", name)


def _read_msmarco(path: Path, split: str) -> Labels:
    """MS MARCO's and TREC DL's queries and judgements; the passages are streamed when they are written."""
    queries, qrels = (_existing(path, f"{name}.{split}.tsv") for name in ("queries", "qrels"))
    texts = dict(line.split("\t", 1) for line in queries.read_text(encoding="utf-8").splitlines() if "\t" in line)
    labels = Labels()
    for number, line in enumerate(qrels.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.split()
        if len(fields) != 4:
            raise InputError(f"Line {number} of {qrels} has {len(fields)} fields; judgements have four.")
        query, _, passage, grade = fields
        if query not in texts:
            raise InputError(f"Line {number} of {qrels} names the query {query!r}, which {queries.name} lacks.")
        labels.queries[query] = texts[query]
        labels.grades.setdefault(query, {})[passage] = int(grade)
        labels.negatives.setdefault(query, [])
    return labels


def _existing(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise InputError(f"{folder} has no {name}.")
    return folder / name


def _passages(labels: Labels, path: Path) -> Iterator[dict[str, str]]:
    """The passages: those that came with the labels, or MS MARCO's collection."""
    if labels.passages:
        for name, (title, text) in labels.passages.items():
            yield {"id": name, "title": title, "text": text}
        return
    for document in DocumentReader(str(_existing(path, "collection.tsv"))):
        yield {"id": document.id, "title": document.title, "text": document.text}


def _write_corpus(folder: Path, passages: Iterator[dict[str, str]], labels: Labels) -> Counter[str]:
    """Write the passages; every one that is judged must be among them."""
    judged = {passage for graded in labels.grades.values() for passage in graded}
    schema = pa.schema([CORPUS.arrow_schema.field(name) for name in _COLUMNS])
    with ShardWriter(folder) as writer:
        for part in _batches(passages):
            judged.difference_update(row["id"] for row in part)
            writer.write(pa.Table.from_pylist(part, schema=schema))
    if judged:
        raise InputError(f"The judgements name the passage {min(judged)!r}, which is not in the corpus.")
    return Counter({"passages": writer.written})


def _judgements(labels: Labels) -> Iterator[dict[str, Any]]:
    for query, graded in labels.grades.items():
        for passage, grade in graded.items():
            yield {"query-id": query, "corpus-id": passage, "score": grade}


def _training(labels: Labels) -> Iterator[dict[str, Any]]:
    for query, graded in labels.grades.items():
        positives = [passage for passage, grade in graded.items() if grade > 0]
        if positives:
            yield {
                "query_id": query,
                "query": labels.queries[query],
                "positives": positives,
                "negatives": [passage for passage in labels.negatives[query] if passage not in graded],
                "positive_scores": [],
                "negative_scores": [],
            }


def _write(path: Path, rows: Iterable[dict[str, Any]], schema: pa.Schema) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with parquet.ParquetWriter(path, schema) as writer:
        for part in _batches(iter(rows)):
            writer.write_table(pa.Table.from_pylist(part, schema=schema))


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for row in rows:
        yield [row, *islice(rows, _BATCH - 1)]


def _name(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
