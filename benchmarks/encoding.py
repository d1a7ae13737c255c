"""How fast passages become vectors on disk, against `encode` of Sentence-Transformers with the same model and batches.

    python benchmarks/encoding.py MODEL COLLECTION [COLLECTION ...] [--passages 384] [--rounds 3]

Ours is `encode_corpus`, theirs one call of `SentenceTransformer.encode_document` on all texts, in turns in one process,
after a batch that warms up. Seconds are the processor's, of all threads, as a machine may be busy with other work; the
ratio is that of the medians. `largest difference` is between any two numbers of their vectors.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from hf_dense.data.collections import load_corpus
from hf_dense.data.passage_texts import PassageTexts
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.precision import PRECISIONS, Reading
from hf_dense.search.dense import encode_corpus
from hf_dense.search.fingerprints import retriever_source
from hf_dense.storage.files import write_text
from hf_dense.storage.provenance import describe_commit, describe_hardware

SEED = 0
PACKAGES = ("hf_dense", "torch", "transformers", "sentence-transformers", "numpy")


def ours(retriever: SentenceTransformer, texts: Sequence[str], batch: int) -> NDArray[np.float32]:
    with tempfile.TemporaryDirectory() as folder:
        return np.concatenate(list(encode_corpus(retriever, texts, Path(folder), batch)))


def theirs(retriever: SentenceTransformer, texts: Sequence[str], batch: int) -> NDArray[np.float32]:
    found = retriever.encode_document(list(texts), batch_size=batch, show_progress_bar=False)
    return np.asarray(found, dtype=np.float32)


def compare(retriever: SentenceTransformer, texts: Sequence[str], batch: int, rounds: int) -> dict[str, Any]:
    tasks: dict[str, Callable[..., NDArray[np.float32]]] = {"ours": ours, "theirs": theirs}
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    vectors = {}
    for number in range(rounds):
        for name in [*tasks][:: 1 if number % 2 else -1]:
            started = time.process_time()
            vectors[name] = tasks[name](retriever, texts, batch)
            seconds[name].append(time.process_time() - started)
    return {
        "passages": len(texts),
        "seconds": seconds,
        "passages per second": {name: len(texts) / median(taken) for name, taken in seconds.items()},
        "speed of ours / theirs": median(seconds["theirs"]) / median(seconds["ours"]),
        "largest difference": float(np.abs(vectors["ours"] - vectors["theirs"]).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("collections", nargs="+", metavar="COLLECTION")
    parser.add_argument("--passages", type=int, default=384, help="of each, drawn at random")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--max_length", type=int)
    parser.add_argument("--output", default="benchmarks/results/encoding.json")
    options = parser.parse_args()
    loaded = load_retriever(options.model)
    retriever = Reading(options.precision, options.max_length).apply(loaded)
    results = {}
    for collection in options.collections:
        corpus = load_corpus(collection).shuffle(seed=SEED)
        texts = list(PassageTexts(corpus.select(range(min(options.passages, len(corpus))))))
        theirs(retriever, texts[: options.batch_size], options.batch_size)
        name = Path(collection).name
        results[name] = compare(retriever, texts, options.batch_size, options.rounds)
        print(name, json.dumps(results[name]), flush=True)
    facts = {
        "results": results,
        "model": {"name": Path(options.model).name, "fingerprint": retriever_source(loaded).fingerprint},
        "settings": {name: getattr(options, name) for name in ("batch_size", "precision", "max_length")},
        "threads": torch.get_num_threads(),
        "commit": describe_commit(Path(__file__).parent),
        "hardware": describe_hardware(),
        "versions": {name: version(name) for name in PACKAGES},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": SEED,
    }
    write_text(options.output, json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
