"""Floating-point operations that a step of pre-training needs, whoever computes it; of the models and torch alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor
from transformers import PreTrainedConfig

from hf_dense.modeling.bottleneck_backbones import family_of
from hf_dense.modeling.bottleneck_losses import IGNORED
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig


def needed_operations(config: BottleneckConfig, views: Mapping[str, Mapping[str, Tensor]]) -> float:
    """Of a pre-training step (forward and backward), however it is padded.

    Counted are the matrix products on real tokens: layers with attention within a text (within the window, where a
    layer has one), and the vocabulary at scored positions (at all where a bag of words reads them). A frozen generator,
    an ELECTRA, has the forward pass alone. SEED-Encoder's cross-attention, one vector for a whole text, is next to
    nothing and left out. Word vectors are as long as hidden states.
    """
    sizes, vocabulary, total = config.backbone, config.vocab_size, 0.0
    bags = {encoder for encoder, _ in config.bags.values()}
    for name, encoder in config.encoder_specs.items():
        lengths, scored = _lengths(views[name]), _scored(views[name])
        total += 6 * _layers(lengths, sizes, sizes.num_hidden_layers, copied=True)
        read = float(lengths.sum()) if name in bags else scored if encoder.weight else 0.0
        total += 6 * read * sizes.hidden_size * (sizes.hidden_size + vocabulary)
    for name, decoder in config.decoder_specs.items():
        view = views[config.scored[name]]
        total += 6 * _layers(_lengths(view), sizes, decoder.layers, copied=decoder.init == "last_layers")
        head = sizes.hidden_size if decoder.head == "mlm" else 0
        total += 6 * _scored(view) * sizes.hidden_size * (head + vocabulary)
    frozen = getattr(config, "generator_config", None)
    for view in views.values():
        if frozen is not None and "uniform" in view:
            hidden, words, lengths = frozen.hidden_size, frozen.embedding_size, _lengths(view)
            total += 2 * _layers(lengths, frozen, frozen.num_hidden_layers, copied=True)
            total += 2 * float(lengths.sum()) * words * (hidden if words != hidden else 0)
            total += 2 * float((view["uniform"] >= 0).sum()) * words * (hidden + vocabulary)
    return total


def _lengths(view: Mapping[str, Tensor]) -> Tensor:
    return view["attention_mask"].sum(dim=1).double()


def _scored(view: Mapping[str, Tensor]) -> float:
    return float((view["labels"] != IGNORED).sum())


def _layers(lengths: Tensor, config: PreTrainedConfig, layers: int, copied: bool) -> float:
    """Multiplications of some layers on texts of these lengths: projections, feed-forward part, attention."""
    family = family_of(config)
    shape = family.shape(config)
    windows = [family.window(config, kind) for kind in family.attention_kinds(config, layers, copied)]
    expansion = (3 if shape.modern else 2) * shape.intermediate  # a gated part has one more matrix
    projections = layers * float(lengths.sum()) * (4 * shape.hidden + expansion)
    return shape.hidden * (projections + 2 * _pairs(lengths, windows))


def _pairs(lengths: Tensor, windows: Sequence[int | None]) -> float:
    """Pairs of positions that see each other, over all layers.

    >>> import torch
    >>> _pairs(torch.tensor([4.0]), [None, 1]), _pairs(torch.tensor([2.0, 1.0]), [7])
    (26.0, 5.0)
    """
    total = 0.0
    for window in windows:
        reach = (lengths - 1) if window is None else (lengths - 1).clamp(max=window)  # to one side, at most
        total += float((lengths + reach * (reach + 1) + 2 * (lengths - 1 - reach) * reach).sum())
    return total
