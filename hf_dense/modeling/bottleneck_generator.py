"""What a generator, a masked language model, predicts at chosen positions: drawing tokens from it, and its own loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from .bottleneck_backbones import FAMILIES, has_token_types
from .bottleneck_losses import single_dtype, token_loss

_ROWS = 512  # positions whose scores over the whole vocabulary are held at once


@dataclass(frozen=True)
class Predictions:
    """Scores of all tokens at n positions, made when they are read: `features @ words.T + bias`.

    Args:
        features: (n, dim) what the vocabulary projection reads; the scores themselves, where `words` is None.
        words: (vocabulary, dim) matrix of the projection.
        bias: (vocabulary,) or None.
    """

    features: Tensor
    words: Tensor | None = None
    bias: Tensor | None = None

    @torch.no_grad()
    def draw(self, uniform: Tensor) -> Tensor:
        """A token (n,) for each position, by a number (n,) in [0, 1); the same number draws the same token."""
        tokens = [uniform.new_empty(0, dtype=torch.long)]
        for features, part in zip(self.features.split(_ROWS), uniform.split(_ROWS), strict=True):
            scores = features if self.words is None else F.linear(features, self.words, self.bias)
            cumulative = scores.softmax(dim=-1, dtype=single_dtype(scores.dtype)).cumsum(dim=-1)
            threshold = part.to(cumulative)[:, None] * cumulative[:, -1:]
            drawn = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1)
            tokens.append(drawn.clamp(max=scores.shape[-1] - 1))
        return torch.cat(tokens)

    def loss(self, targets: Tensor) -> Tensor:
        """Summed cross-entropy of the tokens `targets` (n,); a scalar, in float32 at least."""
        if self.words is not None:
            return token_loss(self.features, targets, self.words, self.bias)
        scores = self.features.to(single_dtype(self.features.dtype))
        return F.cross_entropy(scores, targets, reduction="sum")


def predict(generator: PreTrainedModel, view: Mapping[str, Tensor], chosen: Tensor) -> Predictions:
    """What `generator` predicts at the `chosen` positions (batch, length) of a view; its head reads no others.

    Of a family that is not known here the head cannot be told apart, so it reads all positions.

    Args:
        generator: a masked language model, as `AutoModelForMaskedLM` builds it.
        view: `input_ids`, `attention_mask` and maybe `token_type_ids` (batch, length).
    """
    keys = ("input_ids", "attention_mask", "token_type_ids")[: 3 if has_token_types(generator.config) else 2]
    read = {key: view[key] for key in keys if key in view}
    family = FAMILIES.get(generator.config.model_type)
    if family is None:
        return Predictions(generator(**read).logits[chosen])
    dense, norm = (
        generator.get_submodule(family.head[f"{part}.weight"].removesuffix(".weight")) for part in ("dense", "norm")
    )
    activation = ACT2FN[family.shape(generator.config).head_activation]
    states = generator.base_model(**read).last_hidden_state[chosen]
    projection = generator.get_output_embeddings()
    assert isinstance(projection, nn.Linear)
    return Predictions(norm(activation(dense(states))), projection.weight, projection.bias)
