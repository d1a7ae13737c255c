"""Numbers of a training that cannot be meant are refused before anything is loaded."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import TrainingArguments

from hf_dense.errors import InputError
from hf_dense.storage.training_values import check_training


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
        ({"seed": -1}, "--seed -1 is not from 0"),
        ({"report_to": "nobody"}, "--report_to: .*nobody"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], message: str | None) -> None:
    arguments = TrainingArguments("out", use_cpu=True, **{"report_to": "none", **given})
    if message is None:
        check_training(arguments)
        return
    with pytest.raises(InputError, match=message):
        check_training(arguments)
