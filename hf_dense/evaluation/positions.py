"""How much an autoregressive decoder leans on the bottleneck, position by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn.functional import cosine_similarity
from transformers import AutoModelForPreTraining

from hf_dense.data.hub_names import model_folder
from hf_dense.errors import InputError
from hf_dense.hub.loading import load_config, load_tokenizer, plain_loading
from hf_dense.methods import METHODS
from hf_dense.modeling.bottleneck_backbones import family_of
from hf_dense.modeling.bottleneck_layout import FlatRows
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining

_BATCH: Final = 32


@dataclass(frozen=True)
class PositionSimilarity:
    """How near the states at one position are to the bottleneck.

    Attributes:
        position: in the text, from 0, which is [CLS].
        decoder: mean cosine similarity of the bottleneck and the decoder's last state.
        encoder: of the bottleneck and the encoder's last state; at position 0 they are one, unless it is a mean.
        texts: how many reach so far.
    """

    position: int
    decoder: float
    encoder: float
    texts: int


@torch.no_grad()
def similarity_by_position(
    checkpoint: str | Path, texts: Sequence[str], max_length: int = 128
) -> list[PositionSimilarity]:
    """Compare the bottleneck with the states of a decoder that reads the same text from left to right.

    Both read the whole text, nothing hidden. The closing [SEP], after which nothing is predicted, is left out.

    Args:
        checkpoint: directory or Hub id of a pre-training checkpoint, its tokenizer beside it.
        texts: what is read.
        max_length: longest text in tokens, special tokens included; longer ones are cut.

    Returns:
        One row for each position that a text reaches.

    Raises:
        InputError: no text, no pre-training checkpoint or one without such a decoder, or a length that it cannot take.

    Source: SEED-Encoder, figure 4.
    """
    if not texts:
        raise InputError("There is no text to read; give at least one.")
    model = load_with_decoders(checkpoint)
    name = _left_to_right(model, checkpoint)
    encoder = model.decoder_specs[name].encoder
    longest = family_of(model.config.backbone).shape(model.config.backbone).positions
    if not 3 <= max_length <= longest:
        raise InputError(f"max_length is {max_length}; {checkpoint} takes texts of 3 to {longest} tokens.")
    tokenizer = load_tokenizer(checkpoint)
    sums, counts = torch.zeros(2, max_length, dtype=torch.float64), torch.zeros(max_length, dtype=torch.int64)
    for start in range(0, len(texts), _BATCH):
        batch = list(texts[start : start + _BATCH])
        read = tokenizer(batch, truncation=True, max_length=max_length, padding=True, return_tensors="pt")
        view = {key: read[key].to(model.device) for key in ("input_ids", "attention_mask")}
        layout = FlatRows(view)
        encoded = model.encode(dict.fromkeys(model.encoder_specs, view), every=True)[encoder]
        counted = layout.inner() | (layout.positions == 0)
        at = layout.positions[counted].cpu()
        bottlenecks = encoded.bottleneck.index_select(0, layout.text).double()
        hidden = model.decode(name, layout, encoded.bottleneck, encoded.inner), encoded.states(layout)
        for row, states in enumerate(hidden):
            similarity = cosine_similarity(states.double(), bottlenecks, dim=-1)[counted]
            sums[row].index_add_(0, at, similarity.cpu())
        counts += torch.bincount(at, minlength=max_length)
    return [
        PositionSimilarity(at, float(sums[0, at] / count), float(sums[1, at] / count), count)
        for at, count in enumerate(counts.tolist())
        if count
    ]


def load_with_decoders(checkpoint: str | Path) -> BottleneckForPreTraining:
    """The whole model of a pre-training.

    Raises:
        InputError: no such checkpoint, or one without its decoders.
    """
    config = load_config(checkpoint)
    if config is None:
        raise InputError(f"There is no pre-training checkpoint {checkpoint}.")
    if config.model_type not in METHODS:
        raise InputError(f"{checkpoint} is no pre-training checkpoint but a {config.model_type!r}: it has no decoder.")
    with plain_loading("a pre-training checkpoint", checkpoint):
        loaded: Any = AutoModelForPreTraining.from_pretrained(
            model_folder(checkpoint), trust_remote_code=False, output_loading_info=True
        )
    if any(key.startswith("decoders.") for key in loaded[1]["missing_keys"]):
        raise InputError(f"{checkpoint} holds the encoder alone; give the checkpoint of the pre-training itself.")
    model: BottleneckForPreTraining = loaded[0].to("cuda" if torch.cuda.is_available() else "cpu")
    return model


def _left_to_right(model: BottleneckForPreTraining, checkpoint: str | Path) -> str:
    """The first decoder that reads its encoder's text and sees at each position what came before."""
    views, scored = model.config.views, model.config.scored
    for name, spec in model.decoder_specs.items():
        if spec.attention_kind == "causal" and views[scored[name]].sources == views[spec.encoder].sources:
            return name
    raise InputError(
        f"No decoder of {checkpoint} ({model.config.model_type}) reads its encoder's text from left to right, so its "
        "positions say nothing here; seed_encoder has one that does."
    )
