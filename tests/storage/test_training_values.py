"""Settings of a training that cannot be meant are refused, before anything is loaded where that can be known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from torch import nn
from transformers import Trainer, TrainingArguments

from hf_dense.errors import InputError
from hf_dense.storage.training_values import PlainRefusals, check_training


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning_rate": 1.0}, None),
        ({"learning_rate": 1e30}, "--learning_rate is 1e.30; no training learns at a rate above 1"),
        ({"learning_rate": -1e-3}, "--learning_rate is -0.001; it must be 0 or above"),
        ({"learning_rate": float("nan")}, "--learning_rate is nan; it must be a number"),
        ({"weight_decay": float("inf")}, "--weight_decay is inf; it must be a number"),
        ({"per_device_train_batch_size": 0}, "--per_device_train_batch_size is 0; it must be from 1"),
        ({"gradient_accumulation_steps": 10**12}, "--gradient_accumulation_steps is 1000000000000; it must be from 1"),
        ({"max_steps": 10**13}, "--max_steps is 10000000000000, which no training comes to"),
        ({"max_steps": 0}, "--max_steps is 0; it must be from 1, or -1"),
        ({"max_steps": -3}, "--max_steps is -3; it must be from 1, or -1"),
        ({"max_steps": -1}, None),
        ({"num_train_epochs": 0}, "--num_train_epochs is 0, which trains nothing; give more than 0"),
        ({"num_train_epochs": -1}, "--num_train_epochs is -1, which trains nothing"),
        ({"num_train_epochs": 0, "max_steps": 1}, None),
        ({"num_train_epochs": 0.01}, None),
        ({"dataloader_num_workers": -1}, "--dataloader_num_workers is -1; it must be 0 or above"),
        ({"seed": -1}, "--seed -1 is not from 0"),
        ({"report_to": "nobody"}, "--report_to: .*nobody"),
        ({"torch_compile_backend": "eager"}, None),
        ({"torch_compile_backend": "nobody"}, "--torch_compile_backend nobody is not there; there are: .*inductor"),
        ({"optim": "adafactor"}, None),
        ({"optim": "adamw_bnb_8bit"}, "No optimiser can be made of --optim and its options: .*bitsandbytes"),
        ({"optim": "galore_adamw"}, "No optimiser can be made of --optim and its options: "),
        ({"optim": "galore_adamw", "optim_target_modules": ["a"]}, None),
        ({"adam_beta1": 2.0}, "No optimiser can be made of --optim and its options: Invalid beta"),
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "No schedule can be made of --lr_scheduler_type .*min_lr"),
        ({"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-6}}, None),
        ({"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": {"num_decay_steps": 100}}, None),
        ({"learning_rate": 0.0}, None),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], message: str | None) -> None:
    arguments = TrainingArguments("out", use_cpu=True, **{"report_to": "none", **given})
    if message is None:
        check_training(arguments)
        return
    with pytest.raises(InputError, match=message):
        check_training(arguments)


class _Careful(PlainRefusals, Trainer):
    """Any Trainer."""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"optim": "galore_adamw", "optim_target_modules": ["a"]}, "No optimiser can be made .*galore_torch"),
        ({"optim": "adamw_bnb_8bit"}, "No optimiser can be made of --optim and its options: .*bitsandbytes"),
        ({"adam_beta1": 2.0}, "No optimiser can be made of --optim and its options: Invalid beta"),
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "No schedule can be made of --lr_scheduler_type .*min_lr"),
        ({"fsdp": "full_shard"}, "The training cannot begin with these settings: Using fsdp only"),
    ],
)
def test_what_a_trainer_cannot_begin_with_is_said_in_a_sentence(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with patch.dict(os.environ):  # into which those of FSDP write
        arguments = TrainingArguments(str(tmp_path), use_cpu=True, **{"report_to": "none", **given})
        with pytest.raises(InputError, match=message):
            _Careful(nn.Linear(2, 2), arguments, train_dataset=[{"input": 0.0}]).train()
