"""Supported backbones (BERT, RoBERTa, ELECTRA, DistilBERT, MPNet, ModernBERT): where their parts are.

The engine speaks to a backbone only through `Family`; a new family is one entry of `FAMILIES`, with a class of its own
where it differs by more than names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from .bottleneck_precision import filled, unfilled

FULL, SLIDING = "full_attention", "sliding_attention"

Rotation = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Shape:
    """What a decoder copies of its backbone's layers, under one set of names for all families.

    Args:
        words: length of a word vector; `hidden` but for ELECTRA, which projects the one to the other.
        positions: longest text in tokens.
        modern: ModernBERT's layers: pre-norm, a gated feed-forward part, rotary positions.
        head_activation: activation of the masked-language-model head.
        dropout, attention_dropout, attention_output_dropout: in the feed-forward part, of attention weights, and of
            what attention gives.
        attention_bias, up_bias, norm_bias, head_bias: whether these parts have biases.
    """

    hidden: int
    heads: int
    intermediate: int
    activation: str
    norm_eps: float
    dropout: float
    attention_dropout: float
    attention_output_dropout: float
    positions: int
    words: int
    head_activation: str
    modern: bool = False
    attention_bias: bool = True
    up_bias: bool = True
    norm_bias: bool = True
    head_bias: bool = True


class Embeddings(Protocol):
    """The embedding block of a backbone."""

    position_embeddings: nn.Embedding

    def __call__(self, *, input_ids: Tensor | None, inputs_embeds: Tensor | None, **more: Tensor | None) -> Tensor:
        """(1, rows) token ids or (1, rows, dim) word vectors -> (1, rows, dim)."""


class RelativePositions(Protocol):
    """The layers of MPNet, which share a table of relative positions."""

    def compute_position_bias(self, hidden: Tensor) -> Tensor:
        """(1, length, dim) states -> (1, heads, length, length) attention bias."""


class Backbone(Protocol):
    """What a `Family` reaches in its backbones; each has what is marked with its family or with none."""

    config: PreTrainedConfig
    embeddings: Embeddings
    encoder: RelativePositions  # MPNet
    final_norm: nn.Module  # ModernBERT

    def get_submodule(self, target: str) -> nn.Module:
        """The part at a path, such as `encoder.layer`."""

    def rotary_emb(self, hidden: Tensor, positions: Tensor, kind: str) -> Rotation:
        """Cosines and sines of (1, rows) positions (ModernBERT)."""


def _head(dense: str, norm: str, bias: str) -> dict[str, str]:
    """Names of the head's parts, by the name that `VocabularyHead` has for them."""
    return {
        "dense.weight": f"{dense}.weight",
        "dense.bias": f"{dense}.bias",
        "norm.weight": f"{norm}.weight",
        "norm.bias": f"{norm}.bias",
        "bias": bias,
    }


def _layer(attention: tuple[str, str, str, str, str], feed_forward: tuple[str, str, str]) -> dict[str, str]:
    """Names of a layer's parts, by the name that a decoder's `Block` has for them."""
    ours = ("attention.query", "attention.key", "attention.value", "attention.output", "attention_norm")
    return dict(zip((*ours, "up", "down", "output_norm"), (*attention, *feed_forward), strict=True))


_BERT_LAYER = _layer(
    (
        *("attention.self.query", "attention.self.key", "attention.self.value"),
        *("attention.output.dense", "attention.output.LayerNorm"),
    ),
    ("intermediate.dense", "output.dense", "output.LayerNorm"),
)

_BERT_SIZES = {
    **{"hidden": "hidden_size", "words": "hidden_size", "heads": "num_attention_heads"},
    **{"intermediate": "intermediate_size", "activation": "hidden_act", "head_activation": "hidden_act"},
    **{"dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"},
    "attention_output_dropout": "hidden_dropout_prob",
    "norm_eps": "layer_norm_eps",
}
_DISTILBERT_SIZES = {
    **{"hidden": "dim", "words": "dim", "heads": "n_heads", "intermediate": "hidden_dim"},
    **{"activation": "activation", "head_activation": "activation"},
    **{"dropout": "dropout", "attention_dropout": "attention_dropout"},
}
_MODERNBERT_SIZES = {
    **{"hidden": "hidden_size", "words": "hidden_size", "heads": "num_attention_heads"},
    **{"intermediate": "intermediate_size", "activation": "hidden_activation", "norm_eps": "norm_eps"},
    **{"dropout": "mlp_dropout", "attention_dropout": "attention_dropout", "head_activation": "classifier_activation"},
    **{"attention_bias": "attention_bias", "up_bias": "mlp_bias", "norm_bias": "norm_bias"},
    "attention_output_dropout": "attention_dropout",
    "head_bias": "classifier_bias",
}
_GELU_HEAD: dict[str, float | str] = {"head_activation": "gelu"}  # whatever the layers have


@dataclass(frozen=True)
class Family:
    """How to reach the parts of one family of backbones; as it stands, of BERT.

    Args:
        head: names of the head's parts in a masked-language-model checkpoint (`AutoModelForMaskedLM`) of the family.
        layer: names of a layer's parts, by the name that a decoder's `Block` has for them.
        path: where the layers are.
        sizes: names of the attributes of a configuration, by the name that `Shape` has for them.
        fixed: values of `Shape` that no attribute has.
        build: keyword arguments for `AutoModel.from_config` (no pooler: nothing here trains or reads one).
    """

    head: dict[str, str]
    layer: dict[str, str] = field(default_factory=lambda: _BERT_LAYER)
    path: str = "encoder.layer"
    sizes: dict[str, str] = field(default_factory=lambda: _BERT_SIZES)
    fixed: dict[str, float | str] = field(default_factory=dict)
    build: dict[str, bool] = field(default_factory=lambda: {"add_pooling_layer": False})

    def shape(self, config: PreTrainedConfig) -> Shape:
        """Sizes of the backbone's layers, which the decoders copy."""
        sizes = {ours: getattr(config, theirs) for ours, theirs in self.sizes.items()}
        positions = config.max_position_embeddings - self.first_position(config)
        return Shape(**{"positions": positions, **sizes, **self.fixed})

    def first_position(self, config: PreTrainedConfig) -> int:
        """Row of the position table that the first token of a text reads."""
        return 0

    def embed(
        self,
        backbone: Backbone,
        positions: Tensor,
        ids: Tensor | None = None,
        words: Tensor | None = None,
        types: Tensor | None = None,
    ) -> Tensor:
        """The embedding block (word + position + type, layer norm, dropout) of token ids or of given word vectors.

        Args:
            positions: (rows,) position of every token, from 0.
            ids: (rows,) token ids; or
            words: (rows, dim) vectors in place of word embeddings.
            types: (rows,) token types, for backbones that have them; 0 when absent.

        Returns:
            (rows, dim).
        """
        more = {"position_ids": self.table_rows(backbone.config, positions), "token_type_ids": types}
        given = {name: rows[None] for name, rows in more.items() if rows is not None}  # the block takes texts: one text
        read = {
            "input_ids": None if ids is None else ids[None],
            "inputs_embeds": None if words is None else words[None],
        }
        return self.project(backbone, backbone.embeddings(**read, **given)[0])

    def position_vectors(self, backbone: Backbone, positions: Tensor) -> Tensor | None:
        """(rows,) positions -> (rows, dim) of the position table; None without one."""
        rows = self.table_rows(backbone.config, positions)
        return None if rows is None else self.project(backbone, backbone.embeddings.position_embeddings(rows))

    def table_rows(self, config: PreTrainedConfig, positions: Tensor) -> Tensor | None:
        """(rows,) positions -> (rows,) rows of the position table; None without one."""
        return positions + self.first_position(config)

    def project(self, backbone: Backbone, vectors: Tensor) -> Tensor:
        """Embeddings (rows, any length) at the length of hidden states (rows, dim)."""
        return vectors

    def position_bias(self, backbone: Backbone, hidden: Tensor, length: int) -> Tensor | None:
        """What relative positions add to attention scores (1, heads, length, length); None where they do not."""
        return None

    def rotation(self, backbone: Backbone, hidden: Tensor, positions: Tensor, kind: str) -> Rotation | None:
        """Cosines and sines that rotate queries and keys (rows, dim / heads); None where nothing rotates."""
        return None

    def window(self, config: PreTrainedConfig, kind: str) -> int | None:
        """How far a layer of this kind of attention sees to either side, in tokens; None = everywhere."""
        return None

    def attention_kinds(self, config: PreTrainedConfig, layers: int, copied: bool) -> list[str]:
        """Kind of attention of each layer of a decoder, `copied` from the backbone's last ones or new."""
        return [FULL] * layers

    def layers(self, backbone: Backbone) -> list[nn.Module]:
        """The backbone's layers, the last one at the end."""
        return list(backbone.get_submodule(self.path).children())

    def rename_layer(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state dict of a backbone layer under the names of a decoder's `Block`."""
        ours = {theirs: name for name, theirs in self.layer.items()}
        parts = (name.rpartition(".") for name in state)
        return {f"{ours[part]}.{kind}": state[f"{part}.{kind}"] for part, _, kind in parts}

    def final_norm(self, backbone: Backbone) -> nn.Module | None:
        """The norm after the last layer of a pre-norm backbone."""
        return None


class RobertaFamily(Family):
    """RoBERTa and XLM-RoBERTa: positions are numbered from behind the padding token's id."""

    def first_position(self, config: PreTrainedConfig) -> int:
        """Row of the position table that the first token of a text reads."""
        return int(config.pad_token_id) + 1


class MPNetFamily(RobertaFamily):
    """MPNet: RoBERTa's positions, and a table of relative ones that all layers, the decoders' too, add to attention."""

    def first_position(self, config: PreTrainedConfig) -> int:
        """Row of the position table that the first token of a text reads, whatever the padding token's id."""
        return 2

    def position_bias(self, backbone: Backbone, hidden: Tensor, length: int) -> Tensor | None:
        """What relative positions add to attention scores (1, heads, length, length)."""
        return backbone.encoder.compute_position_bias(hidden.new_empty(1, length, 1))


class ElectraFamily(Family):
    """ELECTRA: word vectors may be shorter than hidden states, and the head goes back to their length."""

    def project(self, backbone: Backbone, vectors: Tensor) -> Tensor:
        """Embeddings at the length of hidden states, projected where they are shorter; (rows, dim)."""
        projection = getattr(backbone, "embeddings_project", None)
        projected: Tensor = vectors if projection is None else unfilled(projection(filled(vectors)), len(vectors))
        return projected


class ModernBertFamily(Family):
    """ModernBERT: rotary positions, so no position table; most layers see a window only.

    A decoder's new layers see everywhere; those copied from the backbone see what the copied layer sees.
    """

    def table_rows(self, config: PreTrainedConfig, positions: Tensor) -> Tensor | None:
        """None: positions are rotations of queries and keys."""
        return None

    def rotation(self, backbone: Backbone, hidden: Tensor, positions: Tensor, kind: str) -> Rotation | None:
        """Cosines and sines that rotate queries and keys (rows, dim / heads) of this kind of attention."""
        cosines, sines = backbone.rotary_emb(hidden[None], positions[None], kind)
        return cosines[0], sines[0]

    def window(self, config: PreTrainedConfig, kind: str) -> int | None:
        """How far a layer of this kind of attention sees to either side, in tokens; None = everywhere."""
        return int(config.sliding_window) if kind == SLIDING else None

    def attention_kinds(self, config: PreTrainedConfig, layers: int, copied: bool) -> list[str]:
        """Kind of attention of each layer of a decoder, `copied` from the backbone's last ones or new."""
        return list(config.layer_types[-layers:]) if copied else [FULL] * layers

    def rename_layer(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state dict of a backbone layer, its joint projection taken apart, under the names of a `Block`."""
        state = dict(state)
        for kind in ("weight", "bias"):
            joint = state.pop(f"attn.Wqkv.{kind}", None)
            for name, part in zip("qkv", joint.chunk(3) if joint is not None else (), strict=False):
                state[f"attn.{name}.{kind}"] = part
        return super().rename_layer(state)

    def final_norm(self, backbone: Backbone) -> nn.Module | None:
        """The norm after the last layer."""
        return backbone.final_norm


_ROBERTA = RobertaFamily(head=_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"), fixed=_GELU_HEAD)

FAMILIES: dict[str, Family] = {
    "bert": Family(
        head=_head("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias")
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "electra": ElectraFamily(
        head=_head("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"),
        sizes=_BERT_SIZES | {"words": "embedding_size"},
        fixed=_GELU_HEAD,
        build={},
    ),
    "distilbert": Family(
        head=_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        layer=_layer(
            ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm"),
            ("ffn.lin1", "ffn.lin2", "output_layer_norm"),
        ),
        path="transformer.layer",
        sizes=_DISTILBERT_SIZES,
        fixed={"norm_eps": 1e-12, "attention_output_dropout": 0.0},
        build={},
    ),
    "mpnet": MPNetFamily(
        head=_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        layer=_layer(
            ("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o", "attention.LayerNorm"),
            ("intermediate.dense", "output.dense", "output.LayerNorm"),
        ),
        fixed=_GELU_HEAD,
    ),
    "modernbert": ModernBertFamily(
        head=_head("head.dense", "head.norm", "decoder.bias"),
        layer=_layer(("attn.q", "attn.k", "attn.v", "attn.Wo", "attn_norm"), ("mlp.Wi", "mlp.Wo", "mlp_norm")),
        path="layers",
        sizes=_MODERNBERT_SIZES,
        fixed={"modern": True},
        build={},
    ),
}


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


def has_token_types(config: PreTrainedConfig) -> bool:
    """Whether an encoder tells the second part of a text from the first by token types."""
    return int(getattr(config, "type_vocab_size", 0)) > 1


def same_vocabulary(config: PreTrainedConfig, backbone: nn.Module) -> bool:
    """Whether the word matrix of `backbone` has as many rows as its configuration says."""
    words = backbone.get_input_embeddings().weight  # type: ignore[operator]
    return isinstance(words, torch.Tensor) and words.shape[0] == config.vocab_size


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Silence the report on weights that a load left out or made up: who loads says what matters of it."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
