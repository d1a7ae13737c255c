"""Starting from a checkpoint: a published encoder, a ready embedder, the same method's run, or another method's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from transformers import AutoConfig, AutoModelForPreTraining
from transformers.utils import logging

from hf_dense.data.hub_names import model_folder
from hf_dense.errors import InputError
from hf_dense.hub.loading import check_weights, is_retriever, load_config
from hf_dense.hub.retriever_settings import embedder_settings
from hf_dense.methods import METHODS, Method
from hf_dense.modeling.bottleneck_backbones import family_of
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining

logger = logging.get_logger("transformers")


def start_from(method: Method, name_or_path: str, changes: dict[str, Any]) -> BottleneckForPreTraining:
    """A model of `method` that starts from a checkpoint.

    Args:
        method: the method to train.
        name_or_path: a checkpoint of the method (decoders included: training continues), of another method (its encoder
            and head are taken), or any supported encoder.
        changes: changes to the method's `encoders`, `decoders` and `bottleneck`; where they do not name the last, it is
            that of a checkpoint of any method, and the pooling of a ready embedder.

    Returns:
        The model.

    Raises:
        InputError: the checkpoint is of this method but its decoders do not fit the configuration; or it is an embedder
            that would lose a part of itself, or pools where no bottleneck can be.
        ValueError: the encoder's family is not supported.
        OSError: there is no such checkpoint.
    """
    name_or_path = model_folder(name_or_path)
    found = AutoConfig.from_pretrained(name_or_path, trust_remote_code=False)
    if found.model_type == method.config.model_type:
        return _continue(method, name_or_path, found, changes)
    if found.model_type in METHODS:
        other = AutoModelForPreTraining.from_pretrained(name_or_path, trust_remote_code=False)
        changes = {"bottleneck": found.bottleneck, "retriever": found.retriever, **changes}
        model = method.pretraining(method.config(backbone_config=found.backbone_config, **changes))
        model.encoder.load_state_dict(other.encoder.state_dict())
        model.head.load_state_dict(other.head.state_dict())
        new = model.start_decoders()
        if new:
            logger.warning(f"Newly initialised, not taken from {name_or_path}: {', '.join(new)}.")
        return model
    family_of(found)  # before weights are missed that it does not have
    check_weights(name_or_path)
    if is_retriever(name_or_path):
        changes = _of_embedder(name_or_path, changes)
    return method.pretraining.from_backbone(name_or_path, **changes)


def check_kind(name: str) -> None:
    """Pass when a checkpoint is of a kind that pre-training can start from, as far as its configuration says.

    It is asked before the tokenizer is looked at, whose lack of [MASK] would be named as what is wrong.

    Raises:
        InputError: its encoder's family is not supported, or a retriever has no encoder where one is looked for.
    """
    found = load_config(name)
    if found is None and is_retriever(name):
        raise InputError(
            f"{name} has no config.json of an encoder beside its modules.json, and pre-training starts from one; "
            "hf-dense export writes a retriever whose encoder lies in a folder of its own anew, with the encoder there."
        )
    if found is not None and found.model_type not in METHODS:
        try:
            family_of(found)
        except ValueError as error:
            raise InputError(str(error)) from error


def _of_embedder(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The changes with all settings of an embedder, which stay its own, and its pooling as the bottleneck.

    Where they name another bottleneck, the retriever that comes of it is pooled as the embedder was all the same.
    """
    own = embedder_settings(name)
    if "bottleneck" not in changes and own.pooling not in ("cls", "mean"):
        raise InputError(f"{name} pools by {own.pooling!r}, where no bottleneck can be; say --bottleneck cls or mean.")
    return {"bottleneck": own.pooling, "retriever": asdict(own), **changes}


def _continue(method: Method, name: str, found: BottleneckConfig, changes: dict[str, Any]) -> BottleneckForPreTraining:
    """The checkpoint `name` of this very method, decoders included."""
    config = method.config.from_dict(found.to_dict(), **changes)
    for decoder, spec in config.decoder_specs.items():
        if decoder in found.decoder_specs and spec.init != found.decoder_specs[decoder].init:
            raise InputError(
                f"init={spec.init!r} of {decoder!r} would have no effect: it goes on with its weights in {name}; "
                "leave it out."
            )
    loaded: Any = method.pretraining.from_pretrained(
        name, config=config, output_loading_info=True, ignore_mismatched_sizes=True
    )
    model: BottleneckForPreTraining = loaded[0]
    misfits = sorted(str(key) for kind in ("missing", "unexpected", "mismatched") for key in loaded[1][f"{kind}_keys"])
    if misfits:
        raise InputError(f"The decoders in {name} do not fit the configuration: {misfits[0]} differs.")
    return model
