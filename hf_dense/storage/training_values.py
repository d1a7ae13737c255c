"""Settings that a Trainer takes without a word, and fails with later or trains to nonsense."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hf_dense.errors import InputError, as_sentence, first_line

if TYPE_CHECKING:
    from transformers import TrainingArguments

_SEEDS: Final = 2**32  # numpy's
_STEPS: Final = 10**9  # which no training comes to
_MOST: Final = 10**9  # rows of a batch
_NO_OPTIMISER: Final = "No optimiser can be made of --optim and its options"
_NO_SCHEDULE: Final = "No schedule can be made of --lr_scheduler_type and --lr_scheduler_kwargs"
_NOT_MEANT: Final = {  # options of the Trainer that do nothing in the trainings here, or something else
    "label_smoothing_factor": "smooths none of the losses here",
    "neftune_noise_alpha": "is of single texts, and would be spread over all texts of a batch here",
    "bf16_full_eval": "would leave the weights rounded to 16 bits; bf16 alone computes in them",
    "fp16_full_eval": "would leave the weights rounded to 16 bits; fp16 alone computes in them",
    "ignore_data_skip": "would let a run that goes on read other batches than one that was never stopped",
    "include_for_metrics": "is for metrics that are not computed here",
    "include_num_input_tokens_seen": "counts none of the texts here (a pre-training logs its tokens_per_second anyway)",
}


def check_training(arguments: TrainingArguments) -> None:
    """Check the numbers of a training, before anything is loaded.

    Raises:
        InputError: one is infinite or no number, negative where it cannot be, or above what there is; or a name is of
            nothing that there is.
    """
    from torch.compiler import list_backends
    from transformers.integrations.integration_utils import get_reporting_integration_callbacks

    for name, value in vars(arguments).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"--{name} is {value}; it must be a number.")
    for name in ("learning_rate", "weight_decay", "max_grad_norm", "warmup_steps", "dataloader_num_workers"):
        if getattr(arguments, name) < 0:
            raise InputError(f"--{name} is {getattr(arguments, name)}; it must be 0 or above.")
    if arguments.learning_rate > 1:
        raise InputError(f"--learning_rate is {arguments.learning_rate}; no training learns at a rate above 1.")
    for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
        value = getattr(arguments, name)
        if isinstance(value, int) and not 1 <= value <= _MOST:  # it may be `auto`
            raise InputError(f"--{name} is {value}; it must be from 1 to {_MOST}.")
    if arguments.max_steps > _STEPS:
        raise InputError(f"--max_steps is {arguments.max_steps}, which no training comes to; name fewer.")
    if arguments.max_steps < 1 and arguments.max_steps != -1:
        raise InputError(
            f"--max_steps is {arguments.max_steps}; it must be from 1, or -1 for as many as --num_train_epochs takes."
        )
    if arguments.max_steps == -1 and arguments.num_train_epochs <= 0:
        raise InputError(f"--num_train_epochs is {arguments.num_train_epochs}, which trains nothing; give more than 0.")
    check_seed(arguments.seed)
    if (backend := arguments.torch_compile_backend) and backend not in list_backends(exclude_tags=()):
        raise InputError(f"--torch_compile_backend {backend} is not there; there are: {', '.join(list_backends())}.")
    try:
        get_reporting_integration_callbacks(arguments.report_to)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"--report_to: {first_line(error)}") from error
    _check_optimiser(arguments)


def _check_optimiser(arguments: TrainingArguments) -> None:
    """Raise `InputError` for an optimiser or a schedule that is not installed, or not with these options."""
    from torch import nn, optim
    from transformers import Trainer, get_scheduler

    anything: Any = nn.LayerNorm(1)  # for which no random number is drawn
    chosen: Any = arguments.lr_scheduler_kwargs
    if not arguments.optim_target_modules:  # else it asks for modules that only the model has
        with as_sentence(_NO_OPTIMISER):
            kind, options = Trainer.get_optimizer_cls_and_kwargs(arguments, anything)
            if kind.__module__.startswith("torch.optim."):
                kind(anything.parameters(), **options)
    with as_sentence(_NO_SCHEDULE):
        get_scheduler(
            arguments.lr_scheduler_type,
            optim.SGD(anything.parameters(), arguments.learning_rate),
            num_warmup_steps=1,
            num_training_steps=2,
            scheduler_specific_kwargs=chosen,
        )


def check_meant(arguments: TrainingArguments) -> None:
    """Raise `InputError` for an option of the Trainer that would do nothing here, or something else than it says."""
    for name, why in _NOT_MEANT.items():
        if getattr(arguments, name) not in (None, False, 0, "no", []):
            raise InputError(f"{name} {why}; leave it out.")


def check_seed(seed: int) -> None:
    """Raise `InputError` for a seed that random generators do not take."""
    if not 0 <= seed < _SEEDS:
        raise InputError(f"--seed {seed} is not from 0 to {_SEEDS - 1}.")


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise `InputError` unless there are seeds, each once, and all such as random generators take."""
    if not seeds or len({*seeds}) < len(seeds):
        raise InputError(f"The seeds are {', '.join(map(str, seeds)) or 'none'}; name some, each only once.")
    for seed in seeds:
        check_seed(seed)


class PlainRefusals:
    """Says in a sentence what a Trainer cannot begin with: an optimiser that is not installed, options that it has not.

    To be named before the trainer that it is mixed into.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        with as_sentence("The training cannot begin with these settings"):
            super().__init__(*given, **named)

    def create_optimizer(self, *given: Any) -> Any:
        """The Trainer's."""
        trainer: Any = super()
        with as_sentence(_NO_OPTIMISER):
            return trainer.create_optimizer(*given)

    def create_scheduler(self, *given: Any, **named: Any) -> Any:
        """The Trainer's."""
        trainer: Any = super()
        with as_sentence(_NO_SCHEDULE):
            return trainer.create_scheduler(*given, **named)
