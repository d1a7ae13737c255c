"""The pre-training methods by name, and their registration with transformers' Auto classes.

A method is a row of `METHODS`; the names of its classes, what `hf_dense` exports and what `AutoModel` knows follow from
it. Nothing heavy is imported until a class is asked for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from threading import local
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from hf_dense.errors import InputError

if TYPE_CHECKING:
    from hf_dense.modeling.configuration_bottleneck import BottleneckConfig
    from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining, BottleneckModel

KINDS = ("Config", "Model", "ForPreTraining")


class Method(NamedTuple):
    """Where the classes of one method are.

    Args:
        module: module of `hf_dense.modeling`.
        prefix: what the names of its classes begin with: `RetroMAE` of `RetroMAEConfig`.
    """

    module: str
    prefix: str

    @property
    def config(self) -> type[BottleneckConfig]:
        """The configuration."""
        return self._load("Config")  # type: ignore[return-value]

    @property
    def encoder(self) -> type[BottleneckModel]:
        """The encoder alone, which `AutoModel` gives."""
        return self._load("Model")  # type: ignore[return-value]

    @property
    def pretraining(self) -> type[BottleneckForPreTraining]:
        """Encoder, head and decoders, which `AutoModelForPreTraining` gives."""
        return self._load("ForPreTraining")  # type: ignore[return-value]

    def _load(self, kind: str) -> object:
        place, name = f"hf_dense.modeling.{self.module}", self.prefix + kind
        if find_spec(place) is None or not hasattr(module := import_module(place), name):
            # no error of Python's own, as transformers, which is being imported, would say another in its place
            raise InputError(f"There is no {name} in {place}, where its row of METHODS has it; correct one of them.")
        return getattr(module, name)


METHODS = {  # by the `model_type` of the configuration
    "condenser": Method("modeling_condenser", "Condenser"),
    "cocondenser": Method("modeling_condenser", "CoCondenser"),
    "cotmae": Method("modeling_cotmae", "CoTMAE"),
    "dupmae": Method("modeling_dupmae", "DupMAE"),
    "master": Method("modeling_master", "MASTER"),
    "query_cocondenser": Method("modeling_query_as_context", "QueryCoCondenser"),
    "query_cotmae": Method("modeling_query_as_context", "QueryCoTMAE"),
    "retromae": Method("modeling_retromae", "RetroMAE"),
    "seed_encoder": Method("modeling_seed", "SEED"),
    "simlm": Method("modeling_simlm", "SimLM"),
}


def get_method(name: str) -> Method:
    """The classes of the method called `name`.

    Raises:
        InputError: there is no such method; the message lists those that exist.
    """
    if name not in METHODS:
        plain = re.sub(r"[^a-z]", "", str(name).lower())  # RetroMAE, CoT-MAE
        like = [known for known in METHODS if known.replace("_", "") == plain]
        said = f"did you mean {like[0]}?" if like else f"choose one of: {', '.join(METHODS)}."
        raise InputError(f"Unknown method {name!r}; {said}")
    return METHODS[name]


def register() -> None:
    """Let `AutoConfig`, `AutoModel` and `AutoModelForPreTraining` find the methods, and their code travel on saving."""
    from transformers import AutoConfig, AutoModel, AutoModelForPreTraining

    for name, method in METHODS.items():
        AutoConfig.register(name, method.config, exist_ok=True)
        AutoModel.register(method.config, method.encoder, exist_ok=True)
        AutoModelForPreTraining.register(method.config, method.pretraining, exist_ok=True)
        method.config.register_for_auto_class()  # type: ignore[no-untyped-call]
        method.encoder.register_for_auto_class("AutoModel")  # type: ignore[no-untyped-call]
        method.pretraining.register_for_auto_class("AutoModelForPreTraining")  # type: ignore[no-untyped-call]


def register_when_needed() -> None:
    """Register the methods now if transformers' Auto classes are loaded, else as soon as something loads them."""
    if _AUTO in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _AfterTransformers())


_AUTO = "transformers.models.auto.configuration_auto"  # which every Auto class imports


class _AfterTransformers(local):
    """Import hook that registers the methods when the Auto classes have been imported, and then removes itself.

    The Auto classes are imported in the middle of other modules of transformers, which the methods need whole. So the
    hook counts the modules of transformers that its thread is executing, and acts when the outermost is done.
    """

    def __init__(self) -> None:
        self.running = 0

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The specification that the other finders have for a module of transformers, with its execution watched."""
        if name.partition(".")[0] != "transformers":
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = lambda module: self._execute(loader, module)
        return spec

    def _execute(self, loader: Any, module: ModuleType) -> None:
        del loader.exec_module  # what is left is the method of the loader's class
        self.running += 1
        try:
            loader.exec_module(module)
        finally:
            self.running -= 1
        if not self.running and _AUTO in sys.modules and self in sys.meta_path:
            sys.meta_path.remove(self)
            register()
