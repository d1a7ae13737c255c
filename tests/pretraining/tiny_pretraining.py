"""A tiny corpus, tiny models and tiny runs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from json_lines import write_lines
from numpy.typing import NDArray
from tiny_retriever import BACKBONE, LETTERS, tiny_config, tiny_tokenizer
from transformers import TrainingArguments

from hf_dense.methods import get_method
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.pretraining.keywords import Keywords
from hf_dense.pretraining.pretrain import PretrainingOptions
from hf_dense.pretraining.trainer import PreTrainer
from hf_dense.pretraining.vocabulary import Vocabulary

METHODS = ("cocondenser", "cotmae", "master", "retromae", "seed_encoder")  # each with machinery of its own
NO_DROPOUT = {**BACKBONE, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def tiny_vocabulary() -> Vocabulary:
    """Read the tokenizer whose words are letters."""
    return Vocabulary.of(tiny_tokenizer())


def random_text(generator: random.Random, words: int) -> str:
    """Draw words of one to four letters: as many tokens as letters."""
    return " ".join("".join(generator.choices(LETTERS, k=generator.randint(1, 4))) for _ in range(words))


def write_corpus(path: Path, passages: int = 60, seed: int = 0, per_document: int = 2) -> Path:
    """Write passages of 3 to 12 words, in documents of `per_document`."""
    generator = random.Random(seed)
    rows = [
        {
            "text": random_text(generator, generator.randint(3, 12)),
            "document": f"d{row // per_document}",
            "position": row % per_document,
            "queries": [random_text(generator, generator.randint(2, 5)) for _ in range(3)],
            "continuation": random_text(generator, generator.randint(3, 9)),
        }
        for row in range(passages)
    ]
    return write_lines(path, rows)


def token_row(generator: random.Random, words: int) -> NDArray[np.int32]:
    """Token ids of a random text."""
    ids = tiny_tokenizer()(random_text(generator, words), add_special_tokens=False)["input_ids"]
    return np.array(ids, dtype=np.int32)


def token_rows(count: int, longest: int = 12, seed: int = 0) -> list[dict[str, Any]]:
    """Token ids for every source that a method may read."""
    generator = random.Random(seed)
    return [
        {
            **{
                name: token_row(generator, generator.randint(2, longest))
                for name in ("text", "neighbour", "continuation")
            },
            "queries": [token_row(generator, generator.randint(2, 5)) for _ in range(3)],
        }
        for _ in range(count)
    ]


def tiny_keywords() -> Keywords:
    """Count the words of some random texts."""
    return Keywords.of([row["text"] for row in token_rows(40, seed=9)], tiny_vocabulary())


def tiny_model(method: str, seed: int = 0, **config: Any) -> BottleneckForPreTraining:
    """Make a random model of a method."""
    torch.manual_seed(seed)
    kind = get_method(method)
    return kind.pretraining(kind.config(backbone_config=tiny_config(), **config))


def tiny_options(directory: Path, method: str = "retromae", **changes: Any) -> PretrainingOptions:
    """Ask for a run from scratch on a corpus in `directory`, which is written when it is not there."""
    corpus, tokenizer = directory / "corpus.jsonl", directory / "tokenizer"
    if not corpus.exists():
        write_corpus(corpus)
    if not tokenizer.exists():
        tiny_tokenizer().save_pretrained(tokenizer)
    values = {
        "method": method,
        "corpus": str(corpus),
        "tokenizer": str(tokenizer),
        "backbone_config": dict(BACKBONE),
        "max_length": 32,
        "held_out": 0.1,
        **changes,
    }
    return PretrainingOptions(**values)


def tiny_arguments(output: Path, **changes: Any) -> TrainingArguments:
    """Run 12 steps of 8 passages, on the CPU, in silence; an epoch of the tiny corpus is 6 to 8 steps."""
    values = {
        "output_dir": str(output),
        "max_steps": 12,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        **changes,
    }
    return TrainingArguments(**values)


def weights(directory: Path) -> dict[str, torch.Tensor]:
    """Read the weights of a checkpoint."""
    from safetensors.torch import load_file

    return load_file(directory / "model.safetensors")


def same_weights(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Compare bit by bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def logged(history: Sequence[Mapping[str, float]], name: str) -> list[float]:
    """Find what was logged under a name."""
    return [row[name] for row in history if name in row]


class Interrupted(PreTrainer):
    """Dies at the beginning of step 9, as far as the files can tell."""

    def training_step(self, *given: Any, **named: Any) -> Any:
        if self.state.global_step == 8:
            raise KeyboardInterrupt
        return super().training_step(*given, **named)
