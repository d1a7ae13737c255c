"""What a generator, a masked language model, predicts at chosen positions: drawing tokens from it, and its own loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from .bottleneck_backbones import FAMILIES, Backbone, has_token_types
from .bottleneck_encoder import LayerRunner, token_types
from .bottleneck_layout import FlatRows, Places, take_rows
from .bottleneck_losses import token_loss
from .bottleneck_plan import Drawn
from .bottleneck_precision import filled, single_dtype, unfilled

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

    def draw(self, uniform: Tensor) -> Tensor:
        """A token (n,) for each position, by a number (n,) in [0, 1); the same number draws the same token."""
        tokens = [uniform.new_empty(0, dtype=torch.long)]
        with torch.no_grad():
            for features, part in zip(self.features.split(_ROWS), uniform.split(_ROWS), strict=True):
                scores = features if self.words is None else F.linear(filled(features), self.words, self.bias)
                scores = unfilled(scores, len(part))
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


def runner_of(generator: PreTrainedModel) -> LayerRunner | None:
    """What runs a generator's layers; None where its family is not known here."""
    family = FAMILIES.get(generator.config.model_type)
    return None if family is None else LayerRunner(family, generator.config)


def predict(
    generator: PreTrainedModel, runner: LayerRunner | None, view: Mapping[str, Tensor], places: Places, drawn: Drawn
) -> Predictions:
    """What `generator` predicts where it draws, in the order of the view.

    Its head, and its last layer's queries, are of these positions alone; of a family that is not known here the parts
    cannot be told apart, so all positions are read.

    Args:
        generator: a masked language model, as `AutoModelForMaskedLM` builds it.
        runner: of its layers, from `runner_of`.
        view: `input_ids`, `attention_mask` and maybe `token_type_ids` (batch, length).
        places: of the view's tokens.
        drawn: where it draws.
    """
    if runner is None:
        keys = ("input_ids", "attention_mask", "token_type_ids")[: 3 if has_token_types(generator.config) else 2]
        scores = generator(**{key: view[key] for key in keys if key in view}).logits
        return Predictions(scores.flatten(0, 1).index_select(0, drawn.at))
    family = runner.family
    dense, norm = (
        generator.get_submodule(family.head[f"{part}.weight"].removesuffix(".weight")) for part in ("dense", "norm")
    )
    activation = ACT2FN[family.shape(generator.config).head_activation]
    layout = FlatRows(view, places)
    types = token_types(generator.config, view, layout)
    last, _ = runner.run(cast(Backbone, generator.base_model), layout, types, drawn.rows)
    states = take_rows(last, drawn.order)
    projection = generator.get_output_embeddings()
    assert isinstance(projection, nn.Linear)
    features = unfilled(norm(activation(dense(filled(states)))), len(states))
    return Predictions(features, projection.weight, projection.bias)
