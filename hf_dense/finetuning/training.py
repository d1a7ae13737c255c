"""What the trainings of retrievers and of re-rankers share: where they write and go on, and what ends them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import IntervalStrategy

from hf_dense.errors import InputError
from hf_dense.finetuning.embedding import gradients_of_read_words
from hf_dense.finetuning.lists import PassageLists
from hf_dense.hub.cards import write_model_card
from hf_dense.hub.lineage import lineage_of
from hf_dense.hub.precision import AUTO, check_products, choose_precision, float32_products
from hf_dense.hub.publish import Publication
from hf_dense.storage.checkpoints import (
    checkpoint_to_resume,
    decisive,
    keep_time,
    occupy_training,
    recorded_setting,
    train,
)
from hf_dense.storage.fingerprints import fingerprint_values
from hf_dense.storage.occupied import Occupied
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import are_several, is_main_process
from hf_dense.storage.steady_draws import SteadyDraws
from hf_dense.storage.training_values import PlainRefusals, check_meant

_CLAIMS: Final = ("refresh-*", "eval")
_IDLE: Final[dict[str, tuple[Any, str]]] = {  # options, unset, and why they do nothing
    "train_sampling_strategy": ("random", "which draws by seed"),
    "data_seed": (None, "which draws by seed"),
    "router_mapping": ({}, "where queries and passages are told apart anyway"),
    "multi_dataset_batch_sampler": ("proportional", "which has one data set"),
}
_LOADED: Final = "a loaded model"  # the name of a source that has none
_SET_BY_USE: Final = ("csv_headers", "primary_metric", "score_functions", "score_function_names")  # of evaluators


@dataclass
class SharedDefaults:
    """Options of both trainings beside those of Sentence-Transformers' trainers, and other defaults of these."""

    overwrite: bool = field(
        default=False, metadata={"help": "Replace what stands in output_dir and was made from other data or settings."}
    )
    warmup_steps: float = field(default=0.1, metadata={"help": "Steps if at least 1, else a fraction of all steps."})
    save_strategy: str = field(
        default=AUTO,
        metadata={"help": "When to write a checkpoint: no, steps or epoch; auto is steps where save_steps is given."},
    )
    save_steps: float = field(
        default=0,
        metadata={"help": "Steps between two checkpoints, or, below 1, a share of all steps; 0 is not given."},
    )
    logging_steps: float = field(default=20, metadata={"help": "Steps between two entries of the loss history."})
    ddp_find_unused_parameters: bool | None = field(
        default=False, metadata={"help": "Several chunks on several devices need False; no weight is left unused."}
    )
    logging_nan_inf_filter: bool = field(
        default=False, metadata={"help": "Hide losses that are no numbers, which end the training here."}
    )
    precision: str = field(
        default=AUTO,
        metadata={"help": "fp32, bf16 or fp16; auto is bf16 where the machine is faster by it, as the log says."},
    )
    float32_matmul_precision: str = field(
        default="highest", metadata={"help": "Of products of float32 matrices, as torch has it: highest, high, medium."}
    )

    def __post_init__(self) -> None:
        if self.save_strategy == AUTO:
            self.save_strategy = "steps" if self.save_steps else "no"
        self.save_steps = self.save_steps or TrainingArguments.save_steps
        super().__post_init__()  # type: ignore[misc]


def train_model(
    output: Output | None,
    arguments: TrainingArguments,
    trained: nn.Module,
    kind: str,
    form: str,
    settings: Mapping[str, Any],
    sources: Mapping[str, Source],
    make: Callable[[], Trainer],
    save: Callable[[Path], Mapping[str, Any] | None],
    fit: Callable[[], int] | None = None,
) -> Path:
    """Train in a directory, go on there, or find the same training done; `model` in it is complete or absent.

    With `push_to_hub` the model is published when it is complete.

    Args:
        output: the directory, where the arguments do not say all of it.
        arguments: of the trainer.
        trained: the model.
        kind: of training.
        form: of model (see `hf_dense.hub.cards.FORMS`).
        settings: all that the result depends on beside the arguments and the sources.
        sources: what is read; the first is the model that is started from.
        make: the trainer.
        save: writes the trained model into a directory, and may give facts of it.
        fit: finds the batch size, where the arguments leave that open.

    Returns:
        The directory of the model.

    Raises:
        InputError: the directory holds something else, there is no checkpoint as `resume_from_checkpoint` wants it, no
            weight or no step is trained, or the model cannot be published.
    """
    assert isinstance(arguments, SharedDefaults)
    start = next(iter(sources.values())).name
    _check(arguments, trained, start)
    check_products(arguments.float32_matmul_precision, arguments.tf32)
    output = output or Output(Path(str(arguments.output_dir)), arguments.overwrite)
    arguments.output_dir = str(output.path)
    model = output.at("model")
    publication = Publication.of(arguments, output.path.name, form)
    recorded = recorded_setting("precision", output.path, arguments.resume_from_checkpoint, kind)
    arguments.precision = choose_precision(arguments, trained, arguments.precision, recorded)
    with occupy_training(output, kind, settings, sources, arguments, _CLAIMS, model.path, fit) as work:
        if not work.done:
            with float32_products(arguments.float32_matmul_precision):
                _fit(make(), trained, work, arguments.resume_from_checkpoint)
            everything = {**settings, **decisive(arguments)}
            with model.stage(form, everything, sources, seed=arguments.seed) as made:
                if not made.done and is_main_process():
                    made.facts |= {**work.facts, "lineage": [] if start == _LOADED else lineage_of(start)}
                    made.facts |= save(made.result) or {}
                    made.facts |= _chosen(work.facts, made.facts)
                    write_model_card(made.result, replace(made.manifest, facts=made.facts), name=str(model.path))
            work.complete()
    if publication and is_main_process():
        publication.publish(model.path)
    return model.path


def _check(arguments: TrainingArguments, trained: nn.Module, start: str) -> None:
    """Raise `InputError` for a model, called `start`, that cannot be trained so."""
    if arguments.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
        raise InputError("Fine-tuning saves a model that is whole, which FSDP cuts up; start with a DDP configuration.")
    if not any(weight.requires_grad for weight in trained.parameters()):
        raise InputError(
            f"No weight of {start} is one that is trained (requires_grad); an adapter of PEFT is merged into its model "
            "first, by merge_and_unload."
        )


def _fit(trainer: Trainer, model: nn.Module, work: Occupied, resume: str | None) -> None:
    """Train from the start or from a checkpoint, and note how long that took in all."""
    trainer.args.dataloader_pin_memory &= torch.cuda.is_available()  # which torch warns of otherwise
    plain = trainer.args.device.type == "cpu" and not trainer.args.torch_compile and not are_several()
    checkpoint = checkpoint_to_resume(work, resume)
    seconds = keep_time(trainer, work, checkpoint)
    with gradients_of_read_words(model) if plain else nullcontext(), _without_reports():
        train(trainer, checkpoint)
    trainer.save_state()
    work.facts |= {"steps": trainer.state.global_step, "seconds": seconds()}
    if trainer.args.load_best_model_at_end and (best := trainer.state.best_model_checkpoint):
        step = int(Path(best).name.rpartition("-")[2])
        work.facts["best"] = {"step": step, "metric": trainer.args.metric_for_best_model}


@contextmanager
def _without_reports() -> Iterator[None]:
    """Silence what transformers reports of weights of a checkpoint: those written here lack a pooler, if anything."""

    def says_more(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    reporter = logging.getLogger("transformers.modeling_utils")
    reporter.addFilter(says_more)
    try:
        yield
    finally:
        reporter.removeFilter(says_more)


def _chosen(training: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a model whose weights are those of the best checkpoint, by the facts of its training and its own."""
    if (best := training.get("best")) is None:
        return {}
    remark = (
        f"Its weights are those after step {best['step']:,} of {training['steps']:,}, where {best['metric']} was best."
    )
    return {"steps": best["step"], "remarks": [*model.get("remarks", []), remark]}


def check_tuning(arguments: TrainingArguments) -> None:
    """Raise `InputError` for an option of the Trainer that would do nothing in a fine-tuning."""
    for name, (unset, why) in _IDLE.items():
        if getattr(arguments, name) != unset:
            raise InputError(f"{name} does nothing in fine-tuning, {why}; leave it out.")
    batch_sampler: Any = vars(arguments).get("batch_sampler")
    if batch_sampler == "group_by_label":
        raise InputError(
            "batch_sampler group_by_label puts rows together by labels, which these have none of; leave it out."
        )
    check_meant(arguments)


def check_evaluates(arguments: TrainingArguments, has_something: bool) -> None:
    """Raise `InputError` where evaluations are asked for and there is nothing to evaluate."""
    if arguments.eval_strategy != "no" and not has_something:
        raise InputError(
            f"eval_strategy is {IntervalStrategy(arguments.eval_strategy).value}, and nothing is held out to evaluate; "
            "leave it out (in a stage of a configuration give validation)."
        )


def evaluator_sources(evaluator: BaseEvaluator | list[BaseEvaluator] | None) -> dict[str, Source]:
    """What checkpoints are measured by: the texts and settings of evaluators."""
    if evaluator is None:
        return {}
    evaluators = [evaluator] if isinstance(evaluator, BaseEvaluator) else evaluator
    facts = [
        {name: _plain(value) for name, value in vars(one).items() if name[0] != "_" and name not in _SET_BY_USE}
        for one in evaluators
    ]
    names = ", ".join(type(one).__name__ for one in evaluators)
    return {"evaluator": Source(names, fingerprint_values({"evaluators": names, "facts": facts}))}


def _plain(value: Any) -> Any:
    """A value as JSON has it, the same in every run; of what JSON has nothing for, its type."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | None) else type(value).__name__


class Epochs(TrainerCallback):
    """Tells lists which epoch begins, so that other passages are drawn in every one, after a resume too."""

    def __init__(self, lists: PassageLists) -> None:
        self.lists = lists

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Number the epoch by those that are complete."""
        self.lists.epoch = int((state.epoch or 0) + 1e-6)


class CarefulTraining(SteadyDraws, PlainRefusals):
    """Stops at a loss that is no number, says what it cannot begin with, and writes no card that quotes training texts,
    whose licence we do not know.

    To be named before the trainer of Sentence-Transformers that it is mixed into.
    """

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add nothing."""

    def training_step(self, *given: Any, **named: Any) -> Tensor:
        """One step; a loss that is no number ends the training, with the last checkpoint in place."""
        trainer: Any = super()
        loss: Tensor = trainer.training_step(*given, **named)
        if not torch.isfinite(loss):
            state: Any = vars(self)["state"]
            raise InputError(
                f"The loss is {loss.item()} at step {state.global_step + 1}; lower learning_rate, and train anew."
            )
        return loss
