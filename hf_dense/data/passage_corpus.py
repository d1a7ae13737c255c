"""Documents in, a published corpus of passages out.

Three steps, each streaming from and to disk: read the documents, cut them (side by side on one machine or on a
cluster), leave out what repeats. The directory appears complete or not at all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
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
from hf_dense.data.passage_texts import passage_text
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
from hf_dense.data.readers.page import CodeOption
from hf_dense.data.sections import Part, join_short
from hf_dense.data.shards import ShardWriter
from hf_dense.errors import InputError
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.output import Output
from hf_dense.storage.staged import Staged

Titles = Literal["column", "text"]
Repeats = Literal["keep", "exact", "near"]

_DOCUMENTS: Final = pa.schema(
    [
        ("id", pa.string()),
        ("title", pa.string()),
        ("paths", pa.list_(pa.string())),  # of its sections, in their order
        ("texts", pa.list_(pa.string())),
    ]
)
_REMEDIES: Final = {
    "broken UTF-8": "turn what is in another encoding into UTF-8 (iconv -f WINDOWS-1250 -t UTF-8)",
    "unreadable": "see whether other programs open it, and that without a password",
}  # by the reason for which nothing can be read
_PASSAGES: Final = pa.schema(
    [
        ("id", pa.string()),
        ("title", pa.string()),
        ("section", pa.string()),
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
    "section": "the headings that the passage stands under, below the title",
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
        repeats: passages that stand in the corpus already: `keep` them, leave out `exact` ones (the same text, but
            for case, white space, and a stop or comma behind a word), or `near` ones too. Where a document is one
            passage, its title belongs to what is compared.

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
    split: str | None = None,
    code: CodeOption = "keep",
    engine: Engine | None = None,
) -> Path:
    """Write the passages of the documents of a source, or of several, to the directory `out`.

    Args:
        source: see `DocumentReader`, as for `columns` and `code`.
        out: holds `corpus/*.parquet` (columns `id`, `title`, `text`, `document`, `position`, and `section` where there
            are headings) and a card.
        split: of a Hub dataset; `train` when absent.
        engine: where documents are cut; all cores of this machine when absent.

    Returns:
        The directory.

    Raises:
        InputError: the source cannot be read, nothing of it is left, it has no table for `columns`, or is none of the
            Hub for `split`, `out` lies inside it, or see `Output.stage`.
    """
    cutting, output = cutting or Cutting(), Output.of(out)
    sources = [source] if isinstance(source, str) else source
    reader = DocumentReader(*sources, columns=columns, split=split or "train", code=code)
    _check_read(reader, split)
    made_from = reader.made_from(output.path) | tokenizer_source(cutting.tokenizer)
    settings = {**asdict(cutting), "columns": reader.columns, **({"code": code} if code != "keep" else {})}
    del settings["tokenizer"]  # a name
    with output.stage("corpus", settings, made_from) as work:
        if not work.done:
            _write_corpus(work, reader, cutting, engine or Engine())
    return output.path


def _check_read(reader: DocumentReader, split: str | None) -> None:
    """Raise `InputError` where columns or a split are named that no source has."""
    named = ", ".join(reader.sources)
    if reader.columns and not reader.rows:
        column = next(iter(reader.columns.values()))
        raise InputError(f"The column {column} is of a table, and {named} holds files of text alone; leave it out.")
    if split is not None and not reader.published:
        raise InputError(f"The split {split} is of a dataset of the Hub, and {named} is none; leave it out.")


def cutting_of(corpus: str | os.PathLike[str]) -> dict[str, Any] | None:
    """How `build_passage_corpus` read and cut the documents of a corpus.

    Returns:
        The fields of `Cutting`, `code`, `columns` where there are some, and `fingerprint`, that of the tokenizer, where
        there is one; None where it did not write the corpus.
    """
    manifest = Manifest.load(Path(corpus))
    names = [option.name for option in fields(Cutting) if option.name != "tokenizer"]
    if manifest is None or not manifest.made_from.keys() >= {"documents", *names}:
        return None
    found = {name: manifest.made_from[name] for name in names}
    found |= {"tokenizer": manifest.sources.get("tokenizer"), "code": manifest.made_from.get("code", "keep")}
    more = {"columns": manifest.made_from.get("columns"), "fingerprint": manifest.made_from.get("tokenizer")}
    return found | {name: value for name, value in more.items() if value}


def write_passages(
    reader: DocumentReader, folder: Path, pieces: Path, cutting: Cutting, engine: Engine
) -> tuple[Counter[str], list[str]]:
    """Cut documents and write their passages as Parquet files.

    Args:
        reader: gives the documents.
        folder: of the passages.
        pieces: folder for what lies between.
        cutting: how they are cut.
        engine: where.

    Returns:
        What was read, left out and written, and the columns.

    Raises:
        InputError: nothing can be read, or no passage is left.
    """
    named = ", ".join(reader.sources)
    read = _write_documents(reader, pieces / "documents")
    if not read:
        advice = "".join(f"; {remedy}" for reason, remedy in _REMEDIES.items() if reader.counts[reason])
        raise InputError(f"No document of {named} can be read: {listed(reader.counts) or 'it is empty'}{advice}.")
    cut = map_tables(partial(cut_documents, cutting=cutting), read, pieces / "passages", engine, "Cutting")
    columns = [name for name in _PASSAGES.names if name != "section" or _have_sections(cut)]
    counts = reader.counts + _write_kept(cut, folder, cutting.repeats, columns)
    if not counts["passages"]:
        raise InputError(f"No passage of {named} is left: {listed(counts)}.")
    return counts, columns


def _write_corpus(work: Staged, reader: DocumentReader, cutting: Cutting, engine: Engine) -> None:
    counts, columns = write_passages(reader, work.result / "corpus", work.pieces, cutting, engine)
    work.facts["counts"] = dict(sorted(counts.items()))
    write_card(
        work,
        title=f"Passages of {', '.join(Path(source).stem or source for source in reader.sources)}",
        about=_describe(cutting),
        columns={name: _COLUMNS[name] for name in columns},
        rows=counts["passages"],
        configs={"corpus": "corpus/*.parquet"},
    )


def cut_documents(table: pa.Table, cutting: Cutting) -> pa.Table:
    """Documents -> their passages, with the marks by which repeated ones are found.

    Args:
        table: columns `id`, `title`, and `paths` and `texts` of the sections.

    Returns:
        `id`, `title`, `section`, `text`, `document`, `position`, `words` (their number), `exact` and `near` (hashes).
    """
    ids, titles, paths, texts = (table.column(name).to_pylist() for name in _DOCUMENTS.names)
    if cutting.titles == "text":
        for title, found in zip(titles, texts, strict=True):
            found[0] = f"{title}\n\n{found[0]}" if title else found[0]
    whole = cutting.length is None
    cut = _whole(texts) if whole else _in_passages(ids, paths, texts, cutting)
    rows = [(at, position, *found) for at, passages in enumerate(cut) for position, found in enumerate(passages)]
    passages = [text for *_, text in rows]
    keys = [passage_text(titles[at], text) if len(cut[at]) == 1 else text for at, *_, text in rows]
    near = near_hashes(keys) if cutting.repeats == "near" else np.zeros((len(passages), BANDS), dtype=np.uint64)
    columns: dict[str, Any] = {
        "id": [ids[at] if whole else f"{ids[at]}#{position}" for at, position, *_ in rows],
        "title": [titles[at] for at, *_ in rows],
        "section": [section for *_, section, _ in rows],
        "text": passages,
        "document": [ids[at] for at, *_ in rows],
        "position": [position for _, position, *_ in rows],
        "words": [count_words(text) for text in passages],
        "exact": exact_hashes(keys),
        "near": pa.FixedSizeListArray.from_arrays(pa.array(near.reshape(-1)), BANDS),
    }
    return pa.table(columns, schema=_MARKED)


def _whole(texts: list[list[str]]) -> list[list[tuple[str, str]]]:
    """Of each document its one passage: section and text."""
    return [[("", " ".join(" ".join(found).split()))] for found in texts]


def _in_passages(
    ids: list[str], paths: list[list[str]], texts: list[list[str]], cutting: Cutting
) -> list[list[tuple[str, str]]]:
    """Of each document its passages: section and text."""
    assert cutting.length is not None
    count, parts, owners = _counter(cutting.tokenizer), list[Part](), list[int]()
    for at, sections in enumerate(zip(paths, texts, strict=True)):
        found = join_short(list(zip(*sections, strict=True)), cutting.length, count)
        parts += found
        owners += [at] * len(found)
    draws = [drawn_targets(name, cutting.length, cutting.short) for name in ids]
    targets = [draws[at] for at in owners] if cutting.short else None
    packed = build_passages([part.paragraphs for part in parts], cutting.length, count, targets=targets)
    cut: list[list[tuple[str, str]]] = [[] for _ in ids]
    for at, part, passages in zip(owners, parts, packed, strict=True):
        cut[at] += [(part.section, passage) for passage in passages]
    return cut


_counter = cache(token_counter)  # of a process


def _write_documents(reader: DocumentReader, folder: Path) -> list[Path]:
    """The documents of a reader as Parquet files of a few megabytes each."""
    folder.mkdir()
    files: list[Path] = []
    rows: list[dict[str, Any]] = []
    size = 0

    def flush() -> None:
        nonlocal size
        if rows:
            files.append(folder / f"{len(files):06d}.parquet")
            parquet.write_table(pa.Table.from_pylist(rows, schema=_DOCUMENTS), files[-1])
            rows.clear()
            size = 0

    for document in tqdm(reader, desc="Reading", unit=" documents"):
        paths, texts = zip(*((section.path, section.text) for section in document.sections), strict=True)
        rows.append({"id": document.id, "title": document.title, "paths": paths, "texts": texts})
        size += sum(map(len, (*paths, *texts))) + 200
        if size > _READ:
            flush()
    flush()
    return files


def _have_sections(files: list[Path]) -> bool:
    """Whether any passage stands under a heading."""
    return any(any(parquet.read_table(file, columns=["section"]).column(0).to_pylist()) for file in files)


def _write_kept(files: list[Path], folder: Path, wanted: Repeats, columns: list[str]) -> Counter[str]:
    """Passages that are long enough and new, in files of a fixed number of rows; counts of the others."""
    marked = ["words", "exact", *(["near"] if wanted == "near" else [])]
    marks = pa.concat_tables([parquet.read_table(file, columns=marked) for file in files])
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
            table = parquet.read_table(file, columns=columns)
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
    if cutting.short and cutting.length is not None:
        how += f" With probability {cutting.short:g} a passage is closed earlier, at a random length."
    if cutting.titles == "text":
        how += " The title also stands at the head of the document's text."
    said = {
        "keep": "Repeated passages are kept.",
        "exact": "Of passages with the same text the first is kept.",
        "near": "Of passages with the same text or nearly the same words (MinHash over runs of five words), the first "
        "is kept.",
    }
    return f"{how} Passages of fewer than {MIN_WORDS} words are left out. {said[cutting.repeats]}"


def listed(counts: Mapping[str, int]) -> str:
    """Counts in words, those of 0 left out.

    >>> listed({"documents read": 1200, "empty": 0, "passages": 3})
    '1,200 documents read, 3 passages'
    """
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)
