"""Labelled queries in the forms they are published in, as collections: corpus, queries, judgements, training lists.

All end in one form (`hf_dense.data.schemas`), whether they were pairs, triples or lists.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from hf_dense.data.cards import write_card
from hf_dense.data.labels import FORMS, Labels, existing
from hf_dense.data.matching import divide, find_passages, use_ids
from hf_dense.data.passage_corpus import listed
from hf_dense.data.passage_sources import PassageSource, find_source, given_passages, in_batches
from hf_dense.data.passage_texts import passage_text
from hf_dense.data.schemas import ANSWERED, QRELS, QUERIES, TRAINING
from hf_dense.data.shards import ShardWriter
from hf_dense.data.splits import Shares, parse_shares
from hf_dense.errors import InputError
from hf_dense.storage.fingerprints import fingerprint_files
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.staged import Staged

_ID: Final = re.compile(r"[!-~]*[0-9][!-~]*")  # what stands for a text and is none


def build_collection(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | Output,
    form: str = "pairs",
    split: str | Sequence[str] = "train",
    corpus: str | None = None,
    seed: int = 42,
) -> Path:
    """Write labelled queries as a collection.

    Args:
        source: `pairs`: a .jsonl, .json, .csv, .tsv or .parquet file with the columns `query`, `positive` (a text or a
            list) and, if there are any, `negatives` and the grade of the positive (`label`, `score`, `relevance` or
            `grade`; 0 is not relevant); `dpr`: a .json file of DPR (`question`, `positive_ctxs`, `hard_negative_ctxs`,
            `answers`) or a .csv of it (question, answers); `msmarco`: a folder of MS MARCO or TREC DL with
            `collection.tsv` or `msmarco-docs.tsv`, and for every split `queries.<split>.tsv` and `qrels.<split>.tsv`
            (of documents also `msmarco-doc<split>-queries.tsv`, `-qrels.tsv`); `mind`: a folder of MIND, whose
            impressions become queries (`read_mind`).
        out: holds `corpus/`, `queries/`, `qrels/<split>.parquet`, `negatives/<split>.parquet` (columns of `TRAINING`)
            and a card.
        split: what the labels are for: train, dev or test; `msmarco` takes several. Or shares of the documents, such as
            "80/10/10": no document is asked for in two of train, dev and test.
        corpus: passages in place of those that come with the labels, which are found there word for word, or in part
            where they were cut otherwise (`Overlaps`): a corpus of `hf-dense data passages`, a table of passages, or a
            source of documents, which are cut as that does by default. Where it is cut from the documents that were
            judged, judgements go on naming these.
        seed: of the shares.

    Returns:
        The directory.

    Raises:
        InputError: a file or column is missing, a row has no query or no positive passage, or names an unknown one, a
            split gets no query, or see `Output.stage`.
    """
    splits, path, output = [split] if isinstance(split, str) else list(split), Path(source), Output.of(out)
    shares = _check(form, splits, path)
    files = {name: FORMS[form].files(path, name) for name in splits}
    labels = {name: FORMS[form].read(*found) for name, found in files.items()}
    for name, found in labels.items():
        if not found.queries:
            of, why = "" if shares else f" of split {name}", listed(found.dropped)
            raise InputError(f"{path} holds no labelled query{of}{why and f': {why}'}.")
    read = dict.fromkeys(file for found in files.values() for file in found)
    sources = {"labels": Source(str(source), fingerprint_files(read, path if path.is_dir() else path.parent))}
    settings = {"form": form, "splits": splits, **({"seed": seed} if shares else {})}
    passages = _corpus(labels, path, corpus, output.path)
    with output.stage("collection", settings, {**sources, **passages.sources}) as work:
        if not work.done:
            counts = Counter[str]()
            tables = passages.open(work.pieces, counts)
            if shares or (corpus is not None and any(found.passages for found in labels.values())):
                matches = find_passages(labels.values(), tables)
                labels = use_ids(labels, matches, corpus or path.name)
                labels = divide(labels[splits[0]], matches, shares, seed) if shares else labels
            named = f"{path.name}, split {', '.join(labels)}"
            about = f"Passages, queries and judgements of {named}; lists to train on beside them."
            title = f"Labelled queries of {path.name}"
            write_collection(work, tables(), labels, title, about, counts or passages.read)
    return output.path


def _check(form: str, splits: Sequence[str], path: Path) -> Shares | None:
    """The shares of the documents, where the splits are given so."""
    if form not in FORMS:
        raise InputError(f"The form is {form!r}; allowed: {', '.join(FORMS)}.")
    if len(splits) != 1 and form != "msmarco":
        raise InputError(f"Labels of the form {form!r} are of one split; several can be given for msmarco.")
    if unnamed := [name for name in splits if not name.strip() or not name.isprintable()]:
        raise InputError(f"{unnamed[0]!r} is no name of a split; name it train, dev or test.")
    shares = parse_shares(splits[0]) if "/" in splits[0] else None
    if shares and form == "msmarco":
        raise InputError(
            "Labels of the form 'msmarco' are split already; name their splits, such as --split train dev."
        )
    if not path.exists():
        raise InputError(f"The source {path} does not exist.")
    return shares


def write_collection(
    work: Staged,
    passages: Iterator[pa.Table],
    labels: dict[str, Labels],
    title: str,
    about: str,
    counted: Mapping[str, int] | None = None,
) -> None:
    """Write a collection with its card.

    Args:
        work: whose result receives it, and whose facts receive the counts.
        passages: tables with the columns of `CORPUS` that there are.
        labels: queries and judgements of each split.
        title: of the card.
        about: what the collection is and how it came to be, for the card.
        counted: more counts for the card, which may grow while the passages are read.

    Raises:
        InputError: there is no passage, or a judgement names an unknown one.
    """
    written = Counter[str]()
    known = _write_corpus(work.result / "corpus", passages, labels, written)
    counts = Counter[str]({**(counted or {}), **written})
    counts.update(sum((found.dropped for found in labels.values()), Counter()))
    _write_queries(work.result / "queries" / "part-00000.parquet", labels)
    for name, found in labels.items():
        counts[f"queries of {name}"] = len(found.queries)
        counts[f"judgements of {name}"] = sum(map(len, found.grades.values()))
        counts[f"negatives of {name}"] = sum(len(row["negatives"]) for row in _training(found, known))
        write_judgements(work.result, name, found.grades)
        _write(work.result / "negatives" / f"{name}.parquet", _training(found, known), TRAINING.arrow_schema)
    work.facts["counts"] = dict(sorted(counts.items()))
    first = {name: work.result / name / "part-00000.parquet" for name in ("corpus", "queries")}
    columns = {name: ", ".join(parquet.read_schema(file).names) for name, file in first.items()}
    write_collection_card(work, title, about, columns, labels)


def write_collection_card(
    work: Staged, title: str, about: str, columns: Mapping[str, str], splits: Iterable[str], lists: bool = True
) -> None:
    """Write the card of a collection, whose facts have the counts.

    Args:
        work: the collection.
        title, about: of the card.
        columns: of `corpus` and `queries`.
        splits: of the judgements.
        lists: whether there are training lists.
    """
    write_card(
        work,
        title=title,
        about=about,
        columns={
            **columns,
            "default": "query-id, corpus-id, score: the judgements",
            **({"negatives": ", ".join(TRAINING)} if lists else {}),
        },
        rows=work.facts["counts"]["passages"],
        configs={
            "corpus": "corpus/*.parquet",
            "queries": "queries/*.parquet",
            "default": {split: f"qrels/{split}.parquet" for split in splits},  # where MTEB looks for them
            **({"negatives": "negatives/*.parquet"} if lists else {}),
        },
    )


def _corpus(labels: dict[str, Labels], path: Path, corpus: str | None, out: Path) -> PassageSource:
    """The passages: of the corpus that was named, those that came with the labels, or MS MARCO's."""
    brought = {name: kept for found in labels.values() for name, kept in found.passages.items()}
    if corpus is None and brought:
        if empty := [name for name, kept in brought.items() if not passage_text(*kept)]:
            raise InputError(f"The passage {empty[0]!r} comes without words; name the corpus that has them: --corpus.")
        if all(_ID.fullmatch(passage_text(*kept)) for kept in brought.values()):
            first = passage_text(*next(iter(brought.values())))
            raise InputError(f"The passages of {path} are ids such as {first!r}; name the corpus of theirs: --corpus.")
        return given_passages(brought)
    return find_source(corpus or str(existing(path, "collection.tsv", "msmarco-docs.tsv")), out)


def _write_corpus(
    folder: Path, passages: Iterator[pa.Table], labels: dict[str, Labels], counts: Counter[str]
) -> dict[str, str]:
    """Write the passages.

    Returns:
        What stands in the corpus for every passage that is judged: itself, or the first passage of a document.
    """
    judged = {passage for found in labels.values() for graded in found.grades.values() for passage in graded}
    first: dict[str, str] = {}
    with ShardWriter(folder) as writer:
        for table in passages:
            ids = table.column("id").to_pylist()
            first |= {name: name for name in ids if name in judged}
            if "document" in table.column_names:
                for name, passage in zip(table.column("document").to_pylist(), ids, strict=True):
                    if name in judged:
                        first.setdefault(name, passage)
            writer.write(table)
    counts["passages"] = writer.written
    if not writer.written:
        raise InputError("The corpus of the labels is empty.")
    if unknown := judged - first.keys():
        raise InputError(f"The judgements name the passage {min(unknown)!r}, which is not in the corpus.")
    return first


def _write_queries(path: Path, labels: dict[str, Labels]) -> None:
    texts = {name: text for found in labels.values() for name, text in found.queries.items()}
    answers = {name: strings for found in labels.values() for name, strings in found.answers.items()}
    if answers:
        rows = ({"id": name, "text": text, "answers": answers.get(name, [])} for name, text in texts.items())
        _write(path, rows, ANSWERED.arrow_schema)
    else:
        _write(path, ({"id": name, "text": text} for name, text in texts.items()), QUERIES.arrow_schema)


def write_judgements(folder: Path, split: str, grades: Mapping[str, Mapping[str, int]]) -> None:
    """Write the judgements of a split into a collection: query id -> {passage id: grade}."""
    rows = (
        {"query-id": query, "corpus-id": passage, "score": grade}
        for query, graded in grades.items()
        for passage, grade in graded.items()
    )
    _write(folder / "qrels" / f"{split}.parquet", rows, QRELS.arrow_schema)


def _training(labels: Labels, passages: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A list for every query with a positive; what was judged and not found relevant is a negative."""
    for query, graded in labels.grades.items():
        positives = [passages[name] for name, grade in graded.items() if grade > 0]
        negatives = [passages[name] for name, grade in graded.items() if grade <= 0]
        negatives += [name for name in labels.negatives.get(query, ()) if name not in graded]
        if positives:
            yield {
                "query_id": query,
                "query": labels.queries[query],
                "positives": positives,
                "negatives": list(dict.fromkeys(negatives)),
                "positive_scores": [],
                "negative_scores": [],
            }


def _write(path: Path, rows: Iterable[dict[str, Any]], schema: pa.Schema) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with parquet.ParquetWriter(path, schema) as writer:
        for part in in_batches(rows):
            writer.write_table(pa.Table.from_pylist(part, schema=schema))
