"""Documents in, a published corpus of passages out.

Three steps, each streaming from and to disk: read the documents, cut them (side by side on one machine or on a
cluster), leave out what repeats. The directory appears complete or not at all.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    CountTokens,
    build_passages,
    count_words,
    drawn_targets,
    pretoken_counter,
    tokenizer_counter,
)
from hf_dense.data.shards import ShardWriter
from hf_dense.errors import InputError
from hf_dense.storage.legacy import atomic_directory, check_replaceable

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
        if self.length is not None and self.length < 2:
            raise InputError(f"A passage length of {self.length} tokens leaves no room for text; give at least 2.")
        if not 0 <= self.short < 1:
            raise InputError(f"short is {self.short}; it is a probability, from 0 to below 1.")
        for name, value, allowed in (("titles", self.titles, Titles), ("repeats", self.repeats, Repeats)):
            if value not in get_args(allowed):
                raise InputError(f"{name} is {value!r}; allowed: {', '.join(get_args(allowed))}.")


def build_passage_corpus(
    source: str | Sequence[str],
    out: str | os.PathLike[str],
    cutting: Cutting | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    split: str = "train",
    licence: str = "other",
    engine: Engine | None = None,
    command: str = "",
) -> Path:
    """Write the passages of the documents of a source, or of several, to the directory `out`.

    Args:
        source: see `DocumentReader`, as for `columns` and `split`.
        out: holds `corpus/*.parquet` (columns `id`, `title`, `text`, `document`, `position`), a card, `counts.json`.
        licence: of the texts, for the card.
        engine: where documents are cut; all cores of this machine when absent.
        command: the command that builds this corpus, for the card.

    Returns:
        `out` as a path.

    Raises:
        InputError: the source cannot be read, or nothing of it is left.
    """
    cutting = cutting or Cutting()
    check_replaceable(out, marker="counts.json")
    sources = [source] if isinstance(source, str) else list(source)
    reader = DocumentReader(*sources, columns=columns, split=split)
    named = ", ".join(sources)
    if cutting.length is not None:
        _counter(cutting.tokenizer)  # a wrong name is an error here, not in a worker
    target = Path(out)
    with atomic_directory(target) as work, tempfile.TemporaryDirectory(dir=target.resolve().parent) as rough:
        read = _write_documents(reader, Path(rough) / "documents")
        if not read:
            raise InputError(f"No document of {named} can be read: {_listed(reader.counts) or 'it is empty'}.")
        cut = map_tables(
            partial(cut_documents, cutting=cutting), read, Path(rough) / "passages", engine or Engine(), "Cutting"
        )
        counts = reader.counts + _write_passages(cut, work / "corpus", cutting.repeats)
        if not counts["passages"]:
            raise InputError(f"No passage of {named} is left: {_listed(counts)}.")
        (work / "counts.json").write_text(json.dumps(dict(sorted(counts.items())), indent=1) + "\n", encoding="utf-8")
        write_card(
            work,
            title=f"Passages of {', '.join(Path(source).stem or source for source in sources)}",
            about=_describe(cutting),
            columns={
                "id": "the document's id, #, and the position",
                "title": "the document's title",
                "text": "the passage",
                "document": "the document's id",
                "position": "place of the passage in its document, from 0",
            },
            counts=dict(sorted(counts.items())),
            rows=counts["passages"],
            source=named,
            licence=licence,
            command=command,
            configs={"corpus": "corpus/*.parquet"},
        )
    return target


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
    places = [(at, position) for at, found in enumerate(cut) for position in range(len(found))]
    passages = [cut[at][position] for at, position in places]
    whole = cutting.length is None
    near = near_hashes(passages) if cutting.repeats == "near" else np.zeros((len(passages), BANDS), dtype=np.uint64)
    columns: dict[str, Any] = {
        "id": [ids[at] if whole else f"{ids[at]}#{position}" for at, position in places],
        "title": [titles[at] for at, _ in places],
        "text": passages,
        "document": [ids[at] for at, _ in places],
        "position": [position for _, position in places],
        "words": [count_words(text) for text in passages],
        "exact": exact_hashes(passages),
        "near": pa.FixedSizeListArray.from_arrays(pa.array(near.reshape(-1)), BANDS),
    }
    return pa.table(columns, schema=_MARKED)


@cache
def _counter(tokenizer: str | None) -> CountTokens:
    return tokenizer_counter(tokenizer) if tokenizer else pretoken_counter()


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
        unit = f"tokens of {cutting.tokenizer}" if cutting.tokenizer else "words and punctuation marks"
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
