"""A teacher's scores of training lists, to distil it into a retriever: a cross-encoder's, or those of BM25.

Lists are scored in pieces of queries. Every piece is written to disk when it is done: a scoring that was killed goes on
where it stopped, on any number of processes (`accelerate launch`).
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet
from sentence_transformers import CrossEncoder
from tqdm.auto import tqdm

from hf_dense.data.collections import content_hash
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.data.schemas import TRAINING
from hf_dense.errors import InputError
from hf_dense.finetuning.lists import KIND, Entry, PassageLists, load_lists
from hf_dense.finetuning.negatives import DEPTH, Origin, write_lists_card
from hf_dense.hub.precision import FP32, Reading
from hf_dense.search.bm25 import LexicalIndex
from hf_dense.search.cross_encoder import check_batch, load_reranker, predict_scores
from hf_dense.search.fingerprints import cross_encoder_source, model_source
from hf_dense.search.first_stage import BM25
from hf_dense.storage.files import replaced_file
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import process_state
from hf_dense.storage.staged import Staged

_PIECE: Final = 100  # queries

# Scores of the passages of each list, its positives first; it is told of every so many that are done.
Teacher = Callable[[Sequence[Entry], Callable[[int], object]], list[NDArray[np.float32]]]


def score_lists(
    teacher: str | Path | CrossEncoder,
    lists_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    collection: str | os.PathLike[str],
    out: str | os.PathLike[str] | Output,
    split: str = "train",
    *,
    precision: str = FP32,
    batch_size: int = 64,
    depth: int = DEPTH,
    least: int = 0,
    queries: Collection[str] | None = None,
) -> Path:
    """Write training lists with a teacher's scores of their passages to the directory `out`, complete or not at all.

    Args:
        teacher: a cross-encoder that was trained: a directory, a Hub id, or a loaded one; or `"bm25"`.
        lists_dir: training lists (see `load_entries`), or several that are joined.
        collection: has the texts of their passages.
        out: holds `negatives/<split>.parquet` with the columns of `TRAINING`, and a card.
        split: of the lists.
        precision: that a cross-encoder computes in: `fp32`, `bf16` or `fp16`.
        batch_size: pairs read at once.
        depth: how many negatives of a list are scored; the others are left out.
        least: lists of fewer are made up to so many with passages drawn from the corpus.
        queries: ids of those whose lists are scored, where it is not all.

    Returns:
        `out` as a path, on every process.

    Raises:
        InputError: nothing to load, a passage is not in the collection, a score is no number, or something else is in
            `out`.
    """
    output, reading = Output.of(out), Reading(precision)
    check_batch(batch_size)
    lists = load_lists(lists_dir, collection, passages=1, seed=0, split=split, depth=depth, queries=queries)
    if not lists.entries:
        raise InputError(f"{lists_dir} has no list of the queries that are to be scored.")
    entries = [replace(entry, negatives=entry.negatives[:depth]) for entry in lists.entries]
    entries = [_made_up(entry, lists.ids, least) for entry in entries]
    model = None if teacher == BM25 else load_reranker(teacher)
    sources = {"collection": Source(str(collection), content_hash(collection)), **lists.parts}
    settings: dict[str, Any] = {"split": split, "depth": depth, **({"least": least} if least else {})}
    if model is None:
        sources["BM25"] = model_source(BM25)
    else:
        sources["cross-encoder"] = cross_encoder_source(model, teacher)
        settings |= reading.settings
        model = reading.apply(model)
    with output.stage(KIND, settings, sources, resumable=True) as work:
        if not work.done:
            started = time.perf_counter()
            scores = _lexical(lists, work.pieces) if model is None else cross_encoder_teacher(model, lists, batch_size)
            score_entries(scores, entries, work.pieces)
            if process_state().is_main_process:
                _join(work, split, depth)
            work.facts["seconds"] = time.perf_counter() - started
    return output.path


def _made_up(entry: Entry, ids: Sequence[str], least: int) -> Entry:
    """A list of no fewer negatives, the same ones every time, as far as the corpus has passages."""
    rng, negatives = np.random.default_rng(zlib.crc32(entry.id.encode())), [*entry.negatives]
    taken = {*entry.positives, *negatives}
    while len(negatives) < least and len(taken) < len(ids):
        if (name := ids[int(rng.integers(len(ids)))]) not in taken:
            taken.add(name)
            negatives.append(name)
    return replace(entry, negatives=tuple(negatives))


def cross_encoder_teacher(model: CrossEncoder, lists: PassageLists, batch_size: int) -> Teacher:
    """The raw logits of a cross-encoder, which reads so many pairs at once; `lists` gives the texts."""
    model.to(process_state().device)

    def score(entries: Sequence[Entry], done: Callable[[int], object]) -> list[NDArray[np.float32]]:
        named = [[*entry.positives, *entry.negatives] for entry in entries]
        needed = list(dict.fromkeys(name for names in named for name in names))
        texts = dict(zip(needed, lists.texts(needed), strict=True))
        read = [(entry.query, [texts[name] for name in names]) for entry, names in zip(entries, named, strict=True)]
        return predict_scores(model, read, batch_size, done)

    return score


def _lexical(lists: PassageLists, folder: Path) -> Teacher:
    """BM25's scores, by its statistics of the whole corpus."""
    index = LexicalIndex.build(PassageTexts(lists.corpus), folder / f"{BM25}-{process_state().process_index}")

    def score(entries: Sequence[Entry], done: Callable[[int], object]) -> list[NDArray[np.float32]]:
        found = []
        for entry in entries:
            rows = np.array([lists.indices[name] for name in (*entry.positives, *entry.negatives)])
            found.append(index.scores(entry.query, rows))
            done(len(rows))
        return found

    return score


def score_entries(teacher: Teacher, entries: Sequence[Entry], pieces: Path) -> list[Path]:
    """Score the lists of this process that are not scored yet, and wait for the other processes.

    Args:
        teacher: gives the scores.
        entries: of all processes.
        pieces: receives files of scored lists, or holds those of a run that was killed.

    Returns:
        All files, in the order of the lists; their columns are those of `TRAINING`.
    """
    state = process_state()
    files = {start: pieces / f"{start:012d}.parquet" for start in range(0, len(entries), _PIECE)}
    own = list(files)[state.process_index :: state.num_processes]
    parts = {files[start]: entries[start : start + _PIECE] for start in own}
    sizes = {file: sum(len(entry.positives) + len(entry.negatives) for entry in part) for file, part in parts.items()}
    done = sum(size for file, size in sizes.items() if file.exists())
    hidden = not state.is_main_process
    with tqdm(total=sum(sizes.values()), initial=done, desc="Scoring", unit=" passages", disable=hidden) as bar:
        for file, part in parts.items():
            if not file.exists():
                table = _scored(teacher, part, bar.update)
                with replaced_file(file) as partial:
                    parquet.write_table(table, partial)
    state.wait_for_everyone()
    return list(files.values())


def _scored(teacher: Teacher, entries: Sequence[Entry], done: Callable[[int], object]) -> pa.Table:
    """The lists of a piece with their scores."""
    rows: list[dict[str, Any]] = []
    for entry, scores in zip(entries, teacher(entries, done), strict=True):
        positive, negative = np.split(scores, [len(entry.positives)])
        rows.append(
            {
                "query_id": entry.id,
                "query": entry.query,
                "positives": entry.positives,
                "negatives": entry.negatives,
                "positive_scores": positive,
                "negative_scores": negative,
            }
        )
    return pa.Table.from_pylist(rows, schema=TRAINING.arrow_schema)


def _join(work: Staged, split: str, depth: int) -> None:
    """The pieces as one file, with a card."""
    counts, file = {"queries": 0, "positives": 0, "negatives": 0}, f"negatives/{split}.parquet"
    (work.result / "negatives").mkdir()
    with parquet.ParquetWriter(work.result / file, TRAINING.arrow_schema) as writer:
        for piece in sorted(work.pieces.glob("[0-9]*.parquet")):
            table = parquet.read_table(piece, schema=TRAINING.arrow_schema)
            counts["queries"] += table.num_rows
            for what in ("positives", "negatives"):
                counts[what] += len(table.column(what).combine_chunks().flatten())
            writer.write_table(table)
    write_lists_card(work, _origin(work.manifest.sources, split, depth), counts, file)


def _origin(names: Mapping[str, str], split: str, depth: int) -> Origin:
    reranker = names.get("cross-encoder")
    kind = "raw logits, which" if reranker else "they"
    who = f"the cross-encoder {reranker}" if reranker else "BM25 (title and text, by the stems of their language)"
    whose = "the cross-encoder's" if reranker else "BM25's"
    lists = [Path(path).name for what, path in names.items() if what.startswith("lists")]
    return Origin(
        title=f"Scored lists of {' and '.join(lists)}",
        about=f"For every query of the split {split} the scores that {who} gives its positives and its first {depth} "
        f"negatives: {kind} compare the passages of one query.",
        positive_scores=f"{whose} scores of the positives",
        negative_scores=f"{whose} scores of the negatives",
    )
