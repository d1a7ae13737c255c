"""Where embeddings and the masked-language-model head live, per family of backbones.

The engine speaks to a backbone only through `Family`; a new family is one entry of `FAMILIES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Shape:
    """Sizes and rates of a Transformer layer, under one set of names for all families."""

    hidden: int
    heads: int
    intermediate: int
    activation: str
    norm_eps: float
    dropout: float
    attention_dropout: float
    positions: int


@dataclass(frozen=True)
class Family:
    """How to reach the parts of one family of backbones.

    Args:
        build: keyword arguments for `AutoModel.from_config` (no pooler: nothing here trains or reads one).
        head: names of the head's parts in a masked-language-model checkpoint (`AutoModelForMaskedLM`) of the family.
        layer: names of a layer's parts, by the name that a decoder's `Block` has for them.
    """

    build: dict[str, Any]
    head: dict[str, str]
    layer: dict[str, str]

    def shape(self, config: PreTrainedConfig) -> Shape:
        """Sizes of the backbone's layers, which the decoders copy."""
        return Shape(
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            intermediate=config.intermediate_size,
            activation=config.hidden_act,
            norm_eps=config.layer_norm_eps,
            dropout=config.hidden_dropout_prob,
            attention_dropout=config.attention_probs_dropout_prob,
            positions=config.max_position_embeddings,
        )

    def embed(
        self, backbone: nn.Module, positions: Tensor, ids: Tensor | None = None, words: Tensor | None = None
    ) -> Tensor:
        """The embedding block (word + position + type, layer norm, dropout) of token ids or of given word vectors.

        Args:
            positions: (batch or 1, length) position of every token, from 0.
            ids: (batch, length) token ids; or
            words: (batch, length, dim) vectors in place of word embeddings.

        Returns:
            (batch, length, dim).
        """
        embedded: Tensor = backbone.embeddings(input_ids=ids, inputs_embeds=words, position_ids=positions)  # type: ignore[operator]
        return embedded

    def layers(self, backbone: nn.Module) -> list[nn.Module]:
        """The backbone's layers, the last one at the end."""
        return list(backbone.encoder.layer)  # type: ignore[union-attr, arg-type]

    def rename_layer(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """The state dict of a backbone layer under the names of a decoder's `Block`."""
        parts = {f"{theirs}.{kind}": f"{ours}.{kind}" for ours, theirs in self.layer.items() for kind in _KINDS}
        return {parts[name]: tensor for name, tensor in state.items()}

    def position_vectors(self, backbone: nn.Module, positions: Tensor) -> Tensor:
        """(batch or 1, length) positions -> (batch or 1, length, dim) rows of the position table."""
        table: nn.Embedding = backbone.embeddings.position_embeddings  # type: ignore[union-attr, assignment]
        return table(positions)  # type: ignore[no-any-return]


_BERT_HEAD = {
    "dense.weight": "cls.predictions.transform.dense.weight",
    "dense.bias": "cls.predictions.transform.dense.bias",
    "norm.weight": "cls.predictions.transform.LayerNorm.weight",
    "norm.bias": "cls.predictions.transform.LayerNorm.bias",
    "bias": "cls.predictions.bias",
}

_KINDS = ("weight", "bias")
_BERT_LAYER = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}

FAMILIES: dict[str, Family] = {"bert": Family(build={"add_pooling_layer": False}, head=_BERT_HEAD, layer=_BERT_LAYER)}


def family_of(config: PreTrainedConfig) -> Family:
    """The family of a backbone configuration.

    Raises:
        ValueError: the family is not known here; the message lists those that are.
    """
    if config.model_type not in FAMILIES:
        raise ValueError(f"Backbones of type {config.model_type!r} are not supported; use: {', '.join(FAMILIES)}.")
    return FAMILIES[config.model_type]


def build_backbone(config: PreTrainedConfig) -> PreTrainedModel:
    """A backbone with random weights, without pooler."""
    backbone: PreTrainedModel = AutoModel.from_config(config, **family_of(config).build)
    return backbone


def head_state(family: Family, state: dict[str, Tensor]) -> dict[str, Tensor] | None:
    """The head's weights out of a masked-language-model state dict, or None when they are not there."""
    found = {name: state[source] for name, source in family.head.items() if source in state}
    return found if len(found) == len(family.head) else None


def same_vocabulary(config: PreTrainedConfig, backbone: nn.Module) -> bool:
    """Whether the word matrix of `backbone` has as many rows as its configuration says."""
    words = backbone.get_input_embeddings().weight  # type: ignore[operator]
    return isinstance(words, torch.Tensor) and words.shape[0] == config.vocab_size
