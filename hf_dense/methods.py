"""The methods by name, and their registration with the Auto classes."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import AutoConfig, AutoModel, AutoModelForPreTraining

from hf_dense.errors import InputError
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining, BottleneckModel
from hf_dense.modeling.modeling_condenser import (
    CoCondenserConfig,
    CoCondenserForPreTraining,
    CoCondenserModel,
    CondenserConfig,
    CondenserForPreTraining,
    CondenserModel,
)
from hf_dense.modeling.modeling_cotmae import CoTMAEConfig, CoTMAEForPreTraining, CoTMAEModel
from hf_dense.modeling.modeling_dupmae import DupMAEConfig, DupMAEForPreTraining, DupMAEModel
from hf_dense.modeling.modeling_master import MASTERConfig, MASTERForPreTraining, MASTERModel
from hf_dense.modeling.modeling_query_as_context import (
    QueryCoCondenserConfig,
    QueryCoCondenserForPreTraining,
    QueryCoCondenserModel,
    QueryCoTMAEConfig,
    QueryCoTMAEForPreTraining,
    QueryCoTMAEModel,
)
from hf_dense.modeling.modeling_retromae import RetroMAEConfig, RetroMAEForPreTraining, RetroMAEModel
from hf_dense.modeling.modeling_seed import SEEDConfig, SEEDForPreTraining, SEEDModel
from hf_dense.modeling.modeling_simlm import SimLMConfig, SimLMForPreTraining, SimLMModel


@dataclass(frozen=True)
class Method:
    """The classes of one method."""

    config: type[BottleneckConfig]
    encoder: type[BottleneckModel]
    pretraining: type[BottleneckForPreTraining]


METHODS: dict[str, Method] = {
    method.config.model_type: method
    for method in (
        Method(CondenserConfig, CondenserModel, CondenserForPreTraining),
        Method(CoCondenserConfig, CoCondenserModel, CoCondenserForPreTraining),
        Method(CoTMAEConfig, CoTMAEModel, CoTMAEForPreTraining),
        Method(DupMAEConfig, DupMAEModel, DupMAEForPreTraining),
        Method(MASTERConfig, MASTERModel, MASTERForPreTraining),
        Method(QueryCoCondenserConfig, QueryCoCondenserModel, QueryCoCondenserForPreTraining),
        Method(QueryCoTMAEConfig, QueryCoTMAEModel, QueryCoTMAEForPreTraining),
        Method(RetroMAEConfig, RetroMAEModel, RetroMAEForPreTraining),
        Method(SEEDConfig, SEEDModel, SEEDForPreTraining),
        Method(SimLMConfig, SimLMModel, SimLMForPreTraining),
    )
}


def get_method(name: str) -> Method:
    """The classes of the method called `name`.

    Raises:
        InputError: there is no such method; the message lists those that exist.
    """
    if name not in METHODS:
        raise InputError(f"Unknown method {name!r}; choose one of: {', '.join(METHODS)}.")
    return METHODS[name]


def register() -> None:
    """Let `AutoConfig`, `AutoModel` and `AutoModelForPreTraining` find the methods, and their code travel on saving."""
    for name, method in METHODS.items():
        AutoConfig.register(name, method.config, exist_ok=True)
        AutoModel.register(method.config, method.encoder, exist_ok=True)
        AutoModelForPreTraining.register(method.config, method.pretraining, exist_ok=True)
        method.config.register_for_auto_class()  # type: ignore[no-untyped-call]
        method.encoder.register_for_auto_class("AutoModel")  # type: ignore[no-untyped-call]
        method.pretraining.register_for_auto_class("AutoModelForPreTraining")  # type: ignore[no-untyped-call]
