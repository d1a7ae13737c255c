"""Resuming a training: from which checkpoint, with what settings, and to the same end as if it had never stopped."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from safetensors import SafetensorError, safe_open

from hf_dense.errors import InputError
from hf_dense.storage.batch_size import is_auto, keep_batch_size
from hf_dense.storage.manifest import Manifest, difference
from hf_dense.storage.occupied import Occupied
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import decide_together, is_main_process

if TYPE_CHECKING:
    from transformers import Trainer, TrainerState, TrainingArguments

logger = logging.getLogger(__name__)

_PACKED: Final = (".pt", ".pth", ".bin")  # what torch.save writes
_STATE: Final = "trainer_state.json"  # written last: a checkpoint that has it is complete
_STEPPED: Final = {"optimizer.pt": "optimizer*", "scheduler.pt": "scheduler.pt"}  # as the Trainer, or FSDP, calls it
_DEEPSPEED: Final = "global_step*"  # which has the two in files of its own
_MEANS: Final = ("train_loss", "train_samples_per_second", "train_steps_per_second")
_CLAIMS: Final = ("checkpoint-*", "runs", _STATE, "training_args.bin")

# What does not decide on the weights that a training ends with; an argument that is not named here does. By line: where
# it is written; what is said of it; what is kept, and where it goes on; what is published; devices and processes; the
# reading of data; memory; how evaluations are computed; the size of a device's batch, for which `batch_size` stands.
_UNDECISIVE: Final = """
output_dir overwrite run_name project trackio_space_id trackio_bucket_id trackio_static_space_id
do_train do_eval do_predict report_to disable_tqdm logging_strategy logging_steps logging_first_step
log_on_each_node logging_nan_inf_filter log_level log_level_replica include_num_input_tokens_seen
debug skip_memory_metrics
save_strategy save_steps save_total_limit save_only_model save_on_each_node enable_jit_checkpoint
resume_from_checkpoint ignore_data_skip restore_callback_states_from_checkpoint
push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision
use_cpu local_rank ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ddp_backend
ddp_timeout fsdp fsdp_config deepspeed parallelism_config
dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor
dataloader_in_order dataloader_multiprocessing_context
torch_empty_cache_steps activation_checkpointing activation_checkpointing_kwargs gradient_checkpointing
gradient_checkpointing_kwargs
per_device_eval_batch_size eval_accumulation_steps eval_do_concat_batches eval_use_gather_object prediction_loss_only
batch_eval_metrics include_for_metrics
per_device_train_batch_size
"""


def decisive(arguments: TrainingArguments) -> dict[str, Any]:
    """The training arguments that the result depends on, ready for JSON.

    `batch_size` is that of an optimiser step, over all processes and accumulated batches. The number of epochs has no
    part where that of steps is given, nor has what is saved where no best checkpoint is chosen.
    """
    given = {each.name: getattr(arguments, each.name) for each in fields(arguments) if each.init}
    values = {**given, **arguments.to_dict()}  # which leaves functions out
    left_out = {*_UNDECISIVE.split(), *(["num_train_epochs"] if arguments.max_steps > 0 else [])}
    if arguments.load_best_model_at_end:
        left_out -= {"save_strategy", "save_steps"}
    chosen = {"batch_size": _step(arguments), **{name: value for name, value in values.items() if name not in left_out}}
    found: dict[str, Any] = json.loads(json.dumps(chosen, default=_named))
    return found


def _step(arguments: TrainingArguments) -> int:
    """The rows of an optimiser step, over all processes and accumulated batches."""
    rows: int = arguments.train_batch_size * arguments.world_size * arguments.gradient_accumulation_steps
    return rows


def _named(value: Any) -> str:
    """A class or a function by its name, which is the same in every run; of other things the text."""
    return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else str(value)


def occupy_training(
    output: Output,
    kind: str,
    settings: Mapping[str, Any],
    sources: Mapping[str, Source],
    arguments: TrainingArguments,
    claims: Iterable[str] = (),
    result: Path | None = None,
    fit: Callable[[], int] | None = None,
) -> Occupied:
    """Begin a training in its directory, or go on with it; see `Output.occupy`.

    Where the batch size is to be found (`auto`), it is that of the run that is gone on with, whatever would fit now;
    else what `fit` finds. It is set in the arguments.

    Args:
        output: the directory, which is `arguments.output_dir`; it is not replaced where a checkpoint is asked for.
        settings: all that the result depends on beside the sources and `decisive(arguments)`, whose values they go
            before.
        claims: names in the directory that the training has to itself, beside checkpoints and what is logged.
        result: directory of the model, by default that of the training.
        fit: finds the largest batch that memory holds.

    Raises:
        InputError: as `Output.occupy` has it (the run was of other settings, more steps say), or
            `resume_from_checkpoint` names a checkpoint that is not there or not of the same run; or no batch size that
            fits is found; or a complete training lacks its model.
    """
    wanted = arguments.resume_from_checkpoint
    if _is_asked_for(wanted):
        output = replace(output, overwrite=False)
        decide_together(lambda: _find(output.path, wanted))
    names = [*_CLAIMS, *claims]

    def occupy(output: Output) -> Occupied:
        everything = {**decisive(arguments), **settings}
        return output.occupy(kind, everything, sources, seed=arguments.seed, claims=names, result=result or output.path)

    recorded = recorded_setting("batch_size", output.path, wanted, kind)
    if not is_auto(arguments):
        if recorded and not output.overwrite:
            _check_step(arguments, recorded, output.path)
        return occupy(output)
    if recorded:
        keep_batch_size(arguments, recorded)
        try:
            return occupy(replace(output, overwrite=False))
        except InputError:
            if not output.overwrite:
                raise
    if fit is None:
        raise InputError(f"per_device_train_batch_size auto is not offered for a {kind}; name a number.")
    arguments.per_device_train_batch_size = fit()
    return occupy(output)


def _check_step(arguments: TrainingArguments, recorded: int, directory: Path) -> None:
    """Raise `InputError`, with the numbers that a step is made of, where a training goes on with steps of other sizes.

    Whoever goes on with other processes is not to begin anew for it.
    """
    if recorded != _step(arguments):
        raise InputError(
            f"{directory} would go on with a training of {recorded} rows a step, and these settings make "
            f"{_step(arguments)} (per_device_train_batch_size {arguments.train_batch_size} x {arguments.world_size} "
            f"processes x gradient_accumulation_steps {arguments.gradient_accumulation_steps}); make the product the "
            "same, or begin anew in another directory or with --overwrite."
        )


def recorded_setting(name: str, directory: Path, wanted: str | bool | None, kind: str) -> Any:
    """A setting of the run in a directory, or of the one whose checkpoint is gone on with; None where there is none.

    Args:
        name: of the setting.
        directory: of the training.
        wanted: `resume_from_checkpoint`.
        kind: of training.

    Raises:
        InputError: the checkpoint that is wanted is not there.
    """

    def look() -> Any:
        found = _find(directory, wanted) if _is_asked_for(wanted) else None
        manifest = Manifest.load(found.parent if found else directory)
        return manifest.made_from.get(name) if manifest and manifest.kind == kind else None

    return decide_together(look)


def checkpoint_to_resume(work: Occupied, wanted: str | bool | None) -> str | None:
    """The checkpoint that a training goes on from.

    Args:
        work: the directory of the training; all its checkpoints are of the same run.
        wanted: `resume_from_checkpoint`: None (or the word) for the newest complete one, if there is one; `last` or
            `true` for the newest, which must be there; `false` to start anew; or a path.

    Returns:
        Its path, or None to start anew.

    Raises:
        InputError: there is none, it is incomplete, or of a run that was made from something else.
    """

    def choose() -> str | None:
        found = _find(work.path, wanted)
        if found is not None and found.parent.resolve() != work.path.resolve():
            _check_origin(found, work.manifest)
        return None if found is None else str(found)

    return decide_together(choose)


def load_history(output_dir: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read what a trainer logged in `output_dir`: one dict per entry, with `step` and `loss` or `eval_loss`.

    Raises:
        InputError: no finished training there.
    """
    path = Path(output_dir) / _STATE
    if not path.is_file():
        raise InputError(f"There is no loss history {path}; has the training finished?")
    history: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["log_history"]
    return history


def newest_checkpoint(directory: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint of a Trainer in `directory`, or None; one that is incomplete or broken is passed over."""
    complete = {step: path for step, path in _by_step(Path(directory)).items() if (path / _STATE).is_file()}
    for _, path in sorted(complete.items(), reverse=True):
        broken = _broken_file(path)
        if broken is None:
            return path
        logger.warning("%s is passed over: %s is broken, cut off or gone.", path, broken.name)
    return None


def _by_step(directory: Path) -> dict[int, Path]:
    """The directories of checkpoints, complete or not, by their steps; none that is only called like one."""
    there = {path.name.removeprefix("checkpoint-"): path for path in directory.glob("checkpoint-*")}
    return {int(step): path for step, path in there.items() if re.fullmatch("0|[1-9][0-9]*", step) and path.is_dir()}


def _broken_file(checkpoint: Path) -> Path | None:
    """A file of a checkpoint that is not whole, by its head and its end, or not there; None where all are.

    The Trainer goes on without the state of its optimiser, of its schedule or of the random draws (`save_only_model`
    leaves them out), to other weights than those of a run that was never stopped.
    """
    for path in sorted(checkpoint.iterdir()):
        try:
            if path.name == _STATE:
                json.loads(path.read_text(encoding="utf-8"))
            elif path.suffix == ".safetensors":
                with safe_open(path, framework="numpy"):  # which compares the size with what the head says
                    pass
            elif path.suffix in _PACKED and not zipfile.is_zipfile(path):  # whose list of contents is at the end
                return path
        except (OSError, ValueError, RecursionError, SafetensorError):
            return path
    if not (any(checkpoint.rglob("*.safetensors")) or any(checkpoint.rglob("pytorch_model*"))):
        return checkpoint / "model.safetensors"
    needed = {"rng_state.pth": "rng_state*.pth", **({} if any(checkpoint.glob(_DEEPSPEED)) else _STEPPED)}
    if lacking := next((name for name, form in needed.items() if not any(checkpoint.glob(form))), None):
        return checkpoint / lacking
    if any(checkpoint.glob("rng_state_*.pth")):  # each of several processes wrote its own, or was killed before
        states = [checkpoint / f"rng_state_{rank}.pth" for rank in range(int(os.environ.get("WORLD_SIZE", "1")))]
        return next((state for state in states if not state.is_file()), None)
    return None


def keep_time(trainer: Trainer, work: Occupied, checkpoint: str | os.PathLike[str] | None) -> Callable[[], float]:
    """Count the seconds of a training, those before its last checkpoint too where it was killed and goes on.

    Returns:
        Gives the seconds until now.
    """
    from transformers import TrainerCallback

    started, before = time.perf_counter(), float(work.facts.get("seconds", 0.0)) if checkpoint else 0.0

    def spent() -> float:
        return before + time.perf_counter() - started

    class Clock(TrainerCallback):
        """Writes the time down with every checkpoint."""

        def on_save(self, *_: Any, **__: Any) -> None:
            if is_main_process():
                work.facts["seconds"] = spent()
                work.record()

    trainer.add_callback(Clock())
    return spent


def train(trainer: Trainer, checkpoint: str | os.PathLike[str] | None) -> None:
    """Train, from a checkpoint where one is given: the weights are those of a run that was never stopped.

    The `Trainer` of transformers, and those of Sentence-Transformers that are built on it, train one step more when a
    run was killed after its last checkpoint, forget how many evaluations brought no better model, evaluate a resumed
    model at the start again, log means at the end that divide what was resumed by the whole, and keep a checkpoint
    that was being deleted. Here they do not.

    Args:
        trainer: any such trainer.
        checkpoint: a complete checkpoint of the same run, or None.

    Raises:
        InputError: the best checkpoint is to be chosen by a figure that evaluations have not, or is gone; or there was
            no batch to train on.
    """
    try:
        with _own_checkpoints(trainer):
            _train(trainer, checkpoint)
    except KeyError as error:
        if "metric_for_best_model" not in str(error):
            raise
        raise InputError(str(error.args[0])) from error
    if trainer.state.global_step == 0:
        advice = ", or leave dataloader_drop_last out" if trainer.args.dataloader_drop_last else ""
        raise InputError(
            f"No step was trained: the data fill no batch of these settings; lower per_device_train_batch_size{advice}."
        )


def _train(trainer: Trainer, checkpoint: str | os.PathLike[str] | None) -> None:
    if checkpoint is None:
        trainer.train()
        return
    from transformers import TrainerState

    state = TrainerState.load_from_json(str(Path(checkpoint) / _STATE))
    trainer.args.eval_on_start = False
    trainer.args.restore_callback_states_from_checkpoint = True
    if trainer.args.load_best_model_at_end:
        _keep_best(trainer, Path(checkpoint), state)
    finished = _is_finished(state)
    with _no_means(trainer), _no_epoch(trainer) if finished else nullcontext():
        trainer.train(resume_from_checkpoint=str(checkpoint))
    if finished:
        trainer.state.num_train_epochs = state.num_train_epochs


def _keep_best(trainer: Trainer, checkpoint: Path, state: TrainerState) -> None:
    """Let the best checkpoint so far be that beside the one that is gone on with, wherever they have been moved to.

    What a checkpoint says of it is a path of the machine that wrote it, where nothing is by now, or another run's. The
    best step may have been evaluated alone, and not saved; then there is none, or an earlier one.
    """
    from transformers import TrainerCallback

    known = state.best_model_checkpoint
    best = checkpoint.with_name(Path(known).name if known else f"checkpoint-{state.best_global_step}")
    if not best.is_dir():
        if known:
            raise InputError(f"{best}, which has its best weights so far, is gone; copy it too, or start anew.")
        return

    class Found(TrainerCallback):
        """Says where it is, when what the checkpoint says has been read."""

        def on_train_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            state.best_model_checkpoint = str(best)

    trainer.add_callback(Found())


@contextmanager
def _own_checkpoints(trainer: Trainer) -> Iterator[None]:
    """Checkpoints beyond `save_total_limit` are deleted here: a Trainer deletes `checkpoint-500-copy` with them."""
    from transformers import TrainerCallback

    limit, trainer.args.save_total_limit = trainer.args.save_total_limit, None

    class Saved(TrainerCallback):
        """Deletes what a new checkpoint stands for."""

        def on_save(self, *_: Any, **__: Any) -> None:
            _delete_checkpoints(trainer, limit)

    callback = Saved()
    trainer.add_callback(callback)
    try:
        yield
        _delete_checkpoints(trainer, limit, ended=True)
    finally:
        trainer.remove_callback(callback)
        trainer.args.save_total_limit = limit


def _delete_checkpoints(trainer: Trainer, limit: int | None, ended: bool = False) -> None:
    """Delete the oldest but for so many, the best one and, until the end, the newest one."""
    if limit is None or limit <= 0 or not trainer.args.should_save:
        return
    steps = _by_step(Path(str(trainer.args.output_dir)))
    newest_first = [steps[step] for step in sorted(steps, reverse=True)]
    best = trainer.state.best_model_checkpoint
    kept = [path for path in newest_first if best is not None and path.resolve() == Path(best).resolve()]
    if newest_first[:1] != kept and not (ended and kept and limit == 1):
        kept += newest_first[:1]
    kept += [path for path in newest_first if path not in kept][: max(0, limit - len(kept))]
    for path in newest_first:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _no_means(trainer: Trainer) -> Iterator[None]:
    """What a resumed run would log as means, of the loss and of speed, is left out: it knows its own part alone."""
    log = trainer.log

    def without_means(logs: dict[str, float], *given: Any, **named: Any) -> None:
        for name in _MEANS:
            logs.pop(name, None)
        log(logs, *given, **named)

    trainer.log = without_means  # type: ignore[method-assign]
    try:
        yield
    finally:
        del trainer.log


@contextmanager
def _no_epoch(trainer: Trainer) -> Iterator[None]:
    """A run begins with all the values that it has at its end, but no epoch is left to be trained."""
    plan = trainer.set_initial_training_values

    def without_epochs(*given: Any, **named: Any) -> Any:
        return (0, *plan(*given, **named)[1:])

    trainer.set_initial_training_values = without_epochs  # type: ignore[method-assign]
    try:
        yield
    finally:
        del trainer.set_initial_training_values


def _is_finished(state: Any) -> bool:
    """Whether a training was at its end: by its number of steps, or stopped before it."""
    control = state.stateful_callbacks.get("TrainerControl", {}).get("args", {})
    return state.global_step >= state.max_steps or bool(control.get("should_training_stop"))


def _is_asked_for(wanted: str | bool | None) -> bool:
    return str(wanted).lower() not in ("none", "false")


def _find(directory: Path, wanted: str | bool | None) -> Path | None:
    """The checkpoint that is wanted of a run in `directory`."""
    word = str(wanted).lower()
    if word in ("none", "false"):
        return newest_checkpoint(directory) if word == "none" else None
    if word in ("true", "last"):
        newest = newest_checkpoint(directory)
        if newest is None:
            raise InputError(f"There is no complete checkpoint in {directory} to resume from; start without resuming.")
        return newest
    found = Path(str(wanted))
    if not (found / _STATE).is_file():
        raise InputError(f"{wanted} is not a complete checkpoint (it has no {_STATE}).")
    if broken := _broken_file(found):
        raise InputError(
            f"{wanted} cannot be resumed from: {broken.name} is broken, cut off or gone; name another one."
        )
    return found


def _check_origin(checkpoint: Path, manifest: Manifest) -> None:
    """Raise `InputError` unless a checkpoint is of a run that was made from the same things."""
    run = Manifest.load(checkpoint.parent)
    if run is None or run.kind != manifest.kind:
        what = "nothing says what run it is of" if run is None else f"it is of another kind of run ({run.kind})"
        raise InputError(f"{checkpoint} cannot be resumed from: {what}; name a checkpoint of this {manifest.kind}.")
    if other := difference(run.made_from, manifest.made_from, (run.sources, manifest.sources)):
        raise InputError(f"{checkpoint} is of a run with {other}; name a checkpoint of the same run, or start anew.")
