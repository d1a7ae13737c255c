"""Small parts of collections that several benchmarks measure on."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from hf_dense.data.collections import content_hash, load_corpus, load_qrels, load_queries
from hf_dense.experiments.keeping import Kept
from hf_dense.storage.files import write_text
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

METRIC = "ndcg@10"


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


def draw(name: str) -> int:
    return zlib.crc32(f"forgetting:{name}".encode())
