"""The papers' sweeps: how retrieval goes with the share of masked tokens, pre-training steps and training queries.

All encoders of a sweep are fine-tuned and evaluated in the same way; `hf_dense.experiments.comparison` does each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from transformers import AutoModel, TrainingArguments, set_seed

from hf_dense.data.collections import content_hash
from hf_dense.errors import InputError
from hf_dense.evaluation.retrieval import build_task
from hf_dense.experiments.comparison import (
    Settings,
    VariantResult,
    make_start,
    pairs_of,
    run_variant,
    shared_tokenizer,
)
from hf_dense.experiments.countdown import Countdown
from hf_dense.experiments.processes import run_side_by_side
from hf_dense.experiments.sweep_options import FEW, SweepOptions
from hf_dense.experiments.sweep_plan import Run, chosen, plan_sweep, shown
from hf_dense.experiments.sweep_results import Row, make_rows, write_rows
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, training_rows
from hf_dense.finetuning.training import check_tuning
from hf_dense.hub.fingerprints import encoder_fingerprint
from hf_dense.hub.loading import drop_pooler, load_encoder, load_tokenizer
from hf_dense.hub.retriever_settings import DEFAULTS, RetrieverSettings, own_settings
from hf_dense.hub.retrievers import assemble, check_fit
from hf_dense.pretraining.options import PretrainingOptions, check_options, given_mapping
from hf_dense.storage.fingerprints import fingerprint_tokenizer, fingerprint_values
from hf_dense.storage.manifest import COMPLETE, Manifest
from hf_dense.storage.occupied import Occupied
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source
from hf_dense.storage.process_group import are_several
from hf_dense.storage.training_values import check_training

_WRITTEN = ("sweep.md", "sweep.png", "sweep.json", "logs")


def run_sweep(options: SweepOptions, command: Sequence[str] = ()) -> list[Row]:
    """Train and evaluate an encoder for every value and seed, and write `sweep.md`, `sweep.png` and `sweep.json`.

    Args:
        options: see the fields; what is complete in `out` is read back. More values, seeds or another split may be
            asked for in a directory that has some.
        command: program and arguments that do `run_one` for the name that follows `--only`, where runs are to be side
            by side; without it they are one after the other, in this process.

    Returns:
        One row for each curve and value, in the order given.

    Raises:
        InputError: something given cannot work; nothing has been trained then.

    Source: MASTER, figure 3; SimLM, figure 3.
    """
    if are_several():
        raise InputError("A sweep is one process; --side_by_side N trains several variants at once.")
    runs = plan_sweep(options)
    _check(options, runs)
    some = next(iter(runs.values())).settings
    with _occupy(options, some) as work:
        out = Output(work.path, options.overwrite)
        if options.model and not options.backbone:
            for seed in options.seeds:
                _untrained_like(options.model, seed, out.at(f"untrained-seed{seed}"), options.max_length)
        elif not options.backbone:
            shared_tokenizer(some, out.at(f"tokenizer-{some.vocabulary}"))
        results: dict[str, VariantResult] = {}
        for first in (True, False):  # pre-trainings that other runs start from, the others
            names = [name for name, run in runs.items() if (run.value is None) == first]
            waiting = [name for name in names if not _is_done(out, name, runs[name])]
            if command and options.side_by_side > 1:
                commands = {name: [*command, "--only", name] for name in waiting}
                run_side_by_side(commands, out.path / "logs", options.side_by_side)
                waiting = []
            countdown = Countdown(len(waiting))
            for name in names:
                if (result := run_one(options, name)) is not None:
                    results[name] = result
                if name in waiting:
                    countdown.step(name)
        rows = make_rows(options, runs, results)
        write_rows(options, rows, out.path)
        work.complete()
    return rows


def run_one(options: SweepOptions, name: str) -> VariantResult | None:
    """Do one run of `plan_sweep`; what is complete is read back. None for a pre-training that others start from.

    Raises:
        InputError: there is no run of that name, or see `plan_sweep`.
    """
    run, out = chosen(plan_sweep(options), name), Output(Path(options.out), options.overwrite).at(name)
    if run.value is None:
        make_start(run.settings, run.variant, out)
        return None
    return run_variant(run.settings, run.variant, out, run.start)


def _check(options: SweepOptions, runs: Mapping[str, Run]) -> None:
    """Raise `InputError` where the trainings' options, the data or the encoders show that a run would fail."""
    if options.side_by_side < 1:
        raise InputError(f"side_by_side is {options.side_by_side}; at least one run goes at a time.")
    settings = next(iter(runs.values())).settings
    try:
        pretraining = TrainingArguments(options.out, seed=0, resume_from_checkpoint=None, **settings.pretraining)
        finetuning = BiencoderTrainingArguments(options.out, seed=0, **settings.finetuning)
        more = given_mapping(options.method_options, "method_options")
        if options.method:
            given = {"method": options.method, "corpus": options.collection, "backbone": options.backbone, **more}
            check_options(PretrainingOptions(**given), pretraining)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"The options of a training cannot be used: {error}") from error
    for training in (pretraining, finetuning):
        check_training(training)
    check_tuning(finetuning)
    build_task(options.collection, options.split)
    _check_queries(options, runs, finetuning)
    for model in filter(None, (options.model, options.backbone)):
        check_fit(load_tokenizer(model), load_encoder(model).config, model, options.max_length, "cls")


def _check_queries(options: SweepOptions, runs: Mapping[str, Run], finetuning: BiencoderTrainingArguments) -> None:
    """Raise `InputError` where there are fewer training queries than asked for, or the fewest make no batch."""
    for seed in options.seeds if options.sweep in FEW else options.seeds[:1]:
        trained = [run.settings for run in runs.values() if run.value and run.settings.seed == seed]
        trained.sort(key=lambda settings: (settings.queries or 0, settings.fraction))
        for settings in (trained[-1], trained[0]):
            pairs = pairs_of(settings)
            try:
                training_rows(pairs, finetuning)
            except InputError as error:
                few = f"{shown(settings.fraction)} of the" if settings.queries is None else f"{settings.queries}"
                raise InputError(
                    f"On {few} training queries (seed {seed}) nothing can be fine-tuned: {error}"
                ) from error


def _occupy(options: SweepOptions, settings: Settings) -> Occupied:
    """The directory of a sweep: what is varied, the seeds and the split are not what it is made from."""
    named = {name: getattr(options, name) for name in ("sweep", "method", "part")}
    method_options = given_mapping(options.method_options, "method_options")
    varied = ("collection", "fraction", "queries", "seed", "split", "backbone")
    shared = {name: value for name, value in asdict(settings).items() if name not in varied}
    sources = {"collection": Source(options.collection, content_hash(options.collection))}
    for role, name in (("model", options.model), ("backbone", options.backbone)):
        if name:
            sources[role] = Source(name, encoder_fingerprint(load_encoder(name), load_tokenizer(name)))
    return Output(Path(options.out), options.overwrite).occupy(
        "sweep", {**named, "method_options": method_options, **shared}, sources, claims=_WRITTEN, again=True
    )


def _untrained_like(model: str, seed: int, output: Output, max_length: int) -> None:
    """Write an encoder of the same shape with random weights, and the tokenizer; pooled as the model is."""
    config, tokenizer, own = load_encoder(model).config, load_tokenizer(model), own_settings(model)
    settings = {"configuration": fingerprint_values(config.to_diff_dict())}
    pooled = own.pooling not in (None, "cls")  # which an encoder alone does not say
    if pooled:
        settings |= {"pooling": str(own.pooling)}
    sources = {"tokenizer": Source(model, fingerprint_tokenizer(tokenizer))}
    with output.stage("encoder", settings, sources, seed=seed) as work:
        if not work.done:
            set_seed(seed)
            untrained = AutoModel.from_config(config)
            drop_pooler(untrained)
            if pooled:
                chosen = DEFAULTS.updated(own).updated(RetrieverSettings(max_length=max_length))
                assemble(untrained, tokenizer, chosen, model).save_pretrained(str(work.result), create_model_card=False)
            else:
                untrained.save_pretrained(work.result)
                tokenizer.save_pretrained(work.result)


def _is_done(out: Output, name: str, run: Run) -> bool:
    """Whether a run need not be started in a process of its own; `run_one` sees to it that it is the same run."""
    done = "start" if run.value is None else f"evaluation-{run.settings.split}"
    manifest = Manifest.load(out.path / name / done)
    return manifest is not None and manifest.state == COMPLETE
