"""How much of a training step collation takes, and how much faster vectorised masking is than a loop over tokens.

    python benchmarks/collation.py [--steps 20] [--output benchmarks/results/collation.json]

The shape is the demo's: 2 layers x 128, 8,000 tokens, texts of up to 64 tokens, batches of 64, on synthetic token ids.
Collation and training steps alternate in one process, so that whatever else the machine does weighs on both. Last,
how many passages of up to 144 tokens each method's collator makes in a second of one core.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, Sequence, Value
from torch.utils.data import DataLoader

from hf_dense.methods import METHODS
from hf_dense.modeling.bottleneck_losses import IGNORED
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.keywords import Keywords
from hf_dense.pretraining.masking import draw_words, noise, row_keys, sampled_visibility, word_index
from hf_dense.pretraining.sampler import PassageSampler
from hf_dense.pretraining.vocabulary import Vocabulary
from hf_dense.storage.files import write_text
from hf_dense.storage.provenance import describe_commit, describe_hardware

VOCAB, LENGTH, BATCH, SEED = 8000, 64, 64, 0
PASSAGE, PASSAGE_BATCH = 144, 32  # tokens of the longest passage, and passages of a batch, where rates are measured
BACKBONE = {
    "vocab_size": VOCAB,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": LENGTH,
}


def make_vocabulary() -> Vocabulary:
    """A vocabulary of which three in ten tokens continue a word."""
    special, index = np.arange(VOCAB) < 5, np.arange(VOCAB)
    return Vocabulary(VOCAB, 2, 3, 4, 0, special, (index % 10 < 3) & ~special)


def make_rows(count: int) -> Dataset:
    """Texts and neighbours of 8 to 62 tokens, 45 on average, most of them near the greatest length."""
    rng = np.random.default_rng(SEED)
    columns = {}
    for name in ("text", "neighbour"):
        lengths = (8 + 54 * rng.beta(2.2, 1.0, size=count)).astype(int)
        columns[name] = [rng.integers(5, VOCAB, size=length).astype(np.int32) for length in lengths]
    lengths = [len(text) + len(other) for text, other in zip(*columns.values(), strict=True)]
    rows = Dataset.from_dict({**columns, "length": lengths})
    for name in columns:
        rows = rows.cast_column(name, Sequence(Value("int32")))
    return rows.with_format("numpy")


def seconds(call: Callable[..., Any], *given: Any) -> tuple[float, float, Any]:
    """Wall time and processor time (all threads) of a call, and what it gave."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call(*given)
    return time.perf_counter() - wall, time.process_time() - cpu, result


def measure_method(name: str, rows: Dataset, vocabulary: Vocabulary, steps: int, bf16: bool) -> dict[str, float]:
    """Median milliseconds of fetching and collating a batch and of training on it, and the former's share.

    `processor_share` counts processor time of all threads: on a busy machine the fairer figure for one thread.
    """
    torch.manual_seed(SEED)
    method = METHODS[name]
    model = method.pretraining(method.config(backbone_config=BACKBONE)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    collator = ViewCollator(model.config, vocabulary, LENGTH, SEED)
    used = rows.select_columns(model.config.sources)
    sampler = PassageSampler(rows["length"][:], BATCH, SEED)
    batches = iter(DataLoader(used, batch_size=BATCH, sampler=sampler, collate_fn=collator, drop_last=True))

    def step(views: dict[str, Any]) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = model(views).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    times = []
    for _ in range(steps + 3):
        *collate, batch = seconds(next, batches)
        *train, _ = seconds(step, batch["views"])
        times.append((*collate, *train))
    collate_wall, collate_cpu, train_wall, train_cpu = (statistics.median(row) for row in zip(*times[3:], strict=True))
    return {
        "collate_ms": round(collate_wall * 1e3, 2),
        "train_ms": round(train_wall * 1e3, 2),
        "share": round(collate_wall / (collate_wall + train_wall), 4),
        "processor_share": round(collate_cpu / (collate_cpu + train_cpu), 4),
    }


def loop_draw(words: list[list[int]], rate: float, rng: random.Random) -> set[int]:
    """Positions hidden in one text: whole words in random order, as the papers' collators do it."""
    budget = max(1, round(rate * sum(map(len, words))))
    hidden: set[int] = set()
    for word in rng.sample(words, len(words)):
        if len(hidden) + len(word) <= budget:
            hidden.update(word)
    return hidden


def loop_words(ids: list[int], vocabulary: Vocabulary) -> list[list[int]]:
    """Positions of each word of a text."""
    words: list[list[int]] = []
    for position, token in enumerate(ids):
        if vocabulary.special[token]:
            continue
        if words and vocabulary.continues[token] and words[-1][-1] == position - 1:
            words[-1].append(position)
        else:
            words.append([position])
    return words


def loop_labels(texts: list[list[int]], width: int, vocabulary: Vocabulary, rng: random.Random) -> list[list[int]]:
    """The encoder's labels of a batch, token by token."""
    labels = []
    for ids in texts:
        hidden = loop_draw(loop_words(ids, vocabulary), 0.3, rng)
        row = [token if position in hidden else IGNORED for position, token in enumerate(ids)]
        labels.append(row + [IGNORED] * (width - len(ids)))
    return labels


def loop_visible(texts: list[list[int]], width: int, vocabulary: Vocabulary, rng: random.Random) -> list[Any]:
    """RetroMAE's visibility of a batch, token by token."""
    visible = []
    for ids in texts:
        words, matrix = loop_words(ids, vocabulary), []
        for position in range(width):
            hidden = loop_draw(words, 0.5, rng)
            matrix.append([j < len(ids) and j != position and j not in hidden for j in range(width)])
        visible.append(matrix)
    return visible


def measure_masking(rows: Dataset, vocabulary: Vocabulary, repeats: int = 5) -> dict[str, dict[str, float]]:
    """Median milliseconds of masking a batch by arrays and by a loop over tokens."""
    texts = [np.array([2, *rows[row]["text"], 3]) for row in range(BATCH)]
    width = max(map(len, texts))
    ids = np.stack([np.pad(text, (0, width - len(text))) for text in texts])
    present = np.arange(width)[None] < np.array([len(text) for text in texts])[:, None]
    lists, rng = [text.tolist() for text in texts], random.Random(SEED)

    def keys_and_words() -> tuple[Any, Any]:
        maskable = present & ~vocabulary.special[ids]
        return row_keys(texts, SEED, 0), word_index(ids, maskable, vocabulary.continues)

    def labels() -> Any:
        keys, word = keys_and_words()
        hidden = draw_words(word, 0.3, noise(keys, "select"))
        return torch.from_numpy(np.where(hidden, ids, IGNORED))

    def visible() -> Any:
        keys, word = keys_and_words()
        return torch.from_numpy(sampled_visibility(word, present, 0.5, keys, "visible"))

    pairs = {
        "hidden words of the encoder": (labels, lambda: torch.tensor(loop_labels(lists, width, vocabulary, rng))),
        "visibility of RetroMAE's decoder": (
            visible,
            lambda: torch.tensor(loop_visible(lists, width, vocabulary, rng)),
        ),
    }
    results = {}
    for name, (arrays, loop) in pairs.items():
        times = [(seconds(arrays)[0], seconds(loop)[0]) for _ in range(repeats)]
        fast, slow = (statistics.median(column) * 1e3 for column in zip(*times, strict=True))
        results[name] = {"arrays_ms": round(fast, 2), "loop_ms": round(slow, 2), "ratio": round(slow / fast, 1)}
    return results


def measure_rates(vocabulary: Vocabulary, repeats: int = 20) -> dict[str, int]:
    """Passages collated per second of processor time by every method, at passages of up to 144 tokens (100 on average).

    One thread does it, as idle ones count as processor time. Columns other than queries and titles are as long as the
    passages. The methods take turns, batch by batch.
    """
    rng = np.random.default_rng(SEED)

    def draw(tokens: int) -> Any:
        return rng.integers(5, VOCAB, size=tokens).astype(np.int32)

    rows = []
    for _ in range(PASSAGE_BATCH * repeats):
        passages = ("text", "neighbour", "continuation")
        row = {name: draw(int(8 + (PASSAGE - 9) * rng.beta(2.2, 1.0))) for name in passages}
        rows.append({**row, "title": draw(6), "queries": [draw(8) for _ in range(5)]})
    keywords = Keywords.of([row["text"] for row in rows], vocabulary)
    collators = {
        name: ViewCollator(method.config(), vocabulary, PASSAGE, SEED, keywords) for name, method in METHODS.items()
    }
    torch.set_num_threads(1)
    times: dict[str, list[float]] = {name: [] for name in METHODS}
    for start in range(0, len(rows), PASSAGE_BATCH):
        for name, collator in collators.items():
            times[name].append(seconds(collator, rows[start : start + PASSAGE_BATCH])[1])
    return {name: round(PASSAGE_BATCH / statistics.median(spent)) for name, spent in times.items()}


def print_tables(
    methods: dict[str, dict[str, float]], masking: dict[str, dict[str, float]], rates: dict[str, int]
) -> None:
    """What was measured, in milliseconds."""
    print(f"{'method':<34}{'collate':>10}{'train':>10}{'share':>10}{'processor':>12}")
    for name, row in methods.items():
        print(
            f"{name:<34}{row['collate_ms']:>10.1f}{row['train_ms']:>10.1f}{row['share']:>10.1%}{row['processor_share']:>12.1%}"
        )
    print(f"\n{'masking of a batch':<34}{'arrays':>10}{'loop':>10}{'ratio':>10}")
    for name, row in masking.items():
        print(f"{name:<34}{row['arrays_ms']:>10.1f}{row['loop_ms']:>10.1f}{row['ratio']:>9.0f}x")
    print(f"\n{f'passages/s per core, {PASSAGE} tokens':<34}{'collated':>10}")
    for name, rate in rates.items():
        print(f"{name:<34}{rate:>10,}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Collation as a share of a training step.")
    parser.add_argument("--steps", type=int, default=20, help="training steps measured per method, after 3 to warm up")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of a training step")
    parser.add_argument("--bf16", action="store_true", help="train under bfloat16 autocast")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results") / "collation.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    vocabulary, rows = make_vocabulary(), make_rows(BATCH * (options.steps + 4))
    methods = {
        name: measure_method(name, rows, vocabulary, options.steps, options.bf16)
        for name, method in METHODS.items()
        if set(method.config().sources) <= set(rows.column_names) and not method.config.has_generator
    }
    masking = measure_masking(rows, vocabulary)
    rates = measure_rates(vocabulary)
    print_tables(methods, masking, rates)
    shape = {
        "batch": BATCH,
        "length": LENGTH,
        "mean_tokens": round(float(np.mean(rows["length"][:])) / 2, 1),
        **BACKBONE,
    }
    result = {
        "methods": methods,
        "masking": masking,
        "passages_per_second": rates,
        "shape": shape,
        "passages": {"longest": PASSAGE, "batch": PASSAGE_BATCH},
        "steps": options.steps,
        "threads": options.threads,
        "precision": "bf16 autocast" if options.bf16 else "fp32",
        "seed": SEED,
        "commit": describe_commit(Path(__file__).parent),
        "hardware": describe_hardware(),
        "versions": {name: version(name) for name in ("hf_dense", "torch", "transformers", "datasets", "numpy")},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_text(options.output, json.dumps(result, indent=2) + "\n")
    print(f"\nWritten to {options.output.name}")


if __name__ == "__main__":
    main()
