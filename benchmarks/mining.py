"""How fast hard negatives are mined, and in what memory, against the utilities of Sentence-Transformers.

    python benchmarks/mining.py [--threads 1 2] [--output benchmarks/results/mining.json]

10,000 queries, 100,000 passages, 384 dimensions, depth 200, random unit vectors, each query with one positive. `search`
compares vectors alone: ours, read from disk block by block, and `semantic_search`, which has them in memory. `mining`
starts from texts and a retriever that looks their vectors up: ours, from a collection to a file of training lists, and
`mine_hard_negatives`, from lists of texts to a dataset. Each runs in a process of its own; memory is the peak of
resident memory (VmHWM), `imports` that of the modules alone. Processor seconds are those of all threads. On a busy
machine one thread is the fairer run: of several, some wait for others that do not get a core.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from pyarrow import parquet
from sentence_transformers.util import dot_score, mine_hard_negatives, semantic_search
from side_by_side import QUERIES, LookUp, compare

from hf_dense.finetuning.mining import mine_negatives
from hf_dense.search.dense import Vectors, search

DEPTH = 200


def our_search(folder: Path) -> list[int]:
    blocks = Vectors(tuple(sorted(folder.glob("block-*.npy"))))
    return search(np.load(folder / "queries.npy"), blocks, DEPTH)[1].sum(axis=1).tolist()


def their_search(folder: Path) -> list[int]:
    queries, passages = (torch.from_numpy(np.load(folder / name)) for name in ("queries.npy", "passages.npy"))
    found = semantic_search(queries, passages, top_k=DEPTH, score_function=dot_score)
    return [sum(int(hit["corpus_id"]) for hit in hits) for hits in found]


def our_mining(folder: Path) -> list[int]:
    with tempfile.TemporaryDirectory() as name:
        out = mine_negatives(LookUp(folder), folder, Path(name) / "out", depth=DEPTH)
        negatives = parquet.ParquetFile(out / "negatives" / "train.parquet")
        return [
            sum(map(int, row))
            for batch in negatives.iter_batches(500, columns=["negatives"])
            for row in batch.column(0).to_pylist()
        ]


def their_mining(folder: Path) -> list[int]:
    texts = {
        name: parquet.read_table(folder / name / "part.parquet")["text"].to_pylist() for name in ("queries", "corpus")
    }
    pairs = Dataset.from_dict({"query": texts["queries"], "positive": texts["corpus"][:QUERIES]})
    found = mine_hard_negatives(
        pairs, LookUp(folder), corpus=texts["corpus"], num_negatives=DEPTH, output_format="n-tuple", verbose=False
    )
    names = [name for name in found.column_names if name.startswith("negative")]
    return [sum(int(row[name].rsplit(" ", 1)[1]) for name in names) for row in found]


if __name__ == "__main__":
    compare(
        __file__,
        __doc__ or "",
        {
            "imports": lambda folder: [],
            "search, ours": our_search,
            "search, semantic_search": their_search,
            "mining, ours": our_mining,
            "mining, mine_hard_negatives": their_mining,
        },
        [("search, ours", "search, semantic_search"), ("mining, ours", "mining, mine_hard_negatives")],
        depth=DEPTH,
    )
