"""Floating-point operations of a step of pre-training and of fine-tuning: what "equal compute" means here.

They are counted while a step runs; what a step needs at least is in `needed_operations.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from datasets import Dataset
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.corpus import add_sources, tokenize
from hf_dense.pretraining.vocabulary import Vocabulary

BATCHES = 3  # that a mean is taken over


def pretraining_operations(
    model: BottleneckForPreTraining, corpus: Dataset, tokenizer: PreTrainedTokenizerBase, size: int, max_length: int
) -> float:
    """Of a step (forward and backward) on `size` rows, the mean over the first batches of a corpus.

    The counter does not know products that are added in place, as those of the word matrix's gradient are: a third of
    what the vocabulary takes, added by hand.
    """
    config = model.config
    rows = tokenize(add_sources(corpus, config.sources), tokenizer).remove_columns("length")
    collator = ViewCollator(config, Vocabulary.of(tokenizer), max_length, seed=0)
    total = 0.0
    for at in range(0, BATCHES * size, size):
        batch = collator(list(rows.select(range(at, at + size))))
        counts = model.count_scored(batch["views"])
        scored = sum(int(counts[name]) for name in config.scored)
        total += _count(lambda batch=batch: model(**batch).loss) + 2 * scored * config.vocab_size * config.hidden_size
    return total / BATCHES


def finetuning_operations(
    encoder: PreTrainedModel, pairs: Dataset, tokenizer: PreTrainedTokenizerBase, size: int, max_length: int
) -> float:
    """Of a step on `size` pairs, the mean over the first batches; the similarities cost next to nothing."""
    total = 0.0
    for at in range(0, BATCHES * size, size):
        for column in ("query", "passage"):
            texts = pairs[at : at + size][column]
            read = tokenizer(texts, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
            total += _count(partial(_encode, encoder, dict(read)))
    return total / BATCHES


def encoding_operations(
    encoder: PreTrainedModel, texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> float:
    """Forward and backward through texts one by one: without padding, much as texts in groups of like length."""
    total = 0.0
    for text in texts:
        read = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
        total += _count(partial(_encode, encoder, dict(read)))
    return total


def _encode(encoder: PreTrainedModel, read: dict[str, Tensor]) -> Tensor:
    return encoder(**read).last_hidden_state.square().sum()  # a scalar that the backward pass can start from


def _count(loss: Callable[[], Tensor]) -> float:
    with FlopCounterMode(display=False) as counter, torch.enable_grad():
        loss().backward()
    return float(counter.get_total_flops())
