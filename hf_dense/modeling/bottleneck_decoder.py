"""Weak Transformer decoders for bottlenecked masked auto-encoders: one layer serves them all."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .bottleneck_attention import rotate
from .bottleneck_backbones import FULL, Shape
from .bottleneck_declaration import Decoder
from .bottleneck_layout import LayerMask, Rows, take_rows
from .bottleneck_precision import filled, unfilled

Masks = Callable[[str, Rows | None], LayerMask]  # by kind of attention, and the rows that are its queries


class ResidualLinear(nn.Linear):
    """A linear map whose output joins the residual stream; new weights are `scale` times as wide as others."""

    def __init__(self, inputs: int, outputs: int, bias: bool, scale: float) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.scale = scale


class Attention(nn.Module):
    """Multi-head attention from a stream to a memory, of flat rows."""

    def __init__(self, shape: Shape, scale: float = 1.0) -> None:
        super().__init__()
        self.heads = shape.heads
        self.dropout = shape.attention_dropout
        self.query = nn.Linear(shape.hidden, shape.hidden, bias=shape.attention_bias)
        self.key = nn.Linear(shape.hidden, shape.hidden, bias=shape.attention_bias)
        self.value = nn.Linear(shape.hidden, shape.hidden, bias=shape.attention_bias)
        self.output = ResidualLinear(shape.hidden, shape.hidden, shape.attention_bias, scale)

    def forward(self, stream: Tensor, memory: Tensor, mask: LayerMask) -> Tensor:
        """(queries, dim) stream and (keys, dim) memory -> (queries, dim)."""
        query, key, value = (
            projected.unflatten(-1, (self.heads, -1))  # (rows, heads, dim / heads)
            for projected in (self.query(stream), self.key(memory), self.value(memory))
        )
        if mask.rotation is not None:
            of_queries, of_keys = mask.rotation
            query, key = rotate(query, *of_queries), rotate(key, *of_keys)
        mixed = mask.attend(query, key, value, self.dropout if self.training else 0.0)
        output: Tensor = self.output(mixed.flatten(-2))
        return output


class BottleneckEntry(nn.Module):
    """Cross-attention to the bottleneck alone.

    A softmax over one key is 1, so this is an affine map of the bottleneck, added at every position; query and key
    projections would never get a gradient and are left out. Source: SEED-Encoder's released decoder layer.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.value = nn.Linear(shape.hidden, shape.hidden)
        self.output = nn.Linear(shape.hidden, shape.hidden)

    def forward(self, bottleneck: Tensor) -> Tensor:
        """(batch, dim) bottlenecks -> (batch, dim)."""
        output: Tensor = self.output(self.value(bottleneck))
        return output


class Block(GradientCheckpointingLayer):
    """A Transformer layer whose residual stream may differ from what it attends to.

    With `stream is memory` and `norm="backbone"` this is the backbone's own layer.
    """

    def __init__(self, shape: Shape, decoder: Decoder) -> None:
        super().__init__()
        self.pre = is_pre_norm(shape, decoder)
        self.gated = shape.modern
        scale = (2 * decoder.layers) ** -0.5 if decoder.norm == "gpt2" else 1.0
        self.attention = Attention(shape, scale)
        self.attention_norm = nn.LayerNorm(shape.hidden, eps=shape.norm_eps, bias=shape.norm_bias)
        self.entry = BottleneckEntry(shape) if decoder.entry == "cross_attention" else None
        self.up = nn.Linear(shape.hidden, shape.intermediate * (2 if self.gated else 1), bias=shape.up_bias)
        self.activation = ACT2FN[shape.activation]
        self.down = ResidualLinear(shape.intermediate, shape.hidden, shape.up_bias, scale)
        self.output_norm = nn.LayerNorm(shape.hidden, eps=shape.norm_eps, bias=shape.norm_bias)
        self.attention_dropout = nn.Dropout(shape.attention_output_dropout)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, stream: Tensor, memory: Tensor, mask: LayerMask, bottleneck: Tensor | None = None) -> Tensor:
        """One layer.

        Args:
            stream: (queries, dim) residual stream, from which queries come.
            memory: (keys, dim) what keys and values come from.
            mask: what each query may look at.
            bottleneck: (batch, dim) of the texts (read by cross-attention entries).

        Returns:
            (queries, dim).
        """
        if self.pre:
            queries = self.attention_norm(stream)
            keys = queries if memory is stream else self.attention_norm(memory)
            stream = stream + self.attention_dropout(self.attention(queries, keys, mask))
            if self.entry is not None:
                stream = stream + self.dropout(filled(self.entry(bottleneck).index_select(0, mask.text)))
            stream = stream + self.expand(self.output_norm(stream))
            return stream
        stream = self.attention_norm(stream + self.attention_dropout(self.attention(stream, memory, mask)))
        output: Tensor = self.output_norm(stream + self.expand(stream))
        return output

    def expand(self, hidden: Tensor) -> Tensor:
        """The feed-forward part, with its dropout."""
        wide = self.up(hidden)
        if self.gated:
            value, gate = wide.chunk(2, dim=-1)
            gated: Tensor = self.down(self.dropout(self.activation(value) * gate))
            return gated
        output: Tensor = self.dropout(self.down(self.activation(wide)))
        return output


def is_pre_norm(shape: Shape, decoder: Decoder) -> bool:
    """Whether a decoder normalises what its layers read, and not what they give, and so once more at its end."""
    return shape.modern or decoder.norm != "backbone"


class OwnEmbeddings(nn.Module):
    """The shared word vectors with positions and layer norm of the decoder's own (SEED-Encoder).

    Where the backbone's positions are rotary, so are the decoder's, and there is no table of them here.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.positions = None if shape.modern else nn.Embedding(shape.positions, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=shape.norm_eps, bias=shape.norm_bias)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, words: Tensor, positions: Tensor) -> Tensor:
        """(rows, dim) word vectors, (rows,) positions -> (rows, dim)."""
        placed = words if self.positions is None else words + self.positions(positions)
        output: Tensor = self.dropout(self.norm(placed))
        return output


class DecoderStack(nn.Module):
    """The layers of one decoder, with its own embeddings and final norm where it has them.

    `kinds` names the kind of attention of each layer (see `Family.attention_kinds`).
    """

    def __init__(self, shape: Shape, decoder: Decoder, kinds: list[str] | None = None) -> None:
        super().__init__()
        self.kinds = kinds or [FULL] * decoder.layers
        self.embeddings = OwnEmbeddings(shape) if decoder.inputs == "own_embeddings" else None
        self.layers = nn.ModuleList(Block(shape, decoder) for _ in range(decoder.layers))
        ends = is_pre_norm(shape, decoder)
        self.norm = nn.LayerNorm(shape.hidden, eps=shape.norm_eps, bias=shape.norm_bias) if ends else None
        self.input_dropout = nn.Dropout(shape.dropout if decoder.norm == "gpt2" else 0.0)

    def forward(
        self, stream: Tensor, memory: Tensor, masks: Masks, bottleneck: Tensor, read: Rows | None = None
    ) -> Tensor:
        """All layers, the last one at the rows that are read.

        Args:
            stream: (rows, dim) what the first layer's queries come from.
            memory: (rows, dim) what keys and values come from; where it is `stream`, each layer attends to its input.
            masks: what a layer sees.
            bottleneck: (batch, dim).
            read: of the last layer; all when absent.

        Returns:
            (read rows, dim).
        """
        same, count = memory is stream, len(stream if read is None else read.at)
        stream, memory = filled(self.input_dropout(stream)), memory if same else filled(memory)
        for at, (layer, kind) in enumerate(zip(self.layers, self.kinds, strict=True), start=1):
            rows = read if at == len(self.layers) else None
            queries = stream if rows is None else filled(take_rows(stream, rows.at))
            stream = layer(queries, stream if same else memory, masks(kind, rows), bottleneck)
        output: Tensor = stream if self.norm is None else self.norm(stream)
        return unfilled(output, count)


class VocabularyHead(nn.Module):
    """The masked-language-model head up to the vocabulary projection: dense, activation, layer norm.

    The projection itself is the word matrix, which belongs to the backbone, and `bias`.
    """

    def __init__(self, shape: Shape, vocabulary: int) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.hidden, shape.words, bias=shape.head_bias)
        self.activation = ACT2FN[shape.head_activation]
        self.norm = nn.LayerNorm(shape.words, eps=shape.norm_eps, bias=shape.norm_bias)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, hidden: Tensor) -> Tensor:
        """(n, dim) states -> (n, dim) features, of which the scores are `features @ words.T + bias`."""
        features: Tensor = self.norm(self.activation(self.dense(filled(hidden))))
        return unfilled(features, len(hidden))
