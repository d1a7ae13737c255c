"""Some trainings one after the other, in processes that `launch` started: whole, or cut up by FSDP2, on CPUs.

sharded.py DIRECTORY NAME     for every case, what was logged and the weights, in DIRECTORY/NAME
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import DistributedType
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

sys.path.append(str(Path(__file__).parents[1]))
from tiny_backbones import BACKBONES
from tiny_pretraining import NO_DROPOUT, tiny_arguments, tiny_options

from hf_dense.pretraining.pretrain import pretrain
from hf_dense.pretraining.trainer import PreTrainer

SAVED = {"save_strategy": "steps", "save_steps": 2}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # method, options, arguments
    "retromae": ("retromae", {}, SAVED),
    "resumed": ("retromae", {}, SAVED),  # from the second step of the one before
    "checkpointed": ("retromae", {}, {"gradient_checkpointing": True, "gradient_accumulation_steps": 2}),
    "bf16": ("retromae", {"precision": "bf16"}, {}),
    "chunks": ("cocondenser", {"chunk": 2}, {}),
    "simlm": ("simlm", {"generator": NO_DROPOUT, "generator_weight": 0.2}, {}),
    "dupmae": ("dupmae", {"decoder_learning_rate": 1e-4}, {}),
    "master": ("master", {}, {}),
    "seed_encoder": ("seed_encoder", {}, {}),
    "modernbert": ("retromae", {"backbone_config": "modernbert"}, {}),
    "electra-small": ("cotmae", {"backbone_config": "electra-small"}, {}),
}


def fsdp_on_cpus() -> None:
    """Have accelerate use FSDP in processes without GPUs, where it would train data parallel without a word."""
    PartialState(cpu=True).distributed_type = DistributedType.MULTI_GPU


class _Watch(TrainerCallback):
    """Looks whether every layer is cut up on its own, and every weight somewhere."""

    def on_step_end(self, *_: Any, model: Any, **__: Any) -> None:
        layers = [*model.family.layers(model.backbone)]
        layers += [layer for stack in model.decoders.values() for layer in stack.layers]
        assert all(isinstance(layer, FSDPModule) for layer in layers)
        assert all(isinstance(weight, DTensor) for weight in model.parameters())


def train(directory: Path, name: str, case: str) -> None:
    """Train for four steps of eight texts."""
    method, changes, arguments = CASES[case]
    sharded = "ACCELERATE_USE_FSDP" in os.environ
    sizes: dict[str, Any] = dict(NO_DROPOUT)
    if backbone := changes.get("backbone_config"):
        found = BACKBONES[backbone](0.0)
        sizes = {**found.to_diff_dict(), "model_type": found.model_type}
        del sizes["vocab_size"]  # that of the tokenizer
    options = tiny_options(directory, method, **{**changes, "backbone_config": sizes, "max_length": 20})
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    batch = 8 // processes // arguments.get("gradient_accumulation_steps", 1)
    if case == "resumed":
        arguments = {**arguments, "resume_from_checkpoint": str(directory / name / "retromae" / "checkpoint-2")}
    configured = {"accelerator_config": {"use_configured_state": True}} if sharded else {}
    settings = {"max_steps": 4, "adam_epsilon": 1e-4, "per_device_train_batch_size": batch, **configured, **arguments}
    pretrain(options, tiny_arguments(directory / name / case, **settings))


def watch() -> None:
    """Look at every training whether it is cut up."""
    make = PreTrainer.__init__

    def watched(self: PreTrainer, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        self.add_callback(_Watch())

    PreTrainer.__init__ = watched  # type: ignore[method-assign]


if __name__ == "__main__":
    if "ACCELERATE_USE_FSDP" in os.environ:
        fsdp_on_cpus()
        watch()
    for case in sys.argv[3:] or CASES:
        train(Path(sys.argv[1]), sys.argv[2], case)
