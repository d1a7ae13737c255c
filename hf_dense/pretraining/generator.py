"""Giving SimLM the masked language model that fills in its masks."""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, PreTrainedModel
from transformers.models.auto import CONFIG_MAPPING

from hf_dense.data.hub_names import model_folder
from hf_dense.errors import InputError, as_sentence
from hf_dense.hub.loading import longest_text
from hf_dense.modeling.bottleneck_backbones import quiet_loading
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.modeling.modeling_simlm import SimLMForPreTraining


def add_generator(
    model: BottleneckForPreTraining, generator: str | dict[str, Any] | None, weight: float | None, max_length: int
) -> None:
    """Set a model's generator, where its method has one.

    Args:
        model: changed in place.
        generator: checkpoint of a masked language model (a directory, or a name of the Hub, perhaps at a revision), or
            a configuration to start one at random (`{"model_type": "electra", "hidden_size": 64, ...}`); None keeps
            the one a continued checkpoint came with.
        weight: weight of the generator's own loss; 0 leaves it as it is, None keeps that of a continued checkpoint.
        max_length: longest text in tokens.

    Raises:
        InputError: the method has no generator, or needs one; or the given one cannot be used, or takes shorter texts;
            or it has a weight, and fills nothing that it could be trained on.
    """
    if not isinstance(model, SimLMForPreTraining):
        if generator is not None or weight:
            raise InputError(f"{model.config.model_type} has no generator; only simlm has.")
        return
    if weight is not None:
        model.config.generator_weight = weight
    _check_weight(model)
    if generator is None and model.generator is None and not model.config.needs_generator:
        return
    if generator is None and model.generator is None:
        raise InputError(
            "simlm needs a generator that fills in masks: name a masked language model of the same tokenizer with "
            "--generator (the paper's is google/electra-base-generator), or give the configuration of a random one and "
            "a --generator_weight to train it."
        )
    with as_sentence(f"No generator can be loaded from {generator!r}"):
        chosen = model.generator if generator is None else _load(generator, model.config.vocab_size)
        assert chosen is not None
        model.set_generator(chosen)
    if (positions := longest_text(chosen.config)) < max_length:
        raise InputError(f"max_length is {max_length}; the generator takes texts of up to {positions:.0f} tokens.")


def _check_weight(model: SimLMForPreTraining) -> None:
    """Raise `InputError` for a weight of the generator's loss that is none, or where there is no such loss."""
    weight = model.config.generator_weight
    if not 0 <= weight < math.inf:
        raise InputError(f"generator_weight is {weight}; a loss weight is not negative.")
    if weight and not model.config.teaching:
        raise InputError(
            f"generator_weight is {weight}, but the generator is trained on what it fills in for an encoder, and fills "
            "in nothing for one here; set it to 0, or fill: generator in an encoder's view."
        )


def _load(generator: str | dict[str, Any], vocab_size: int) -> PreTrainedModel:
    model: PreTrainedModel
    if isinstance(generator, str):
        place, options = model_folder(generator), {"dtype": torch.float32, "output_loading_info": True}
        with quiet_loading():
            model, loaded = AutoModelForMaskedLM.from_pretrained(place, trust_remote_code=False, **options)
        if lacking := sorted(loaded["missing_keys"]):
            raise InputError(
                f"{generator} lacks weights of a masked language model, such as {lacking[0]}, and would fill in words "
                "at random; name one that has them, or a configuration, to be trained by a --generator_weight."
            )
        return model
    values = {"model_type": "electra", "vocab_size": vocab_size, **generator}
    kind = values.pop("model_type")
    if kind not in CONFIG_MAPPING:
        raise InputError(f"The generator has the model_type {kind!r}, which transformers does not know.")
    model = AutoModelForMaskedLM.from_config(CONFIG_MAPPING[kind](**values))
    return model
