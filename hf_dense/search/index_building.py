"""Writing the index of a corpus, anew or from one that the same model made of another state of the corpus.

An index is a directory: `passages.parquet` (id, title, text); `vectors-00000.npy` and so on, the float vectors as
`encode_corpus` writes them, or, of hybrid vectors, `hybrid` (`hf_dense.search.hybrid`); `bm25`, the words; and, in all
kinds but `exact`, `vectors.faiss`, which finds candidates (`hf_dense.search.approximate`). Its manifest says by which
model and settings it was made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from datasets import Dataset
from numpy.typing import NDArray
from pyarrow import compute, parquet
from sentence_transformers import SentenceTransformer

from hf_dense.data.collections import load_corpus
from hf_dense.data.corpus import table_rows
from hf_dense.data.passage_corpus import cutting_of
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.errors import InputError, as_sentence
from hf_dense.hub.hybrid import hybrid_head
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.precision import Reading
from hf_dense.hub.reach import noticing_offline
from hf_dense.search.approximate import CandidateIndex, check_index_kind
from hf_dense.search.bm25 import LexicalIndex
from hf_dense.search.dense import Indices, Known, Vectors, encode_corpus
from hf_dense.search.fingerprints import lexical_fingerprint, retriever_source
from hf_dense.search.first_stage import HYBRID, check_hybrid_kind, hybrid_vectors
from hf_dense.search.hybrid import HybridIndex
from hf_dense.search.questions import check_weight
from hf_dense.storage.fingerprints import fingerprint_rows
from hf_dense.storage.manifest import COMPLETE, Manifest, difference
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.staged import Staged, put_back

KIND: Final = "index"  # of output
PASSAGES: Final = "passages.parquet"
WORDS: Final = "bm25"
COLUMNS: Final = ("id", "title", "text")
BROKEN: Final = "The index in {} cannot be read, so move it away and build it again with --corpus CORPUS"
REPLACED: Final = "The index in {} was replaced since it was opened; open it again."


@dataclass(frozen=True)
class Update:
    """What became of an index, by the texts of its passages.

    Args:
        kept: passages whose vectors were there.
        encoded: passages that are new.
        removed: passages that are gone.
    """

    kept: int
    encoded: int
    removed: int


@noticing_offline()
def build_index(
    model: str | os.PathLike[str] | SentenceTransformer,
    corpus: Dataset | str | os.PathLike[str],
    out: str | os.PathLike[str] | Output,
    *,
    kind: str | None = None,
    weight: float | None = None,
    name: str | None = None,
    origin: str | None = None,
    precision: str | None = None,
    max_length: int | None = None,
    batch_size: int = 64,
    like: Path | None = None,
    cutting: Mapping[str, Any] | None = None,
) -> Path:
    """Encode a corpus, with a progress bar and an ETA, and write its index.

    Args:
        model: an exported directory, a Hub id or a loaded model, which loses a pooler that its vectors do not read.
        corpus: columns `id`, `title`, `text`, title + " " + text is what is encoded; or the directory of a collection.
        out: receives the index, complete or not at all; a run that was killed goes on with the vectors it had.
        kind: what finds passages: `exact`, all float vectors, which are read from disk; or candidates, four times as
            many as are wanted, whose float vectors are compared then, by `hnsw` (a graph), `ivfpq` (product
            quantisation), `int8` or `binary` (a byte, or a bit, per dimension), which stand in memory. None: as the
            index has it that is there, else `exact`.
        weight: of the dense scores beside BM25's, from 0 to 1, where a search names none. None: as the index has it
            that is there, else 1.
        name: by which a loaded model is shown, the directory that it came from for instance.
        origin: by which passages are shown that are given as rows, the folder that they were cut from for instance.
        precision: that the model computes in: `fp32`, `bf16` or `fp16`; the vectors are float32 in each. None: as the
            index has it that is there, else `fp32`.
        max_length: longest text in tokens. None: as the index has it that is there, else the model's own.
        batch_size: texts encoded at once.
        like: another index by the same model, encoded in the same way: texts that it holds are not encoded again.
        cutting: how documents became passages that are given as rows, see `cutting_of`; of a corpus that `hf-dense data
            passages` wrote it is known. The next documents for this index are cut alike (`cutting_in`).

    Returns:
        The directory of the index.

    Raises:
        InputError: nothing to load, an empty corpus, a column or an id absent, an id of two passages, a setting that is
            none, hybrid vectors and a kind other than `exact`, or `out` is not ours or holds the index of another model
            or corpus, or with other settings.
    """
    output = Output.of(out)
    if not output.overwrite and (found := _existing(output.path)) and found.state == COMPLETE:
        check_words(found, output.path)
    plan = _plan(model, corpus, output.path, name, origin, cutting, _Wanted(kind, weight, precision, max_length))
    if not output.overwrite:
        _check_documents(plan, output.path)
    with output.stage(KIND, plan.settings, plan.sources, resumable=True) as work:
        if not work.done:
            _write(work, plan, batch_size, None if like is None else _known(plan, like)[0])
    return output.path


@noticing_offline()
def update_index(
    model: str | os.PathLike[str] | SentenceTransformer,
    corpus: Dataset | str | os.PathLike[str],
    out: str | os.PathLike[str] | Output,
    *,
    kind: str | None = None,
    weight: float | None = None,
    name: str | None = None,
    origin: str | None = None,
    precision: str | None = None,
    max_length: int | None = None,
    batch_size: int = 64,
    cutting: Mapping[str, Any] | None = None,
    before: Manifest | None = None,
) -> Update:
    """Make an index that of another corpus, or of another kind: only texts that it does not hold are encoded.

    The result is what `build_index` writes. The old index stays in its place until then.

    Args:
        out: the index, made by the same model.
        cutting: of passages that are given as rows; None: as the index has it.
        before: of the index that the corpus was made of; None where it is of no index.

    The other arguments are those of `build_index`.

    Returns:
        What was kept, encoded and removed.

    Raises:
        InputError: as `build_index`; or there is no index, or one of another model, precision or length, or not
            the one `before`.
    """
    output = replace(Output.of(out), overwrite=True)
    cutting = index_in(output.path).facts.get("cutting") if cutting is None else cutting
    plan = _plan(model, corpus, output.path, name, origin, cutting, _Wanted(kind, weight, precision, max_length))
    _check_like(plan, output.path)
    with output.stage(KIND, plan.settings, plan.sources, resumable=True) as work:
        if before is not None and before != index_in(output.path):
            raise InputError(REPLACED.format(output.path))
        if work.done:
            return Update(len(plan.corpus), 0, 0)
        known, removed = _known(plan, output.path)  # which nobody replaces from here on
        update = Update(int((known.rows >= 0).sum()), int((known.rows < 0).sum()), removed)
        _write(work, plan, batch_size, known)
        work.facts["update"] = asdict(update)
    return update


@dataclass(frozen=True)
class _Wanted:
    """Settings of an index as they are given; None are those of the index that is there, else the simplest."""

    kind: str | None
    weight: float | None
    precision: str | None
    max_length: int | None


@dataclass(frozen=True)
class _Plan:
    """All that an index is made from; the retriever reads as the settings say."""

    retriever: SentenceTransformer
    corpus: Dataset
    settings: dict[str, Any]
    sources: dict[str, Source]
    cutting: Mapping[str, Any] | None


def _plan(
    model: str | os.PathLike[str] | SentenceTransformer,
    corpus: Dataset | str | os.PathLike[str],
    path: Path,
    name: str | None,
    origin: str | None,
    cutting: Mapping[str, Any] | None,
    wanted: _Wanted,
) -> _Plan:
    """What an index will be made from, checked."""
    settings = _settings(path, wanted)
    passages = plain_passages(load_corpus(corpus) if isinstance(corpus, str | os.PathLike) else corpus)
    check_index_kind(settings["kind"], len(passages))
    retriever = load_retriever(model)
    check_hybrid_kind(retriever, settings["kind"])
    sources = {
        "model": retriever_source(retriever, model if isinstance(model, str | Path) else name),
        "corpus": Source(_origin(corpus, origin), fingerprint_rows(passages, COLUMNS)),
    }
    known = cutting if isinstance(corpus, Dataset) else cutting_of(corpus)
    return _Plan(Reading.of(settings).apply(retriever), passages, settings, sources, known)


def _origin(corpus: Dataset | str | os.PathLike[str], origin: str | None) -> str:
    """By what passages are shown."""
    return (origin or "the passages") if isinstance(corpus, Dataset) else str(corpus)


def plain_passages(corpus: Dataset) -> Dataset:
    """Id, title and text of the passages, as texts; a title or a text that is absent is "".

    Raises:
        InputError: no Dataset, a column is absent or holds lists, there are no passages, or two have the same id or one
            has none.
    """
    if not isinstance(corpus, Dataset):
        raise InputError(
            "Passages are given as a Dataset; make one by Dataset.from_list, of a DataFrame by from_pandas."
        )
    missing = [column for column in COLUMNS if column not in corpus.column_names]
    if missing:
        raise InputError(f"The corpus has no column {missing[0]!r}; it has {', '.join(corpus.column_names)}.")
    if len(corpus) == 0:
        raise InputError("The corpus has no passages.")
    passages = corpus.select_columns(list(COLUMNS))
    table = passages.with_format("arrow")[:]
    if nested := [field for field in table.schema if pa.types.is_nested(field.type)]:
        raise InputError(f"The column {nested[0].name!r} holds {nested[0].type} in place of texts.")
    _check_ids(table.column("id"))
    if all(column.type == pa.string() and not column.null_count for column in table.columns):
        return passages
    return table_rows(pa.table({name: table.column(name).cast(pa.string()).fill_null("") for name in COLUMNS}))


def _check_ids(ids: pa.ChunkedArray) -> None:
    """Raise `InputError` unless every passage has an id of its own."""
    if ids.null_count:
        raise InputError("A passage has no id; every passage needs its own.")
    if compute.count_distinct(ids).as_py() < len(ids):
        twice = next(one["values"] for one in compute.value_counts(ids).to_pylist() if one["counts"] > 1)
        raise InputError(f"The id {twice!r} is that of more than one passage; every passage needs its own.")


def _settings(path: Path, wanted: _Wanted) -> dict[str, Any]:
    """Those given; else those of the index that is there, of any version; else the simplest."""
    manifest = Manifest.load(path)
    before = manifest.made_from if manifest is not None and manifest.kind == KIND else {}
    read = Reading.of(before)
    precision = read.precision if wanted.precision is None else wanted.precision
    weight = before.get("weight", 1.0) if wanted.weight is None else wanted.weight
    check_weight(weight)
    return {
        "kind": before.get("kind", "exact") if wanted.kind is None else wanted.kind,
        "weight": float(weight),
        WORDS: lexical_fingerprint(),
        **Reading(precision, read.max_length if wanted.max_length is None else wanted.max_length).settings,
    }


def _existing(path: Path) -> Manifest | None:
    """The manifest of an index; None where there is none."""
    put_back(path)
    manifest = Manifest.load(path)
    if manifest is None or manifest.kind != KIND:
        return None
    if "kind" not in manifest.made_from:
        raise InputError(
            f"The index in {path} was made by an earlier version of hf_dense; build it again with --corpus CORPUS "
            "--overwrite."
        )
    return manifest


def index_in(path: Path) -> Manifest:
    """The manifest of an index.

    Raises:
        InputError: there is none, or an earlier version laid it out.
    """
    manifest = _existing(path)
    if manifest is None:
        raise InputError(
            f"There is no search index in {path}; hf-dense search builds one with --corpus CORPUS, in Python "
            "build_index of hf_dense.search.index does."
        )
    return manifest


def cutting_in(path: Path) -> dict[str, Any] | None:
    """How the documents of an index became its passages; None where it does not say, or there is none."""
    manifest = Manifest.load(path)
    return manifest.facts.get("cutting") if manifest is not None and manifest.kind == KIND else None


def index_by(fingerprint: str, path: Path) -> Manifest:
    """The manifest of an index that a model made, which is known by its fingerprint.

    Raises:
        InputError: as `index_in`; or another model made it.
    """
    manifest = index_in(path)
    if manifest.made_from["model"] != fingerprint:
        raise InputError(
            f"The index in {path} was made by another model ({manifest.sources['model']}), or by that one as it was "
            "before; name another directory, or build it again with --corpus CORPUS --overwrite."
        )
    return manifest


def check_words(manifest: Manifest, path: Path) -> None:
    """Raise `InputError` where an index has other words of its passages than questions have today."""
    if manifest.made_from.get(WORDS) != lexical_fingerprint():
        raise InputError(
            f"The index in {path} read the words of its passages as an earlier version of hf_dense did; bring it up to "
            "date with --corpus CORPUS --update, which encodes nothing again."
        )


def _write(work: Staged, plan: _Plan, batch_size: int, known: Known[Any] | None = None) -> None:
    """Write all parts of an index."""
    texts, result = PassageTexts(plan.corpus), work.result
    vectors = _encode(plan, texts, work.pieces, batch_size, known)
    parquet.write_table(plan.corpus.with_format("arrow")[:].select(COLUMNS), result / PASSAGES)
    LexicalIndex.build(texts, result / WORDS)
    kept = {"words": _size(result / WORDS) / len(texts)}
    if isinstance(vectors, HybridIndex):
        kept = {"hybrid vectors": float(vectors.bytes_per_passage), **kept}
        dimensions, files = vectors.dense.shape[1] + vectors.vocabulary, [work.pieces / HYBRID]
    else:
        dimensions, files = next(iter(vectors)).shape[1], [*vectors.files]
        kept = {"float vectors": 4.0 * dimensions, **kept}
        if (kind := plan.settings["kind"]) != "exact":
            before = _size(result)
            CandidateIndex.build(vectors, kind).save(result)
            kept[kind] = (_size(result) - before) / len(texts)
    for file in files:  # last, as they are what a run that is killed goes on with
        file.rename(result / file.name)
    work.facts |= {
        "passages": len(texts),
        "dimensions": dimensions,
        "similarity": plan.retriever.similarity_fn_name,
        "bytes per passage": {part: round(size, 1) for part, size in kept.items()},
        **({} if plan.cutting is None else {"cutting": dict(plan.cutting)}),
    }


def _encode(
    plan: _Plan, texts: PassageTexts, folder: Path, batch_size: int, known: Known[Any] | None
) -> Vectors | HybridIndex:
    """The vectors of all passages, in a folder; those that are known are copied."""
    if hybrid_head(plan.retriever):
        return hybrid_vectors(plan.retriever, texts, folder, batch_size, known)
    return encode_corpus(plan.retriever, texts, folder, batch_size, known)


def _size(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _check_documents(plan: _Plan, path: Path) -> None:
    """Raise `InputError`, which names the short way, where an update makes an index what is planned."""
    manifest = _existing(path)
    if manifest is None or manifest.state != COMPLETE:
        return
    before, now = manifest.made_from, plan.sources["corpus"]
    updated = {name: plan.settings[name] for name in ("kind", "weight")} | {"corpus": now.fingerprint}
    alike = {**plan.settings, "model": plan.sources["model"].fingerprint}
    other = difference(before, {**before, **updated}, (manifest.sources, {"corpus": now.name}))
    if other and all(before.get(name) == value for name, value in alike.items() if name not in updated):
        raise InputError(
            f"{path} was made from {other}; bring it up to date with --update, which encodes nothing twice, or build "
            "it anew with --overwrite."
        )


def _check_like(plan: _Plan, path: Path) -> None:
    """Raise `InputError` unless the model of a plan made an index, reading as it would now."""
    manifest = index_by(plan.sources["model"].fingerprint, path)
    before, now = (Reading.of(settings).settings for settings in (manifest.made_from, plan.settings))
    if other := difference(before, now):
        raise InputError(
            f"The vectors of {path} were made with {other}, and those of an index go together; build it again with "
            "--corpus CORPUS --overwrite."
        )


def _known(plan: _Plan, path: Path) -> tuple[Known[Any], int]:
    """The vectors that an index by the same model has, and how many of its texts are not wanted."""
    _check_like(plan, path)
    with as_sentence(BROKEN.format(path)):
        check_sizes(path, index_in(path).files)
        before = PassageTexts(table_rows(parquet.read_table(path / PASSAGES)))
        vectors = HybridIndex.load(path / HYBRID) if hybrid_head(plan.retriever) else Vectors.stored(path)
    rows, removed = _match(PassageTexts(plan.corpus), before)
    return Known(vectors, rows), removed


def check_sizes(directory: Path, files: Mapping[str, int]) -> None:
    """Raise `ValueError` where a file is not as long as it was written; vectors are read when they are needed."""
    for name, size in files.items():
        if (directory / name).stat().st_size != size:
            raise ValueError(f"{name} is not as it was written")


def _match(now: PassageTexts, before: PassageTexts) -> tuple[Indices, int]:
    """Where texts were before.

    Returns:
        (now,) rows among `before`, -1 where a text is new; and how many texts of `before` are gone.
    """
    new, old = _digests(now), _digests(before)
    order = np.argsort(old)
    at = order[np.minimum(np.searchsorted(old, new, sorter=order), len(old) - 1)]
    return np.where(old[at] == new, at, -1), int((~np.isin(old, new)).sum())


def _digests(texts: PassageTexts) -> NDArray[np.bytes_]:
    """(texts,) 16 bytes that no two texts share."""
    found = (blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts)
    return np.fromiter(found, dtype="S16", count=len(texts))
