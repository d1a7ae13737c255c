"""What a cross-encoder thinks of passages: a teacher's scores of training lists, and candidates ranked anew.

Lists are scored in pieces of queries. Every piece is written to disk when it is done: a scoring that was killed goes on
where it stopped, on any number of processes (`accelerate launch`). A GPU computes in 16 bits.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from sentence_transformers import CrossEncoder
from tqdm.auto import tqdm

from hf_dense.data.cards import write_card
from hf_dense.data.collections import content_hash
from hf_dense.data.schemas import TRAINING
from hf_dense.errors import InputError
from hf_dense.finetuning.lists import Entry, PassageLists, load_lists
from hf_dense.search.cross_encoder import _check_batch, _scores, load_reranker
from hf_dense.storage.fingerprints import fingerprint_weights
from hf_dense.storage.legacy import atomic_directory, begin_or_resume, check_replaceable
from hf_dense.storage.process_group import process_state

_PIECE: Final = 100  # queries


def score_lists(
    reranker: str | Path | CrossEncoder,
    lists_dir: str | os.PathLike[str],
    collection: str | os.PathLike[str],
    out: str | os.PathLike[str],
    split: str = "train",
    *,
    batch_size: int = 64,
    depth: int = 200,
    queries: Collection[str] | None = None,
    licence: str = "other",
    command: str = "",
) -> Path:
    """Write training lists with a teacher's scores of their passages to the directory `out`, complete or not at all.

    Args:
        reranker: a cross-encoder that was trained: a directory, a Hub id, or a loaded one.
        lists_dir: training lists (see `load_entries`).
        collection: has the texts of their passages.
        out: holds `negatives/<split>.parquet` with the columns of `TRAINING`, and a card; pieces that are done stand
            in `<out>.partial` until all are.
        split: of the lists.
        batch_size: pairs read at once.
        depth: how many negatives of a list are scored; the others are left out.
        queries: ids of those whose lists are scored, where it is not all.
        licence: of the texts, for the card.
        command: what builds it, for the card.

    Returns:
        `out` as a path, on every process.

    Raises:
        InputError: nothing to load, a passage is not in the collection, a score is no number, or an unfinished run in
            `out` was another one.
    """
    check_replaceable(out, marker="README.md")
    _check_batch(batch_size)
    lists = load_lists(lists_dir, collection, passages=1, seed=0, split=split, depth=depth)
    entries = [
        Entry(entry.id, entry.query, entry.positives, entry.negatives[:depth])
        for entry in lists.entries
        if queries is None or entry.id in queries
    ]
    if not entries:
        raise InputError(f"{lists_dir} has no list of the queries that are to be scored.")
    model = load_reranker(reranker)
    state = process_state()
    model.to(state.device)
    target, pieces = Path(out), Path(f"{out}.partial")
    settings = {
        "weights": fingerprint_weights(model),
        "max_length": model.max_seq_length,
        "split": split,
        "depth": depth,
    }
    settings |= {"lists": zlib.crc32(repr(entries).encode()), "collection": content_hash(collection)}
    begin_or_resume(pieces, settings)
    state.wait_for_everyone()
    starts = range(0, len(entries), _PIECE)
    mine = [start for number, start in enumerate(starts) if number % state.num_processes == state.process_index]
    left = [start for start in mine if not _piece(pieces, start).exists()]
    sizes = {start: sum(map(_size, entries[start : start + _PIECE])) for start in mine}
    with tqdm(
        total=sum(sizes.values()),
        initial=sum(sizes[start] for start in mine if start not in left),
        desc="Scoring",
        unit=" passages",
        disable=not state.is_main_process,
    ) as bar:
        for start in left:
            part = entries[start : start + _PIECE]
            try:
                table = _scored(model, part, lists, batch_size, bar.update)
            except InputError:
                if not any(pieces.glob("*.parquet")):
                    shutil.rmtree(pieces, ignore_errors=True)
                raise
            _save(_piece(pieces, start), table)
    state.wait_for_everyone()
    if state.is_main_process:
        name = getattr(model.config, "name_or_path", "") if isinstance(reranker, CrossEncoder) else str(reranker)
        _join([_piece(pieces, start) for start in starts], target, split, depth, name, str(lists_dir), licence, command)
        shutil.rmtree(pieces)
    state.wait_for_everyone()
    return target


def _scored(
    model: CrossEncoder, entries: Sequence[Entry], lists: PassageLists, batch_size: int, done: Callable[[int], object]
) -> pa.Table:
    """The lists of a piece with their scores."""
    named = [[*entry.positives, *entry.negatives] for entry in entries]
    needed = list(dict.fromkeys(name for names in named for name in names))
    texts = dict(zip(needed, lists.texts(needed), strict=True))
    read = [(entry.query, [texts[name] for name in names]) for entry, names in zip(entries, named, strict=True)]
    rows: list[dict[str, Any]] = []
    for entry, scores in zip(entries, _scores(model, read, batch_size, done), strict=True):
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


def _size(entry: Entry) -> int:
    return len(entry.positives) + len(entry.negatives)


def _piece(pieces: Path, start: int) -> Path:
    return pieces / f"{start:012d}.parquet"


def _save(file: Path, table: pa.Table) -> None:
    partial = file.with_suffix(".writing")
    parquet.write_table(table, partial)
    os.replace(partial, file)


def _join(
    pieces: Sequence[Path], target: Path, split: str, depth: int, name: str, source: str, licence: str, command: str
) -> None:
    queries = positives = negatives = 0
    with atomic_directory(target) as work:
        (work / "negatives").mkdir()
        with parquet.ParquetWriter(work / "negatives" / f"{split}.parquet", TRAINING.arrow_schema) as writer:
            for piece in pieces:
                table = parquet.read_table(piece, schema=TRAINING.arrow_schema)
                queries += table.num_rows
                positives += len(table.column("positive_scores").combine_chunks().flatten())
                negatives += len(table.column("negative_scores").combine_chunks().flatten())
                writer.write_table(table)
        write_card(
            work,
            title=f"Scored lists of {Path(source).name}",
            about=f"For every query of the split {split} the scores that the cross-encoder {name} gives its positives "
            f"and its first {depth} negatives: raw logits, which compare the passages of one query.",
            columns={
                "query_id": "id of the query",
                "query": "its text",
                "positives": "ids of the relevant passages",
                "negatives": "ids of the negatives, in the order of the source",
                "positive_scores": "scores of the positives",
                "negative_scores": "scores of the negatives",
            },
            counts={"queries": queries, "positives": positives, "negatives": negatives},
            rows=queries,
            source=source,
            licence=licence,
            command=command,
            configs={split: f"negatives/{split}.parquet"},
        )
