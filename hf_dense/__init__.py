"""hf_dense: retrieval-oriented pre-training of dense encoders.

Importing the package registers its models with transformers' Auto classes, as soon as these are loaded. Everything else
is loaded when it is first used. The verbs of the command line are functions here, with the flags as keyword arguments:

    from hf_dense import Corpus, SearchIndex, adapt, evaluate, export, finetune, mine, pretrain, publish
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hf_dense.methods import KINDS, METHODS, register_when_needed

if TYPE_CHECKING:
    from hf_dense.api.outcomes import evaluate as evaluate
    from hf_dense.api.outcomes import export as export
    from hf_dense.api.outcomes import publish as publish
    from hf_dense.api.passages import Corpus as Corpus
    from hf_dense.api.passages import mine as mine
    from hf_dense.api.trainings import adapt as adapt
    from hf_dense.api.trainings import finetune as finetune
    from hf_dense.api.trainings import pretrain as pretrain
    from hf_dense.errors import InputError as InputError
    from hf_dense.search.index import SearchIndex as SearchIndex
    from hf_dense.version import __version__ as __version__

_MODULES = {  # where every public name is; it is loaded from there when it is first used
    "BottleneckConfig": "modeling.configuration_bottleneck",
    "BottleneckForPreTraining": "modeling.modeling_bottleneck",
    "BottleneckModel": "modeling.modeling_bottleneck",
    "Corpus": "api.passages",
    "Decoder": "modeling.bottleneck_declaration",
    "Encoder": "modeling.bottleneck_declaration",
    "InputError": "errors",
    "METHODS": "methods",
    "PreTrainingOutput": "modeling.modeling_bottleneck",
    "SearchIndex": "search.index",
    "View": "modeling.bottleneck_declaration",
    "__version__": "version",
    "adapt": "api.trainings",
    "evaluate": "api.outcomes",
    "export": "api.outcomes",
    "finetune": "api.trainings",
    "get_method": "methods",
    "mine": "api.passages",
    "pretrain": "api.trainings",
    "publish": "api.outcomes",
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
