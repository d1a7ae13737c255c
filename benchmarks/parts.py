"""Small parts of collections that several benchmarks measure on."""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_dense.data.collections import content_hash, load_corpus, load_qrels, load_queries
from hf_dense.experiments.keeping import Kept
from hf_dense.storage.files import write_text
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

METRIC = "ndcg@10"


def parser_of_parts(description: str | None) -> argparse.ArgumentParser:
    """What a benchmark takes that measures on a part of what a model is tuned for, and of another collection."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, help="directory with train and dev judgements")
    parser.add_argument("--kept", type=Path, required=True, help="another one, with dev judgements")
    parser.add_argument("--model", required=True, help="ready embedder: directory or Hub id")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def write_parts(options: argparse.Namespace, out: Output, sizes: Mapping[str, tuple[int, int]]) -> dict[str, Kept]:
    """The parts of `own` and of `kept`, of so many queries and passages each."""
    return {
        "own": write_part(options.collection, out.at("own"), *sizes["own"]),
        "kept": write_part(options.kept, out.at("kept"), *sizes["kept"]),
    }


def write_part(collection: Path, out: Output, queries: int, passages: int, split: str = "dev") -> Kept:
    """Some queries of a collection, and some of its passages, all relevant ones among them, in BEIR layout."""
    settings = {"queries": queries, "passages": passages, "split": split}
    source = {"collection": Source(str(collection), content_hash(collection))}
    with out.stage("collection", settings, source) as work:
        if not work.done:
            judged = load_qrels(collection, split)
            judged = {query: judged[query] for query in sorted(judged, key=draw)[:queries]}
            relevant = {passage for grades in judged.values() for passage in grades}
            rows = sorted(load_corpus(collection), key=lambda row: (row["id"] not in relevant, draw(row["id"])))
            corpus = [
                {"_id": row["id"], "title": row["title"], "text": row["text"]}
                for row in rows[: max(passages, len(relevant))]
            ]
            asked = [{"_id": row["id"], "text": row["text"]} for row in load_queries(collection) if row["id"] in judged]
            for name, lines in (("corpus", corpus), ("queries", asked)):
                write_text(work.result / f"{name}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
            lines = [f"{query}\t{name}\t{grade}" for query, grades in judged.items() for name, grade in grades.items()]
            write_text(work.result / "qrels" / f"{split}.tsv", "\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return Kept(collection.resolve().name, out.path, split)


def format_difference(test: Mapping[str, float] | None) -> str:
    """A paired test in a cell: the difference and its 95 % interval."""
    return "-" if test is None else f"{test['difference']:+.3f} ({test['low']:+.3f} to {test['high']:+.3f})"


def with_document(row: dict[str, Any]) -> dict[str, Any]:
    """A passage that says which document it is of; ids such as `7#2` name document and place."""
    document, _, place = row["id"].rpartition("#")
    named = "document" not in row and document and place.isdigit()
    return row | {"document": document, "position": int(place)} if named else row


def draw(name: str) -> int:
    return zlib.crc32(f"forgetting:{name}".encode())
