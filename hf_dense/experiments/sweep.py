"""The papers' sweeps: how retrieval goes with the share of masked tokens, pre-training steps and training queries.

All encoders of a sweep are fine-tuned and evaluated in the same way; `hf_dense.experiments.comparison` does each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
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
from hf_dense.experiments.processes import run_side_by_side
from hf_dense.experiments.sweep_plan import Run, SweepOptions, given_mapping, plan_sweep, shown
from hf_dense.experiments.sweep_results import Row, make_rows, write_rows
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments
from hf_dense.hub.export import check_fit
from hf_dense.hub.loading import drop_pooler, load_encoder, load_tokenizer
from hf_dense.pretraining.pretrain import PretrainingOptions
from hf_dense.storage.files import write_text
from hf_dense.storage.legacy import atomic_directory, check_replaceable

_DESCRIPTION = "settings.json"


def run_sweep(options: SweepOptions, command: Sequence[str] = ()) -> list[Row]:
    """Train and evaluate an encoder for every value and seed, and write `sweep.md`, `sweep.png` and `sweep.json`.

    Args:
        options: see the fields; what is complete in `output_dir` is read back. More values, seeds or another split may
            be asked for in a directory that has some.
        command: program and arguments that do `run_one` for the name that follows `--only`, where runs are to be side
            by side; without it they are one after the other, in this process.

    Returns:
        One row for each curve and value, in the order given.

    Raises:
        InputError: something given cannot work; nothing has been trained then.

    Source: MASTER, figure 3; SimLM, figure 3.
    """
    runs = plan_sweep(options)
    _check(options, runs)
    output_dir, some = Path(options.output_dir), next(iter(runs.values())).settings
    _claim(options, some, output_dir)
    if options.encoder and not options.backbone:
        for seed in options.seeds:
            _untrained_like(options.encoder, seed, output_dir / f"untrained-seed{seed}")
    elif not options.backbone:
        shared_tokenizer(some, output_dir / f"tokenizer-{some.vocabulary}")
    results: dict[str, VariantResult] = {}
    for first in (True, False):  # pre-trainings that other runs start from, the others
        names = [name for name, run in runs.items() if (run.value is None) == first]
        if command and options.side_by_side > 1:
            waiting = {
                name: [*command, "--only", name] for name in names if not _is_done(output_dir / name, runs[name])
            }
            run_side_by_side(waiting, output_dir / "logs", options.side_by_side)
        results |= {name: result for name in names if (result := run_one(options, name)) is not None}
    rows = make_rows(options, runs, results)
    write_rows(options, rows, output_dir)
    return rows


def run_one(options: SweepOptions, name: str) -> VariantResult | None:
    """Do one run of `plan_sweep`; what is complete is read back. None for a pre-training that others start from."""
    run, directory = plan_sweep(options)[name], Path(options.output_dir) / name
    if run.value is None:
        make_start(run.settings, run.variant, directory)
        return None
    return run_variant(run.settings, run.variant, directory, run.start)


def _check(options: SweepOptions, runs: Mapping[str, Run]) -> None:
    """Raise `InputError` where the trainings' options, the data or the encoders show that a run would fail."""
    settings = next(iter(runs.values())).settings
    try:
        TrainingArguments(options.output_dir, seed=0, resume_from_checkpoint=None, **settings.pretraining)
        finetuning = BiencoderTrainingArguments(options.output_dir, seed=0, **settings.finetuning)
        more = given_mapping(options.method_options, "method_options")
        if options.method:
            PretrainingOptions(**{"method": options.method, "corpus": options.dataset, **more})
    except (TypeError, ValueError) as error:
        raise InputError(f"The options of a training cannot be used: {error}") from error
    build_task(options.dataset, options.split)
    fraction = min(run.settings.fraction for run in runs.values())
    for seed in options.seeds if fraction < 1 else options.seeds[:1]:
        pairs = len(pairs_of(replace(settings, fraction=fraction, seed=seed)))
        if pairs < finetuning.per_device_train_batch_size:
            raise InputError(
                f"{shown(fraction)} of the training queries (seed {seed}) makes {pairs} pairs, fewer than one batch "
                f"of {finetuning.per_device_train_batch_size}; take more, or lower per_device_train_batch_size."
            )
    for encoder in filter(None, (options.encoder, options.backbone)):
        check_fit(load_tokenizer(encoder), load_encoder(encoder).config, encoder, options.max_length, "cls")


def _claim(options: SweepOptions, settings: Settings, output_dir: Path) -> None:
    """Write what this directory is for, or refuse it when it is for something else."""
    check_replaceable(output_dir, marker=_DESCRIPTION)
    named = {name: getattr(options, name) for name in ("sweep", "method", "part", "encoder")}
    varied = {"dataset": content_hash(options.dataset), "fraction": 1.0, "seed": 0, "split": ""}
    method_options = given_mapping(options.method_options, "method_options")
    described = {**named, "method_options": method_options, **asdict(settings), **varied}
    path = output_dir / _DESCRIPTION
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        other = [name for name in described if before.get(name) != described[name]]
        if other:
            raise InputError(
                f"{path} is of a sweep with another {other[0]}; name another directory or remove that one."
            )
    write_text(path, json.dumps(described, indent=1))


def _untrained_like(encoder: str, seed: int, output_dir: Path) -> None:
    """Write an encoder of the same shape with random weights, and the tokenizer."""
    if output_dir.is_dir():
        return
    config, tokenizer = load_encoder(encoder).config, load_tokenizer(encoder)
    set_seed(seed)
    model = AutoModel.from_config(config)
    drop_pooler(model)
    with atomic_directory(output_dir) as work:
        model.save_pretrained(work)
        tokenizer.save_pretrained(work)


def _is_done(directory: Path, run: Run) -> bool:
    done = "start/trainer_state.json" if run.value is None else f"evaluation-{run.settings.split}"
    return (directory / done).exists()
