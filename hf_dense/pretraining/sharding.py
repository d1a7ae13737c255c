"""Weights that are cut up over processes: which layers are put together one at a time, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from hf_dense.errors import InputError
from hf_dense.modeling.bottleneck_decoder import Block
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining

if TYPE_CHECKING:
    from transformers import Trainer


def choose_layers(
    trainer: Trainer, model: BottleneckForPreTraining, chunk: int | None = None, muon: bool = False
) -> None:
    """Have FSDP cut the model up by its layers, the backbone's and the decoders', where the run is cut up by layers.

    Args:
        trainer: with its accelerator; of another run than one with FSDP nothing is changed.
        model: that it will train.
        chunk: texts that are read at once, where batches are cut.
        muon: whether the optimiser is Muon.

    Raises:
        InputError: what would be cut up cannot be put together in time; see `check_sharding`.
    """
    check_sharding(trainer, chunk, muon)
    if not trainer.is_fsdp_enabled:
        return
    plugin = trainer.accelerator.state.fsdp_plugin
    plugin.mixed_precision_policy = None  # autocast chooses, as in any training; else counts and draws were rounded too
    if plugin.auto_wrap_policy is not None:
        layers = [*model.family.layers(model.backbone), *(part for part in model.modules() if isinstance(part, Block))]
        plugin.transformer_cls_names_to_wrap = sorted({type(layer).__name__ for layer in layers})


def check_sharding(trainer: Trainer, chunk: int | None = None, muon: bool = False) -> None:
    """Raise `InputError` where weights would be cut up that are put together too late, or not at all: the word matrix
    and the heads are read beside the modules that own them, and backbones' layers part by part (see `LayerRunner`)."""
    state: Any = trainer.accelerator.state
    if muon and (trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled):
        raise InputError("Muon moves whole matrices, which FSDP and DeepSpeed cut up; leave it out, or use DDP.")
    if trainer.is_deepspeed_enabled:
        if state.deepspeed_plugin.zero_stage == 3:
            raise InputError("Weights that ZeRO's stage 3 cuts up cannot be read here; use stage 2, or FSDP.")
        if chunk is not None:
            raise InputError("DeepSpeed's optimiser would step at every chunk; leave out --chunk, or use DDP or FSDP.")
    if not trainer.is_fsdp_enabled:
        return
    plugin = state.fsdp_plugin
    if plugin.fsdp_version != 2:
        raise InputError("Pre-training is written for FSDP2; set fsdp_version to 2 in the file of accelerate.")
    policy = plugin.auto_wrap_policy  # of a trainer before this one it is a `partial`
    if getattr(policy, "func", policy) not in (None, transformer_auto_wrap_policy):
        raise InputError(
            "FSDP would cut up parts of layers, which are read as wholes here; set fsdp_auto_wrap_policy to "
            "TRANSFORMER_BASED_WRAP or NO_WRAP."
        )
    if plugin.activation_checkpointing:
        raise InputError("FSDP's activation checkpointing renames weights; say --gradient_checkpointing true instead.")
    if "FULL" not in str(plugin.state_dict_type):
        raise InputError(
            "Only whole weights can be loaded by one process; set fsdp_state_dict_type to FULL_STATE_DICT."
        )


def open_shards(model: nn.Module) -> None:
    """Fit a model that FSDP has cut up to how it is read and saved; any other is left alone.

    The word matrix stays whole from the encoder's pass to the losses, which read it beside its module; bottlenecks can
    be read alone; and the model is saved under its own name, with its own code, as transformers would save torch's.
    """
    if not isinstance(model, FSDPModule):
        return
    assert isinstance(model, BottleneckForPreTraining)
    words = model.get_input_embeddings()
    if isinstance(words, FSDPModule):
        words.set_reshard_after_forward(False)
    register_fsdp_forward_method(model, "read_bottlenecks")
    shards, own = type(model), type(model).__bases__[-1]  # the class that `fully_shard` made, and ours
    shards.__name__, shards.__module__ = own.__name__, own.__module__
