"""The fine-tuning that several benchmarks begin or end with: that of `adapt`, queries with negatives from BM25."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.finetuning.lists import PassageLists, load_lists
from hf_dense.finetuning.negatives import build_lexical_negatives
from hf_dense.storage.output import Output

TUNED_LENGTH = 128  # tokens
FINETUNING: dict[str, Any] = {
    "max_steps": 40,
    "per_device_train_batch_size": 10,
    "learning_rate": 1e-4,
    "temperature": 0.05,
    "logging_steps": 10,
    "report_to": "none",
}
NEGATIVES, DEPTH = 3, 20  # of a query, drawn from so many


def prepare_lists(collection: Path, out: Output, seed: int) -> PassageLists:
    """What is fine-tuned on; what BM25 found is read where it is there."""
    negatives = build_lexical_negatives(collection, out.at("lists"), "train", DEPTH)
    return load_lists(negatives, collection, 1 + NEGATIVES, seed, depth=DEPTH)


def tune(start: str | Path, lists: PassageLists, out: Output, seed: int, **changes: Any) -> Path:
    """A retriever, trained on with those lists; what is trained is read. `changes` are other settings."""
    arguments = BiencoderTrainingArguments(output_dir=str(out.path), seed=seed, **{**FINETUNING, **changes})
    return finetune(start, lists, arguments, output=out)
