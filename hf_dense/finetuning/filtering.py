"""Queries that are worth training on: those that find their passage, and whose passage a cross-encoder agrees with.

Source: round-trip consistency, Alberti et al. 2019 (arXiv 1906.05416); with a retriever in place of a reader,
Promptagator (arXiv 2209.11755), which keeps a query whose passage is found first.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute, parquet
from sentence_transformers import CrossEncoder, SentenceTransformer
from tqdm.auto import tqdm

from hf_dense.data.collections import folder_of, judged_splits, load_corpus, load_qrels, query_table
from hf_dense.data.corpus import table_files
from hf_dense.data.shards import ROWS, ShardWriter
from hf_dense.data.supervision import write_collection_card, write_judgements
from hf_dense.errors import InputError
from hf_dense.finetuning.lists import Entry, PassageLists
from hf_dense.finetuning.negatives import Judged, load_judged
from hf_dense.finetuning.scoring import cross_encoder_teacher, score_entries
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.precision import FP32, Reading
from hf_dense.search.cross_encoder import check_batch, load_reranker
from hf_dense.search.fingerprints import cross_encoder_source, model_source
from hf_dense.search.first_stage import BM25, Search, open_search
from hf_dense.storage.files import write_text
from hf_dense.storage.fingerprints import fingerprint_files
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import is_main_process, wait_for_everyone
from hf_dense.storage.staged import Staged

KIND: Final = "collection"  # of output
_QUERIES: Final = 2_000  # searched at once


@dataclass
class _Verdict:
    """What is said of the queries of a split.

    Attributes:
        judged: the queries with their relevant passages.
        kept: ids of those that are kept so far.
        left_out: how many went, by the reason.
    """

    judged: Judged
    kept: set[str]
    left_out: dict[str, int] = field(default_factory=dict)

    def keep(self, wanted: Iterable[str], reason: str) -> None:
        """Let go all but those that are wanted."""
        kept = self.kept & set(wanted)
        self.left_out[reason] = len(self.kept) - len(kept)
        self.kept = kept


def filter_collection(
    collection: str | os.PathLike[str],
    out: str | os.PathLike[str] | Output,
    splits: Sequence[str] = ("train",),
    *,
    within: int | None = None,
    by: Sequence[str | Path | SentenceTransformer] = (BM25,),
    teacher: str | Path | CrossEncoder | None = None,
    least: float = 0.0,
    precision: str = FP32,
    max_length: int | None = None,
    batch_size: int = 64,
) -> Path:
    """Write a collection without the queries that do not lead to their passage.

    A query with several relevant passages stays, with all its judgements, where one is found, or scored high enough.
    Passages stay as they are; training lists of the collection lose the queries that go.

    Args:
        collection: see `hf_dense.data.collections`.
        out: holds `corpus/`, `queries/`, `qrels/`, and `negatives/` where the collection has them, and a card that
            counts what was left out, and why.
        splits: whose queries are judged; the others are carried over. Figures on queries that a model has chosen
            favour this model.
        within: a query stays when a relevant passage is among so many first ones of any retriever in `by`.
        by: `"bm25"`, exported directories, Hub ids or loaded models.
        teacher, least: a cross-encoder, and what its raw logit of the query and its best relevant passage must reach.
        precision, max_length: that models read in, and the retrievers' longest text (`hf_dense.hub.precision.Reading`).
        batch_size: texts or pairs read at once.

    Returns:
        `out` as a path.

    Raises:
        InputError: nothing to do or to load, no collection, no query of a split that is left, or another `out`.
    """
    output, reading, started = Output.of(out), Reading(precision, max_length), time.perf_counter()
    _check(splits, within, by, teacher, batch_size)
    folder = folder_of(collection)
    judged = {split: load_judged(collection, split) for split in splits}
    verdicts = {split: _Verdict(found, set(found.positives)) for split, found in judged.items()}
    retrievers = [model if model == BM25 else load_retriever(model) for model in by] if within else []
    cross_encoder = None if teacher is None else load_reranker(teacher)
    sources = _sources(folder, judged[splits[0]], retrievers, by)
    settings: dict[str, Any] = {"filtered splits": sorted(splits), "within": within}
    retrievers = [model if isinstance(model, str) else reading.apply(model) for model in retrievers]
    settings |= {} if cross_encoder is None and all(model == BM25 for model in retrievers) else reading.settings
    if cross_encoder is not None:
        sources["cross-encoder"], settings["least"] = cross_encoder_source(cross_encoder, teacher), least
        cross_encoder = reading.apply(cross_encoder)
    with output.stage(KIND, settings, sources, resumable=True) as work:
        if not work.done:
            if within:
                _find(verdicts, retrievers, within, work, batch_size)
            if cross_encoder is not None:
                _agree(verdicts, cross_encoder, least, work, batch_size)
            if is_main_process():
                _write(work, folder, verdicts)
            work.facts["seconds"] = time.perf_counter() - started
    return output.path


def _check(splits: Sequence[str], within: int | None, by: Sequence[object], teacher: object, batch_size: int) -> None:
    check_batch(batch_size)
    if within is None and teacher is None:
        raise InputError("Say what queries must do: find their passage (--within K), or please a --teacher.")
    if within is not None and within < 1:
        raise InputError(f"within is {within}; it is a number of first passages, 1 or more.")
    if within is not None and not by:
        raise InputError("Name a retriever that finds the passages: bm25, a directory or a Hub id.")
    if not splits or len(set(splits)) < len(splits):
        raise InputError(f"The splits are {', '.join(splits) or 'none'}; name each once.")


def _sources(
    collection: Path, judged: Judged, retrievers: Sequence[str | SentenceTransformer], by: Sequence[object]
) -> dict[str, Source]:
    """All that is read but the cross-encoder."""
    sources = {"collection": judged.source}
    if lists := sorted((collection / "negatives").glob("*.parquet")):
        sources["lists"] = Source(judged.source.name, fingerprint_files(lists, collection))
    for number, (retriever, given) in enumerate(zip(retrievers, by, strict=bool(retrievers)), 1):
        sources[f"retriever {number}"] = model_source(retriever, given)
    return sources


def _find(
    verdicts: Mapping[str, _Verdict],
    retrievers: Sequence[str | SentenceTransformer],
    within: int,
    work: Staged,
    batch_size: int,
) -> None:
    """Let go the queries that find none of their passages; the first process searches for all."""
    file = work.pieces / "found.json"
    if is_main_process() and not file.exists():
        texts = next(iter(verdicts.values())).judged.texts
        found: dict[str, set[str]] = {split: set() for split in verdicts}
        for number, retriever in enumerate(retrievers):
            place = work.pieces / f"retriever-{number}"
            place.mkdir(exist_ok=True)
            search = open_search(retriever, texts, place, batch_size)
            for split, verdict in verdicts.items():
                found[split] |= _found(verdict.judged, search, within)
        write_text(file, json.dumps({split: sorted(ids) for split, ids in found.items()}))
    wait_for_everyone()
    for split, ids in json.loads(file.read_text(encoding="utf-8")).items():
        verdicts[split].keep(ids, f"that do not find a passage within {within}")
    _check_left(verdicts, work)


def _found(judged: Judged, search: Search, within: int) -> set[str]:
    """Ids of the queries that find one of their passages."""
    names, found = list(judged.positives), set[str]()
    with tqdm(total=len(names), desc="Searching", unit=" queries") as bar:
        for start in range(0, len(names), _QUERIES):
            part = names[start : start + _QUERIES]
            _, hits = search([judged.queries[name] for name in part], within)
            there = zip(part, hits, strict=True)
            found |= {name for name, row in there if np.isin(row, [*chain(*judged.positives[name])]).any()}
            bar.update(len(part))
    return found


def _agree(
    verdicts: Mapping[str, _Verdict], cross_encoder: CrossEncoder, least: float, work: Staged, batch_size: int
) -> None:
    """Let go the queries whose best passage has a lower score; all processes read."""
    for split, verdict in verdicts.items():
        judged, pieces = verdict.judged, work.pieces / f"scores-{split}"
        entries = [
            Entry(name, judged.queries[name], tuple(judged.ids[at] for at in chain(*judged.positives[name])))
            for name in judged.positives
            if name in verdict.kept
        ]
        pieces.mkdir(exist_ok=True)
        teacher = cross_encoder_teacher(cross_encoder, PassageLists(entries, judged.corpus, 1, 0), batch_size)
        rows = parquet.read_table(score_entries(teacher, entries, pieces), columns=["query_id", "positive_scores"])
        best = {row["query_id"]: max(row["positive_scores"]) for row in rows.to_pylist()}
        kept = (name for name, score in best.items() if score >= least)
        verdict.keep(kept, f"that the cross-encoder scores below {least}")
    _check_left(verdicts, work)


def _check_left(verdicts: Mapping[str, _Verdict], work: Staged) -> None:
    """Pass when every split has queries left; else nothing of the work is kept, as it would end the same."""
    for split, verdict in verdicts.items():
        if not verdict.kept:
            if is_main_process():
                shutil.rmtree(work.pieces)
                work.pieces.mkdir()
            gone = ", and ".join(f"{number:,} {why}" for why, number in verdict.left_out.items())
            raise InputError(f"No query of split {split!r} would be left: out go {gone}. Ask for less.")


def _write(work: Staged, collection: Path, verdicts: Mapping[str, _Verdict]) -> None:
    """The collection without the queries that went, and its card."""
    counts = {"passages": _copy_corpus(collection, work.result / "corpus")}
    left = {split: set(verdict.judged.positives) - verdict.kept for split, verdict in verdicts.items()}
    splits, judged = judged_splits(collection), set[str]()
    for split in splits:
        graded = load_qrels(collection, split)
        kept = {name: grades for name, grades in graded.items() if name not in left.get(split, ())}
        write_judgements(work.result, split, kept)
        judged |= kept.keys()
        counts[f"queries of {split}"] = len(kept)
        counts[f"judgements of {split}"] = sum(map(len, kept.values()))
        if split in verdicts:
            counts |= {f"queries of {split} {why}": number for why, number in verdicts[split].left_out.items()}
    gone = set[str]().union(*left.values()) - judged
    (work.result / "queries").mkdir()
    queries = _without(query_table(collection), "id", gone)
    parquet.write_table(queries, work.result / "queries" / "part-00000.parquet")
    lists = _copy_lists(collection, work.result, left)
    work.facts["counts"] = counts
    filtered = ", ".join(sorted(verdicts))
    measured = "" if filtered == "train" else " Figures on filtered queries favour the models that filtered them."
    write_collection_card(
        work,
        f"Filtered queries of {Path(work.manifest.sources['collection']).name}",
        f"The collection without the queries of {filtered} that do not lead to a relevant passage, as counted below, "
        f"one reason after the other.{measured}",
        {"corpus": "the passages, as they were", "queries": ", ".join(queries.column_names)},
        splits,
        lists,
    )


def _copy_corpus(collection: Path, folder: Path) -> int:
    """The passages as they are; how many."""
    files = table_files(collection)
    if files[0].suffix == ".parquet":
        folder.mkdir()
        for file in files:
            shutil.copyfile(file, folder / file.name)
        return sum(parquet.read_metadata(file).num_rows for file in files)
    with ShardWriter(folder) as writer:
        for batch in load_corpus(collection).with_format("arrow").iter(ROWS):
            writer.write(batch)
    return writer.written


def _without(table: pa.Table, column: str, gone: Iterable[str]) -> pa.Table:
    """The rows whose column holds none of some names."""
    there = compute.is_in(table.column(column).cast(pa.string()), pa.array(sorted(gone), pa.string()))
    return table.filter(compute.invert(there))


def _copy_lists(collection: Path, result: Path, left: Mapping[str, set[str]]) -> bool:
    """The training lists of queries that are kept; whether there are any."""
    files = sorted((collection / "negatives").glob("*.parquet"))
    for file in files:
        (result / "negatives").mkdir(exist_ok=True)
        table = _without(parquet.read_table(file), "query_id", left.get(file.stem, ()))
        parquet.write_table(table, result / "negatives" / file.name)
    return bool(files)
