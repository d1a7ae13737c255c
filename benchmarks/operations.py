"""Floating-point operations of a step of pre-training and of fine-tuning: what "equal compute" means here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from datasets import Dataset
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dense.modeling.bottleneck_losses import IGNORED
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.corpus import add_sources, tokenize
from hf_dense.pretraining.vocabulary import Vocabulary

BATCHES = 3  # that a mean is taken over


def pretraining_operations(
    model: BottleneckForPreTraining, corpus: Dataset, tokenizer: PreTrainedTokenizerBase, size: int, max_length: int
) -> float:
    """Of a step (forward and backward) on `size` rows, the mean over the first batches of a corpus.

    The counter does not know the chunked vocabulary projection, which is added by hand.
    """
    config = model.config
    rows = tokenize(add_sources(corpus, config.sources), tokenizer).remove_columns("length")
    collator = ViewCollator(config, Vocabulary.of(tokenizer), max_length, seed=0)
    total = 0.0
    for at in range(0, BATCHES * size, size):
        batch = collator(list(rows.select(range(at, at + size))))
        counts = model.count_scored(batch["views"])
        scored = sum(int(counts[name]) for name in config.scored)
        total += _count(lambda batch=batch: model(**batch).loss) + 6 * scored * config.vocab_size * config.hidden_size
    return total / BATCHES


def needed_operations(config: BottleneckConfig, views: Mapping[str, Mapping[str, Tensor]]) -> float:
    """Of a pre-training step on BERT (forward and backward), whoever computes it and however it is padded.

    Counted are the matrix products on real tokens: layers with attention within a text, and the vocabulary at scored
    positions (at all where a bag of words reads them). A frozen generator, an ELECTRA, has the forward pass alone.
    SEED-Encoder's cross-attention, one vector for a whole text, is next to nothing and left out.
    """
    sizes, vocabulary, total = config.backbone, config.vocab_size, 0.0
    bags = {encoder for encoder, _ in config.bags.values()}
    for name, encoder in config.encoder_specs.items():
        lengths, scored = _lengths(views[name]), _scored(views[name])
        total += 6 * _layers(lengths, sizes.num_hidden_layers, sizes.hidden_size, sizes.intermediate_size)
        read = float(lengths.sum()) if name in bags else scored if encoder.weight else 0.0
        total += 6 * read * sizes.hidden_size * (sizes.hidden_size + vocabulary)
    for name, decoder in config.decoder_specs.items():
        view = views[config.scored[name]]
        total += 6 * _layers(_lengths(view), decoder.layers, sizes.hidden_size, sizes.intermediate_size)
        head = sizes.hidden_size if decoder.head == "mlm" else 0
        total += 6 * _scored(view) * sizes.hidden_size * (head + vocabulary)
    frozen = getattr(config, "generator_config", None)
    for view in views.values():
        if frozen is not None and "uniform" in view:
            hidden, words, lengths = frozen.hidden_size, frozen.embedding_size, _lengths(view)
            total += 2 * _layers(lengths, frozen.num_hidden_layers, hidden, frozen.intermediate_size)
            total += 2 * float(lengths.sum()) * words * (hidden if words != hidden else 0)
            total += 2 * float((view["uniform"] >= 0).sum()) * words * (hidden + vocabulary)
    return total


def _lengths(view: Mapping[str, Tensor]) -> Tensor:
    return view["attention_mask"].sum(dim=1).double()


def _scored(view: Mapping[str, Tensor]) -> float:
    return float((view["labels"] != IGNORED).sum())


def _layers(lengths: Tensor, layers: int, hidden: int, intermediate: int) -> float:
    """Multiplications of some layers on texts of these lengths: projections, feed-forward part, attention."""
    tokens, pairs = float(lengths.sum()), float(lengths.square().sum())
    return layers * hidden * (tokens * (4 * hidden + 2 * intermediate) + 2 * pairs)


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


def _encode(encoder: PreTrainedModel, read: dict[str, Tensor]) -> Tensor:
    return encoder(**read).last_hidden_state.square().sum()  # a scalar that the backward pass can start from


def _count(loss: Callable[[], Tensor]) -> float:
    with FlopCounterMode(display=False) as counter, torch.enable_grad():
        loss().backward()
    return float(counter.get_total_flops())
