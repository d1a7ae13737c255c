"""The verb `hf-dense finetune`: one training, or the stages of a paper."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hf_dense.commands.options import (
    add_config,
    add_options,
    add_trainer,
    build_arguments,
    build_options,
    check_keys,
    given_flags,
    introduce,
    option_names,
)
from hf_dense.commands.output import command_line, losses_aside
from hf_dense.commands.recipes import STAGES, read_configs
from hf_dense.errors import InputError

logger = logging.getLogger(__name__)

SUMMARY: Final = "Train a retriever, or several in stages, and measure each."
_INTRODUCTION: Final = """\
Fine-tune an encoder on queries with relevant passages.

A configuration with sections such as retriever1 runs the stages of a paper, one after the other (BM25 negatives, mined
negatives, re-ranker, distillation), and measures each. Without, it is one training of a retriever. With --keep both
are measured on another collection too: what is lost there was forgotten.

  hf-dense finetune --config own --collection build/mine --model build/retromae --out build/tuned --measure_on dev
  hf-dense finetune --model build/encoder --collection build/mine --out build/retriever --max_steps 1500

Stages that are done are not done again; one that was killed goes on.
"""
_EXPLAINED: Final = """\
  Explained by --help_all, with every option of the Trainer:
  losses: --contrast --contrast_weight --temperature --distillation --lamb; what is forgotten: --keep_similarities;
  vectors and encoders: --matryoshka --projection --untied; memory and speed: --chunk --precision
  --float32_matmul_precision; when to stop: --patience"""


@dataclass(frozen=True)
class BothOptions:
    """What every fine-tuning is of."""

    model: str = field(metadata={"help": "directory or Hub id of the encoder or retriever to start from"})
    collection: str = field(metadata={"help": "directory with corpus, queries and judgements, or a dataset of the Hub"})
    out: str = field(default="", metadata={"help": "directory to write"})
    split: str = field(default="train", metadata={"help": "judgements that are trained on"})
    seed: int = field(default=42, metadata={"help": "of all draws"})
    overwrite: bool = field(
        default=False, metadata={"help": "replace what hf_dense wrote there from other inputs or settings"}
    )


@dataclass(frozen=True)
class StageOptions:
    """What the stages of a configuration take beside it."""

    fraction: float = field(default=1.0, metadata={"help": "share of the training queries that is used"})


@dataclass(frozen=True)
class MeasuringOptions:
    """What is measured, on queries that were not trained on."""

    measure_on: str = field(
        default="",
        metadata={
            "help": "split that every stage is measured on (default: dev); one training is measured where this or "
            "--keep is given"
        },
    )
    keep: str = field(
        default="",
        metadata={
            "help": "another collection that is measured too, to see what is forgotten: COLLECTION[:SPLIT] (split: "
            "dev), or python_docs, a small part of Python's documentation that is built when it is first needed"
        },
    )


@dataclass(frozen=True)
class SingleOptions:
    """What one training takes beside the Trainer's options."""

    lists: list[str] | None = field(
        default=None,
        metadata={
            "help": "training lists (hf-dense data negatives, scores), of several directories joined; else in-batch "
            "negatives"
        },
    )
    passages: int = field(default=8, metadata={"help": "passages of a list, the positive included"})
    depth: int = field(default=200, metadata={"help": "negatives of a list that are drawn from"})
    dev_split: str = field(default="dev", metadata={"help": "split whose loss is logged when eval_strategy is set"})
    dev_pairs: int = field(default=1024, metadata={"help": "how many pairs of that split, drawn at random"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `hf-dense finetune`."""
    introduce(parser, _INTRODUCTION)
    add_config(parser)
    add_options(parser, BothOptions)
    add_options(parser.add_argument_group("measuring"), MeasuringOptions)
    add_options(parser.add_argument_group("stages of a configuration"), StageOptions)
    add_options(parser.add_argument_group("one training", _EXPLAINED), SingleOptions)
    add_trainer(parser, _trainer)


@dataclass(frozen=True)
class Tuned:
    """What a fine-tuning came to.

    Args:
        out: its directory.
        models: by the names of the stages; of one training, `model`.
        said: what was trained and what was measured, for people; empty in processes that are not the main one.
    """

    out: Path
    models: Mapping[str, Path]
    said: str


def run(arguments: argparse.Namespace) -> None:
    """Run the stages of the configuration, or one training where it has none, and say what came out."""
    logging.getLogger("hf_dense").setLevel(logging.INFO)
    with losses_aside():
        tuned = train(arguments)
    if tuned.said:
        print(tuned.said)


def train(arguments: argparse.Namespace) -> Tuned:
    """Run the stages of the configuration, or one training where it has none."""
    values = read_configs(arguments.config)
    return (_run_stages if set(STAGES) & set(values) else _run_single)(arguments, values)


def _run_stages(arguments: argparse.Namespace, values: Mapping[str, Any]) -> Tuned:
    single = [*(f"--{name}" for name in given_flags(arguments, SingleOptions)), *arguments.rest]
    if single:
        raise InputError(f"{single[0]} is of one training; the stages' options stand in the sections of the file.")
    from hf_dense.experiments.pipeline_results import measure_stages
    from hf_dense.finetuning.pipeline import Pipeline, run_pipeline
    from hf_dense.storage.process_group import alone, is_main_process, wait_for_everyone

    given = given_flags(arguments, BothOptions, StageOptions)
    measuring = build_options(MeasuringOptions, values, given_flags(arguments, MeasuringOptions))
    read = option_names(MeasuringOptions)
    settings = {key: value for key, value in {**values, **given}.items() if key not in read}
    check_keys(settings, {*option_names(Pipeline)}, arguments.config)
    pipeline = Pipeline.of(settings)
    split, kept = _check_measuring(measuring, pipeline.collection, pipeline.split)
    models, said = run_pipeline(pipeline, command_line(arguments)), ""
    if is_main_process():
        with alone():
            said = measure_stages(pipeline, models, split, kept)
    wait_for_everyone()
    return Tuned(Path(pipeline.out), models, said)


def _check_measuring(measuring: MeasuringOptions, collection: str, trained_on: str) -> tuple[str, Any]:
    """The split and the kept collection (or None), found fit to be measured on before anything is trained."""
    from hf_dense.data.collections import asked_again, judged_splits
    from hf_dense.evaluation.retrieval import build_task
    from hf_dense.experiments.keeping import open_kept

    split = measuring.measure_on or "dev"
    if split == trained_on:
        raise InputError(f"The split {split!r} is trained on; measure on another (--measure_on).")
    build_task(collection, split)  # raises where nothing can be measured
    if trained_on in judged_splits(collection) and (again := asked_again(collection, split, trained_on)):
        logger.warning("%s", again)
    return split, open_kept(measuring.keep, collection) if measuring.keep else None


def _run_single(arguments: argparse.Namespace, values: Mapping[str, Any]) -> Tuned:
    _check_single(given_flags(arguments, StageOptions, SingleOptions), values)
    ours = option_names(BothOptions, SingleOptions, MeasuringOptions)
    check_keys(values, {*ours, *option_names(_trainer())}, arguments.config)
    both = build_options(BothOptions, values, given_flags(arguments, BothOptions))
    single = build_options(SingleOptions, values, given_flags(arguments, SingleOptions))
    measuring = build_options(MeasuringOptions, values, given_flags(arguments, MeasuringOptions))
    arguments.rest = [*arguments.rest, "--seed", str(both.seed)]
    training = build_arguments(_trainer(), values, arguments, ours)
    from hf_dense.data.collections import training_pairs
    from hf_dense.finetuning.biencoder import finetune
    from hf_dense.finetuning.lists import load_lists
    from hf_dense.storage.output import Output
    from hf_dense.storage.process_group import alone, is_main_process, wait_for_everyone

    measured = bool(measuring.measure_on or measuring.keep)
    split, kept = _check_measuring(measuring, both.collection, both.split) if measured else ("", None)
    rows: Any
    if single.lists is None:
        rows = training_pairs(both.collection, both.split)
    else:
        given = both.collection, single.passages, both.seed
        scored = training.distillation != "none"
        rows = load_lists(single.lists, *given, split=both.split, depth=single.depth, scored=scored)
    dev_pairs = None
    if training.eval_strategy != "no":
        held_out = training_pairs(both.collection, single.dev_split).shuffle(seed=both.seed)
        dev_pairs = held_out.select(range(min(single.dev_pairs, len(held_out))))
    output = Output(Path(training.output_dir), both.overwrite, command_line(arguments))
    path = finetune(
        both.model,
        rows,
        training,
        origin=f"{both.collection}:{both.split}",
        dev_pairs=dev_pairs,
        dev_origin=f"{both.collection}:{single.dev_split}",
        output=output,
    )
    said = ""
    if is_main_process():
        read = f"{len(rows):,} {'pairs' if single.lists is None else 'lists'}"
        said = f"The model, fine-tuned on {read} for {_epochs(output.path)}, is in {path}"
    if measured:
        from hf_dense.experiments.pipeline_results import measure_training

        if is_main_process():
            with alone():
                table = measure_training(both.model, output, both.collection, split, kept, seed=both.seed)
                said = f"{table}\n{said}"
        wait_for_everyone()
    return Tuned(output.path, {"model": path}, said)


def _epochs(directory: Path) -> str:
    """How often a training read all that it was given."""
    epochs: float = json.loads((directory / "trainer_state.json").read_text(encoding="utf-8"))["epoch"]
    return "1 epoch" if epochs == 1 else f"{epochs:.3g} epochs"


def _check_single(flags: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raise `InputError` where an option would say nothing: of stages, or of lists that are not given."""
    given = {**values, **flags}
    for name in option_names(StageOptions):
        if name in flags:
            raise InputError(f"--{name} is of the stages of a configuration (--config); this is one training.")
    if given.get("lists") is None:
        for name in ("passages", "depth"):
            if name in given:
                raise InputError(f"--{name} says nothing without --lists; give both.")


def _trainer() -> type[Any]:
    from hf_dense.finetuning.biencoder import BiencoderTrainingArguments

    return BiencoderTrainingArguments
