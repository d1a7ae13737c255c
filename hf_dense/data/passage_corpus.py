"""Documents in, a published corpus of passages out.

Three steps, each streaming from and to disk: read the documents, cut them (side by side on one machine or on a
cluster), leave out what repeats. The directory appears complete or not at all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet
from tqdm.auto import tqdm

from hf_dense.data.cards import write_card
from hf_dense.data.documents import DocumentReader
from hf_dense.data.duplicates import BANDS, exact_hashes, near_hashes, repeats
from hf_dense.data.engines import Engine, map_tables
from hf_dense.data.passages import (
    MIN_WORDS,
    build_passages,
    check_length,
    count_words,
    drawn_targets,
    token_counter,
    token_unit,
    tokenizer_source,
)
from hf_dense.data.shards import ShardWriter
from hf_dense.errors import InputError
from hf_dense.storage.output import Output
from hf_dense.storage.staged import Staged

Titles = Literal["column", "text"]
Repeats = Literal["keep", "exact", "near"]

_DOCUMENTS: Final = pa.schema([("id", pa.string()), ("title", pa.string()), ("text", pa.string())])
_PASSAGES: Final = pa.schema(
    [
        ("id", pa.string()),
        ("title", pa.string()),
        ("text", pa.string()),
        ("document", pa.string()),
        ("position", pa.int32()),
    ]
)
_MARKED: Final = (
    _PASSAGES.append(pa.field("words", pa.int32()))
    .append(pa.field("exact", pa.uint64()))
    .append(pa.field("near", pa.list_(pa.uint64(), BANDS)))
)
_COLUMNS: Final = {
    "id": "the document's id, #, and the position",
    "title": "the document's title",
    "text": "the passage",
    "document": "the document's id",
    "position": "place of the passage in its document, from 0",
}
_READ = 8_000_000  # characters of documents in a file of the first step


@dataclass(frozen=True)
class Cutting:
    """How documents become passages.

    Args:
        length: greatest number of tokens in a passage; None leaves every document whole.
        tokenizer: whose tokens are counted (a directory or Hub id); None counts words and punctuation marks.
        short: probability with which a passage is closed earlier, at a random length (Condenser 0.1, CoT-MAE 0.15).
        titles: a `column` of their own, or at the head of the document's `text` too (CoT-MAE).
        repeats: passages that stand in the corpus already: `keep` them, leave out `exact` ones (the same words), or
            `near` ones too.

    Raises:
        InputError: a value outside its range.
    """

    length: int | None = 128
    tokenizer: str | None = None
    short: float = 0.0
    titles: Titles = "column"
    repeats: Repeats = "exact"

    def __post_init__(self) -> None:
        if self.length is not None:
            check_length(self.length)
        if not 0 <= self.short < 1:
            raise InputError(f"short is {self.short}; it is a probability, from 0 to below 1.")
        for name, value, allowed in (("titles", self.titles, Titles), ("repeats", self.repeats, Repeats)):
            if value not in get_args(allowed):
                raise InputError(f"{name} is {value!r}; allowed: {', '.join(get_args(allowed))}.")


def build_passage_corpus(
    source: str | Sequence[str],
    out: str | os.PathLike[str] | Output,
    cutting: Cutting | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    split: str = "train",
    engine: Engine | None = None,
) -> Path:
    """Write the passages of the documents of a source, or of several, to the directory `out`.

    Args:
        source: see `DocumentReader`, as for `columns` and `split`.
        out: holds `corpus/*.parquet` (columns `id`, `title`, `text`, `document`, `position`) and a card.
        engine: where documents are cut; all cores of this machine when absent.

    Returns:
        The directory.

    Raises:
        InputError: the source cannot be read, nothing of it is left, `out` lies inside it, or see `Output.stage`.
    """
    cutting, output = cutting or Cutting(), Output.of(out)
    reader = DocumentReader(*([source] if isinstance(source, str) else source), columns=columns, split=split)
    sources = reader.made_from(output.path) | tokenizer_source(cutting.tokenizer)
    settings = {**asdict(cutting), "columns": reader.columns}
    del settings["tokenizer"]  # a name
    with output.stage("corpus", settings, sources) as work:
        if not work.done:
            _write_corpus(work, reader, cutting, engine or Engine())
    return output.path


def _write_corpus(work: Staged, reader: DocumentReader, cutting: Cutting, engine: Engine) -> None:
    named = ", ".join(reader.sources)
    read = _write_documents(reader, work.pieces / "documents")
    if not read:
        raise InputError(f"No document of {named} can be read: {_listed(reader.counts) or 'it is empty'}.")
    cut = map_tables(partial(cut_documents, cutting=cutting), read, work.pieces / "passages", engine, "Cutting")
    counts = reader.counts + _write_passages(cut, work.result / "corpus", cutting.repeats)
    if not counts["passages"]:
        raise InputError(f"No passage of {named} is left: {_listed(counts)}.")
    work.facts["counts"] = dict(sorted(counts.items()))
    write_card(
        work,
        title=f"Passages of {', '.join(Path(source).stem or source for source in reader.sources)}",
        about=_describe(cutting),
        columns=_COLUMNS,
        rows=counts["passages"],
        configs={"corpus": "corpus/*.parquet"},
    )


def cut_documents(table: pa.Table, cutting: Cutting) -> pa.Table:
    """Documents -> their passages, with the marks by which repeated ones are found.

    Args:
        table: columns `id`, `title`, `text`.

    Returns:
        `id`, `title`, `text`, `document`, `position`, `words` (their number), `exact` and `near` (hashes).
    """
    ids, titles, texts = (table.column(name).to_pylist() for name in _DOCUMENTS.names)
    if cutting.titles == "text":
        texts = [f"{title}\n\n{text}" if title else text for title, text in zip(titles, texts, strict=True)]
    if cutting.length is None:
        cut = [[" ".join(text.split())] for text in texts]
    else:
        paragraphs = [[" ".join(part.split()) for part in text.split("\n\n")] for text in texts]
        targets = [drawn_targets(name, cutting.length, cutting.short) for name in ids] if cutting.short else None
        cut = build_passages(paragraphs, cutting.length, _counter(cutting.tokenizer), targets=targets)
    origins = [(at, position) for at, found in enumerate(cut) for position in range(len(found))]
    passages = [cut[at][position] for at, position in origins]
    whole = cutting.length is None
    near = near_hashes(passages) if cutting.repeats == "near" else np.zeros((len(passages), BANDS), dtype=np.uint64)
    columns: dict[str, Any] = {
        "id": [ids[at] if whole else f"{ids[at]}#{position}" for at, position in origins],
        "title": [titles[at] for at, _ in origins],
        "text": passages,
        "document": [ids[at] for at, _ in origins],
        "position": [position for _, position in origins],
        "words": [count_words(text) for text in passages],
        "exact": exact_hashes(passages),
        "near": pa.FixedSizeListArray.from_arrays(pa.array(near.reshape(-1)), BANDS),
    }
    return pa.table(columns, schema=_MARKED)


_counter = cache(token_counter)  # of a process


def _write_documents(reader: DocumentReader, folder: Path) -> list[Path]:
    """The documents of a reader as Parquet files of a few megabytes each."""
    folder.mkdir()
    files: list[Path] = []
    rows: list[dict[str, str]] = []
    size = 0

    def flush() -> None:
        nonlocal size
        if rows:
            files.append(folder / f"{len(files):06d}.parquet")
            parquet.write_table(pa.Table.from_pylist(rows, schema=_DOCUMENTS), files[-1])
            rows.clear()
            size = 0

    for document in tqdm(reader, desc="Reading", unit=" documents"):
        rows.append({"id": document.id, "title": document.title, "text": document.text})
        size += len(document.text) + 200
        if size > _READ:
            flush()
    flush()
    return files


def _write_passages(files: list[Path], folder: Path, wanted: Repeats) -> Counter[str]:
    """Passages that are long enough and new, in files of a fixed number of rows; counts of the others."""
    columns = ["words", "exact", *(["near"] if wanted == "near" else [])]
    marks = pa.concat_tables([parquet.read_table(file, columns=columns) for file in files])
    short = marks.column("words").to_numpy() < MIN_WORDS
    exact = _repeated(marks.column("exact").to_numpy(), short) if wanted != "keep" else np.zeros(len(short), dtype=bool)
    near = np.zeros(len(short), dtype=bool)
    if wanted == "near":
        flat = marks.column("near").combine_chunks().flatten().to_numpy()
        near = _repeated(flat.reshape(-1, BANDS), short | exact)
    counts = Counter(
        {
            f"passages below {MIN_WORDS} words": int(short.sum()),
            "passages repeated": int(exact.sum()),
            "passages nearly repeated": int(near.sum()),
            "passages": int((~(short | exact | near)).sum()),
        }
    )
    kept, start = ~(short | exact | near), 0
    with ShardWriter(folder) as writer:
        for file in tqdm(files, desc="Writing", unit=" files"):
            table = parquet.read_table(file, columns=_PASSAGES.names)
            writer.write(table.filter(pa.array(kept[start : start + len(table)])))
            start += len(table)
    return counts


def _repeated(hashes: NDArray[np.uint64], ignored: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows repeat an earlier one that is not ignored."""
    found = np.zeros(len(ignored), dtype=bool)
    found[~ignored] = repeats(hashes[~ignored])
    return found


def _describe(cutting: Cutting) -> str:
    if cutting.length is None:
        how = "Every document is one passage."
    else:
        unit = token_unit(cutting.tokenizer)
        how = f"A passage holds consecutive sentences of a document, at most {cutting.length} {unit}."
    if cutting.short:
        how += f" With probability {cutting.short:g} a passage is closed earlier, at a random length."
    if cutting.titles == "text":
        how += " The title also stands at the head of the document's text."
    said = {
        "keep": "Repeated passages are kept.",
        "exact": "Of passages with the same words the first is kept.",
        "near": "Of passages with the same or nearly the same words (MinHash over runs of five words), the first is "
        "kept.",
    }
    return f"{how} Passages of fewer than {MIN_WORDS} words are left out. {said[cutting.repeats]}"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)
