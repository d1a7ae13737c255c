"""hf_dense: retrieval-oriented pre-training of dense encoders.

Importing the package registers its models with transformers' Auto classes.
"""

import atexit

from hf_dense.errors import InputError
from hf_dense.methods import METHODS, get_method, register
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig, Decoder, Encoder, View
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining, BottleneckModel, PreTrainingOutput
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
from hf_dense.storage.process_group import leave_process_group
from hf_dense.version import __version__

__all__ = [
    "METHODS",
    "BottleneckConfig",
    "BottleneckForPreTraining",
    "BottleneckModel",
    "CoCondenserConfig",
    "CoCondenserForPreTraining",
    "CoCondenserModel",
    "CoTMAEConfig",
    "CoTMAEForPreTraining",
    "CoTMAEModel",
    "CondenserConfig",
    "CondenserForPreTraining",
    "CondenserModel",
    "Decoder",
    "DupMAEConfig",
    "DupMAEForPreTraining",
    "DupMAEModel",
    "Encoder",
    "InputError",
    "MASTERConfig",
    "MASTERForPreTraining",
    "MASTERModel",
    "PreTrainingOutput",
    "QueryCoCondenserConfig",
    "QueryCoCondenserForPreTraining",
    "QueryCoCondenserModel",
    "QueryCoTMAEConfig",
    "QueryCoTMAEForPreTraining",
    "QueryCoTMAEModel",
    "RetroMAEConfig",
    "RetroMAEForPreTraining",
    "RetroMAEModel",
    "SEEDConfig",
    "SEEDForPreTraining",
    "SEEDModel",
    "SimLMConfig",
    "SimLMForPreTraining",
    "SimLMModel",
    "View",
    "__version__",
    "get_method",
]

register()
atexit.register(leave_process_group)
