"""The weak decoders: one Transformer layer serves them all."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .bottleneck_backbones import Shape
from .configuration_bottleneck import Decoder


class Attention(nn.Module):
    """Multi-head attention from a stream to a memory, through `scaled_dot_product_attention`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.dropout = shape.attention_dropout
        self.query = nn.Linear(shape.hidden, shape.hidden)
        self.key = nn.Linear(shape.hidden, shape.hidden)
        self.value = nn.Linear(shape.hidden, shape.hidden)
        self.output = nn.Linear(shape.hidden, shape.hidden)

    def forward(self, stream: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """(batch, length, dim) stream and memory, (batch, 1, length, length) bool mask -> (batch, length, dim)."""
        query, key, value = (
            projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (batch, heads, length, dim / heads)
            for projected in (self.query(stream), self.key(memory), self.value(memory))
        )
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(-2))
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
        """(batch, length, dim) bottleneck spread over positions -> (batch, length, dim)."""
        output: Tensor = self.output(self.value(bottleneck))
        return output


class Block(GradientCheckpointingLayer):
    """A Transformer layer whose residual stream may differ from what it attends to.

    With `stream is memory` and post-norm this is the backbone's own (BERT) layer.
    """

    def __init__(self, shape: Shape, decoder: Decoder) -> None:
        super().__init__()
        self.pre = decoder.norm == "pre"
        self.attention = Attention(shape)
        self.attention_norm = nn.LayerNorm(shape.hidden, eps=shape.norm_eps)
        self.entry = BottleneckEntry(shape) if decoder.entry == "cross_attention" else None
        self.up = nn.Linear(shape.hidden, shape.intermediate)
        self.activation = ACT2FN[shape.activation]
        self.down = nn.Linear(shape.intermediate, shape.hidden)
        self.output_norm = nn.LayerNorm(shape.hidden, eps=shape.norm_eps)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, stream: Tensor, memory: Tensor, mask: Tensor, bottleneck: Tensor) -> Tensor:
        """One layer.

        Args:
            stream: (batch, length, dim) residual stream, from which queries come.
            memory: (batch, length, dim) keys and values (pre-norm layers read the normalised stream instead).
            mask: (batch, 1, length, length) bool, True = may look.
            bottleneck: (batch, length, dim) bottleneck of the text at each position (read by cross-attention entries).

        Returns:
            (batch, length, dim).
        """
        if self.pre:
            seen = self.attention_norm(stream)
            stream = stream + self.dropout(self.attention(seen, seen, mask))
            if self.entry is not None:
                stream = stream + self.dropout(self.entry(bottleneck))
            stream = stream + self.dropout(self.expand(self.output_norm(stream)))
            return stream
        stream = self.attention_norm(stream + self.dropout(self.attention(stream, memory, mask)))
        output: Tensor = self.output_norm(stream + self.dropout(self.expand(stream)))
        return output

    def expand(self, hidden: Tensor) -> Tensor:
        """The feed-forward part."""
        output: Tensor = self.down(self.activation(self.up(hidden)))
        return output


class OwnEmbeddings(nn.Module):
    """The shared word vectors with positions and layer norm of the decoder's own (SEED-Encoder)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.positions = nn.Embedding(shape.positions, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=shape.norm_eps)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, words: Tensor, positions: Tensor) -> Tensor:
        """(batch, length, dim) word vectors, (1, length) positions -> (batch, length, dim)."""
        output: Tensor = self.dropout(self.norm(words + self.positions(positions)))
        return output


class DecoderStack(nn.Module):
    """The layers of one decoder, with its own embeddings and final norm where it has them."""

    def __init__(self, shape: Shape, decoder: Decoder) -> None:
        super().__init__()
        self.embeddings = OwnEmbeddings(shape) if decoder.inputs == "own_embeddings" else None
        self.layers = nn.ModuleList(Block(shape, decoder) for _ in range(decoder.layers))
        self.norm = nn.LayerNorm(shape.hidden, eps=shape.norm_eps) if decoder.norm == "pre" else None

    def forward(self, stream: Tensor, memory: Tensor, mask: Tensor, bottleneck: Tensor) -> Tensor:
        """(batch, length, dim) -> (batch, length, dim); with `memory is stream` each layer attends to its own input."""
        same = memory is stream
        for layer in self.layers:
            stream = layer(stream, stream if same else memory, mask, bottleneck)
        output: Tensor = stream if self.norm is None else self.norm(stream)
        return output


class VocabularyHead(nn.Module):
    """The masked-language-model head up to the vocabulary projection: dense, activation, layer norm.

    The projection itself is the word matrix, which belongs to the backbone, and `bias`.
    """

    def __init__(self, shape: Shape, vocabulary: int) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.hidden, shape.hidden)
        self.activation = ACT2FN[shape.activation]
        self.norm = nn.LayerNorm(shape.hidden, eps=shape.norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, hidden: Tensor) -> Tensor:
        """(n, dim) states -> (n, dim) features, of which the scores are `features @ words.T + bias`."""
        features: Tensor = self.norm(self.activation(self.dense(hidden)))
        return features
