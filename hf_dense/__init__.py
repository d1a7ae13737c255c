"""hf_dense: retrieval-oriented pre-training of dense encoders.

Importing the package registers its models with transformers' Auto classes, as soon as these are loaded. Everything else
is loaded when it is first used.
"""

from importlib import import_module
from typing import Any

from hf_dense.methods import KINDS, METHODS, register_when_needed

_MODULES = {  # where every public name is; it is loaded from there when it is first used
    "BottleneckConfig": "modeling.configuration_bottleneck",
    "BottleneckForPreTraining": "modeling.modeling_bottleneck",
    "BottleneckModel": "modeling.modeling_bottleneck",
    "Decoder": "modeling.bottleneck_declaration",
    "Encoder": "modeling.bottleneck_declaration",
    "InputError": "errors",
    "METHODS": "methods",
    "PreTrainingOutput": "modeling.modeling_bottleneck",
    "View": "modeling.bottleneck_declaration",
    "__version__": "version",
    "get_method": "methods",
} | {method.prefix + kind: f"modeling.{method.module}" for method in METHODS.values() for kind in KINDS}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """A name of `_MODULES`, from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    """The public names."""
    return __all__


register_when_needed()
