"""The verb `hf-dense sweep`."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hf_dense.commands.options import (
    add_config,
    add_options,
    build_arguments,
    build_options,
    check_keys,
    given_flags,
    introduce,
    option_names,
    read_values,
)
from hf_dense.commands.output import command_line
from hf_dense.commands.recipes import read_configs
from hf_dense.errors import InputError
from hf_dense.experiments.sweep_options import AblationOptions, SweepOptions

if TYPE_CHECKING:
    from hf_dense.experiments.ablation import Trial

_PARTS: Final = ("pretraining", "finetuning")  # of what a variant changes
_LONGEST: Final = 200  # bytes of a variant's name; a directory's, which has the seed too, has 255 at most
_MEASURING: Final = {  # of hf-dense finetune
    "measure_on": "an ablation measures the split that its own option split names",
    "keep": "measure another collection with hf-dense evaluate afterwards",
}

SUMMARY: Final = "See how retrieval goes with masking, pre-training steps, training queries, or any change."
_INTRODUCTION: Final = """\
Pre-train an encoder for every value of what is varied (once, where steps or queries are), fine-tune and measure all in
the same way, and write a table, a picture and everything behind them. A sweep that was interrupted goes on.

  hf-dense sweep --sweep masking --values 0.15 0.3 0.5 --method retromae --collection DIR --out build/masking
  hf-dense sweep --sweep steps --values 0 1000 2000 --method retromae --collection DIR --out build/steps
  hf-dense sweep --sweep fraction --values 0.05 0.2 1 --model build/retromae --collection DIR --out build/few

A configuration with variants is an ablation: each is pre-trained as hf-dense pretrain does it and fine-tuned in the
stages of hf-dense finetune, with what the file changes for it (hf-dense recipes lists those of the papers).

  hf-dense sweep --config simlm_objectives --collection DIR --out build/objectives
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `hf-dense sweep`."""
    introduce(parser, _INTRODUCTION)
    add_config(parser)
    add_options(parser, SweepOptions)
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one run, in a process of its own


def run(arguments: argparse.Namespace) -> None:
    """Run the sweep, or one of its runs, or an ablation."""
    configured = read_configs(arguments.config)
    if "variants" in configured:
        _run_ablation(arguments, configured)
        return
    values = read_values(arguments, SweepOptions)
    options = build_options(SweepOptions, values, given_flags(arguments, SweepOptions))
    from hf_dense.experiments.sweep import run_one, run_sweep
    from hf_dense.experiments.sweep_results import format_rows

    if arguments.only:
        run_one(options, arguments.only)
        return
    rows = run_sweep(options, _program(arguments))
    print(f"{format_rows(rows, options)}\n\nWritten: {options.out}/sweep.md, sweep.png, sweep.json")


def _program(arguments: argparse.Namespace) -> list[str]:
    """What starts the same command again."""
    return [sys.executable, "-m", "hf_dense.commands.main", *arguments.words]


def _run_ablation(arguments: argparse.Namespace, values: Mapping[str, Any]) -> None:
    given = given_flags(arguments, SweepOptions)
    known = option_names(AblationOptions)
    if other := next((name for name in given if name not in known), None):
        raise InputError(f"--{other} is not of an ablation; its variants say what differs.")
    check_keys(values, {"variants", "pretraining", "finetuning", *known}, arguments.config)
    options = build_options(AblationOptions, values, given)
    trials = plan_ablation(options, values)
    from hf_dense.experiments.ablation import format_variants, run_ablation, run_trial
    from hf_dense.experiments.sweep_plan import chosen
    from hf_dense.storage.process_group import is_main_process

    command = command_line(arguments)
    if arguments.only:
        run_trial(options, chosen({trial.place: trial for trial in trials}, arguments.only), command)
        return
    rows = run_ablation(options, trials, command, _program(arguments))
    if is_main_process():
        table = format_variants(rows, options.metric)
        print(f"{table}\n\nWritten: {options.out}/sweep.md, sweep.png, sweep.json")


def plan_ablation(options: AblationOptions, values: Mapping[str, Any]) -> list[Trial]:
    """The trials of an ablation, for every variant and seed; those that pre-train alike share that.

    Args:
        options: see the fields.
        values: `variants` by name, each with what it changes of `pretraining` (null: there is none) and `finetuning`;
            these two as the verbs of their names read them, `config` naming recipes that they go on from.

    Raises:
        InputError: no variants, two of one directory, or options that are none.
    """
    variants = values["variants"]
    if not isinstance(variants, dict) or len(variants) < 2:
        raise InputError("An ablation has two variants at least, each with a name and a mapping of what it changes.")
    shared = _parts({part: values.get(part) for part in _PARTS}, "The file")
    changed = {name: _parts(changes, f"The variant {name!r}") for name, changes in variants.items()}
    for name, changes in changed.items():
        if "collection" in (changes.get("finetuning") or {}):
            raise InputError(
                f"The variant {name!r} has a collection; all are fine-tuned and measured on one, which stands in the "
                "file's finetuning or in --collection."
            )
    places = {name: re.sub(r"[^\w.-]+", "-", str(name)).strip("-.").lower() for name in variants}
    if len(set(places.values())) < len(places) or not all(places.values()):
        raise InputError(f"The names of the variants are too much alike for directories: {', '.join(places)}.")
    if long := [name for name, place in places.items() if len(os.fsencode(place)) > _LONGEST]:
        raise InputError(f"The variant {long[0]!r} has too long a name for a directory; give it a shorter one.")
    _check_models(shared, changed)
    found, pretrained = [], dict[str, str]()
    for seed in options.seeds:
        for name, changes in changed.items():
            sections = {part: _section(shared, changes, part) for part in _PARTS}
            found.append(_trial(options, str(name), f"{places[name]}-seed{seed}", seed, sections, pretrained))
    return found


def _parts(given: Any, where: str) -> Mapping[str, Any]:
    """What is given of each part, checked to be mappings."""
    for value in (given, *(given.values() if isinstance(given, dict) else ())):
        if not isinstance(value, dict | None):
            raise InputError(f"{where} has {value!r} where a mapping of options belongs.")
    check_keys(given or {}, set(_PARTS), [where])
    for name, section in (given or {}).items():
        if "seed" in (section or {}):
            raise InputError(f"{where} has a seed in {name}; all are run with each of the option seeds.")
    return given or {}


def _check_models(shared: Mapping[str, Any], changed: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `InputError` for a model to fine-tune where variants fine-tune what they pre-train."""
    untrained = [name for name, changes in changed.items() if _section(shared, changes, "pretraining") is None]
    places = {f"The variant {name!r}": changes for name, changes in changed.items() if name not in untrained}
    if not untrained:
        places["The file"] = shared
    for where, part in places.items():
        if (part.get("finetuning") or {}).get("model") is not None:
            raise InputError(
                f"{where} names a model to fine-tune, but what is pre-trained is fine-tuned; leave it out, or write "
                "pretraining: null beside it."
            )


def _section(values: Mapping[str, Any], changes: Mapping[str, Any], part: str) -> dict[str, Any] | None:
    """The options of a part: of its recipes, then what all variants share, then what one changes; None for no part."""
    inline = [dict(section.get(part) or {}) for section in (values, changes)]
    if not any(inline) or (part in changes and changes[part] is None):
        return None
    named: Any = [section.pop("config", None) for section in inline]
    configs = named[1] or named[0] or []
    return read_configs([configs] if isinstance(configs, str) else configs, None, inline)


def _trial(
    options: AblationOptions,
    name: str,
    place: str,
    seed: int,
    sections: Mapping[str, dict[str, Any] | None],
    pretrained: dict[str, str],
) -> Trial:
    """One variant with one seed; `pretrained` has the directories of the pre-trainings before it, by what they are."""
    from transformers import TrainingArguments

    from hf_dense.experiments.ablation import Trial
    from hf_dense.finetuning.pipeline import Pipeline
    from hf_dense.pretraining.options import PretrainingOptions

    ours = {"seed": seed, "overwrite": options.overwrite}
    where, pretraining = [f"The variant {name!r}"], sections["pretraining"]
    finetuning = {**(sections["finetuning"] or {}), **ours, "out": f"{options.out}/{place}/finetuned"}
    if pretraining is not None:
        key = json.dumps([pretraining | ours], sort_keys=True, default=str)
        finetuning["model"] = pretrained.setdefault(key, f"{options.out}/{place}/pretrained")
        pretraining = {**pretraining, **ours, "out": finetuning["model"]}
        check_keys(pretraining, {"out", *option_names(PretrainingOptions, TrainingArguments)}, where)
    if options.collection:
        finetuning["collection"] = options.collection
    for option, instead in _MEASURING.items():
        if option in finetuning:
            raise InputError(f"{where[0]} has {option} in finetuning; {instead}.")
    check_keys(finetuning, {*option_names(Pipeline)}, where)
    if finetuning.get("model") is None:
        raise InputError(f"{where[0]} is not pre-trained and names no model to fine-tune; give its finetuning one.")
    try:
        training = None
        if pretraining is not None:
            training = (
                build_options(PretrainingOptions, pretraining, {}),
                build_arguments(TrainingArguments, pretraining, argparse.Namespace(rest=()), ()),
            )
        return Trial(name, place, training, Pipeline.of(finetuning))
    except InputError as error:
        raise InputError(f"{where[0]} cannot be run: {error}") from error
