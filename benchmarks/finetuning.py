"""How fast a step of fine-tuning is on a CPU, against Sentence-Transformers' own loss on the same batches.

    python benchmarks/finetuning.py COLLECTION [COLLECTION ...] --model EMBEDDER [--steps 12] [--vocabulary 250002]

A step is that of `adapt`: ten queries, each with a relevant passage and three that BM25 found. Ours is `ListLoss`, as
`finetune` runs it; theirs `MultipleNegativesRankingLoss` at the same temperature, whose texts are padded to the longest
of their column. Each trains a copy of the model by AdamW, batch by batch in turns, after one that warms up; the first
losses, without dropout, must be the same. Seconds are the processor's, of all threads, as a machine may be busy with
other work; the ratio is that of the sums. With `--vocabulary` the model has embeddings of so many tokens, as
multilingual ones have.
"""

from __future__ import annotations

import argparse
import json
import time
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn
from tuning import FINETUNING, NEGATIVES, TUNED_LENGTH, prepare_lists

from hf_dense.finetuning.batches import ListCollator, ListSampler
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, ListLoss
from hf_dense.finetuning.embedding import gradients_of_read_words
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.precision import Reading
from hf_dense.storage.files import write_text
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import describe_run

SEED = 0
PACKAGES = ("hf_dense", "torch", "transformers", "sentence-transformers")
Rows = list[dict[str, Any]]


class Ours:
    """A step as `finetune` makes it."""

    def __init__(self, model: SentenceTransformer) -> None:
        arguments = BiencoderTrainingArguments(output_dir="unused", **FINETUNING)
        self.model, self.loss = model, ListLoss(model, arguments)
        prompts: dict[str, str] = {}
        self.collate = ListCollator(preprocess_fn=model.preprocess, prompts=prompts, router_mapping={})

    def __call__(self, rows: Rows) -> Tensor:
        """The loss of a batch."""
        batch = self.collate(rows)
        sides = [
            {key.removeprefix(side): value for key, value in batch.items() if key.startswith(side)}
            for side in ("query_", "passage_")
        ]
        found = self.loss(sides)
        assert isinstance(found, Tensor)
        return found

    def backward(self, loss: Tensor) -> None:
        """Give every weight its gradient."""
        with gradients_of_read_words(self.model):
            loss.backward()  # type: ignore[no-untyped-call]


class Theirs:
    """A step by Sentence-Transformers' loss, each column padded by itself."""

    def __init__(self, model: SentenceTransformer) -> None:
        self.model = model
        self.loss = MultipleNegativesRankingLoss(model, scale=1 / FINETUNING["temperature"])

    def __call__(self, rows: Rows) -> Tensor:
        """The loss of a batch."""
        columns = [[row["query"] for row in rows], *zip(*(row["passages"] for row in rows), strict=True)]
        found: Tensor = self.loss([self.model.preprocess(list(texts)) for texts in columns], torch.empty(0))
        return found

    def backward(self, loss: Tensor) -> None:
        """Give every weight its gradient."""
        loss.backward()  # type: ignore[no-untyped-call]


def compare(model: SentenceTransformer, batches: list[Rows]) -> dict[str, Any]:
    """Seconds of each step, and what that comes to."""
    ways = {"ours": Ours(deepcopy(model)), "theirs": Theirs(deepcopy(model))}
    with torch.no_grad():
        first = {name: float(way(batches[0])) for name, way in ways.items()}
    if abs(first["ours"] - first["theirs"]) > 1e-4:
        raise SystemExit(f"The losses of one batch differ: {first}.")
    optimisers = {
        name: torch.optim.AdamW(way.model.parameters(), lr=FINETUNING["learning_rate"], fused=True)
        for name, way in ways.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way.model.train()
    for number, rows in enumerate(batches):
        for name in [*ways][:: 1 if number % 2 else -1]:
            started, way = time.process_time(), ways[name]
            way.backward(way(rows))
            nn.utils.clip_grad_norm_(way.model.parameters(), 1.0)
            optimisers[name].step()
            optimisers[name].zero_grad()
            seconds[name].append(time.process_time() - started)
    total = {name: sum(taken[1:]) for name, taken in seconds.items()}
    return {"seconds": seconds, "first loss": first, "speed of ours / theirs": total["theirs"] / total["ours"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path, metavar="COLLECTION", help="with train judgements")
    parser.add_argument("--model", required=True, help="ready embedder: directory or Hub id")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, help="embeddings of so many tokens, those beyond the model's random")
    parser.add_argument("--out", type=Path, default=Path("build/finetuning_speed"), help="where lists are written")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/finetuning.json"))
    options = parser.parse_args()
    model = Reading(max_length=TUNED_LENGTH).apply(load_retriever(options.model)).eval()
    encoder: Any = model[0].auto_model
    if options.vocabulary is not None:
        encoder.resize_token_embeddings(options.vocabulary, mean_resizing=False)
    tokens = encoder.get_input_embeddings().num_embeddings
    found = {}
    for collection in options.collections:
        name, queries = collection.resolve().name, FINETUNING["per_device_train_batch_size"]
        lists = prepare_lists(collection, Output(options.out / name), SEED)
        data, order = lists.dataset(), list(ListSampler(lists, queries))[: options.steps + 1]
        found[name] = compare(model, [[data[row] for row in rows] for rows in order])
        print(f"{name}, {tokens:,} tokens: {found[name]['speed of ours / theirs']:.2f}", flush=True)
    facts = {
        "results": found,
        "settings": {"queries": queries, "negatives": NEGATIVES, "max_length": TUNED_LENGTH, "steps": options.steps},
        "model": Path(options.model).name,
        "tokens": tokens,
        "threads": torch.get_num_threads(),
        **describe_run(),
        "versions": {name: version(name) for name in PACKAGES},
        "seed": SEED,
    }
    known = json.loads(options.results.read_text(encoding="utf-8")) if options.results.is_file() else {}
    write_text(options.results, json.dumps({**known, str(tokens): facts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
