"""What a sweep consists of: its options, and the trainings that they call for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from hf_dense.errors import InputError
from hf_dense.evaluation.measures import METRICS
from hf_dense.experiments.comparison import FINETUNING, PRETRAINING, Settings, Variant, encoder_shape
from hf_dense.experiments.sweep_options import FEW, SWEEPS, SweepOptions
from hf_dense.methods import get_method
from hf_dense.modeling.configuration_bottleneck import Decoder, merge
from hf_dense.pretraining.options import given_mapping
from hf_dense.storage.training_values import check_seeds

UNTRAINED = "no pre-training"
_Run = TypeVar("_Run")
_SHAPE: Final = ("hidden", "layers", "vocabulary")
_UNSHARED: Final = {  # options of a pre-training that an encoder without it would not have; what shares them
    "backbone": "give --backbone",
    "backbone_config": "give --hidden and --layers",
    "tokenizer": "give --vocabulary or --backbone",
    "bottleneck": "leave it out, or pre-train with hf-dense pretrain and give --model",
}
_LARGEST: Final = 10**5  # layers, or dimensions: no machine holds an encoder above


@dataclass(frozen=True)
class Run:
    """One training of a sweep.

    Args:
        curve: that its result is on.
        value: of what is varied; None for a pre-training that other runs start from.
        settings: its data, sizes and seed.
        variant: its pre-training.
        start: encoder or checkpoint that is fine-tuned; None for the variant's own.
    """

    curve: str
    value: float | None
    settings: Settings
    variant: Variant
    start: str | None = None


def plan_sweep(options: SweepOptions) -> dict[str, Run]:
    """The runs of a sweep by name (of their directories), pre-trainings that others start from first.

    Raises:
        InputError: an unknown sweep or method, values that make no sense, or options that do not go together.
    """
    _check_values(options)
    given, more = (
        given_mapping(options.pretraining, "pretraining"),
        given_mapping(options.method_options, "method_options"),
    )
    if "seed" in {**given, **given_mapping(options.finetuning, "finetuning")}:
        raise InputError("pretraining and finetuning take no seed; name those of the sweep with --seeds.")
    pretraining = {**PRETRAINING, **given}
    if options.sweep == "steps":
        steps = [int(value) for value in options.values]
        pretraining["max_steps"] = max(given.get("max_steps", 0), *steps)
        pretraining |= {"save_strategy": "steps", "save_steps": math.gcd(*steps), "save_total_limit": None}
    _check_untrained(options, more)
    settings = Settings(
        collection=options.collection,
        hidden=options.hidden,
        layers=options.layers,
        vocabulary=options.vocabulary,
        max_length=options.max_length,
        backbone=options.backbone,
        pretraining=pretraining,
        finetuning={**FINETUNING, **given_mapping(options.finetuning, "finetuning")},
        split=options.split,
        similarity=options.similarity,
    )
    curve = options.method or Path(options.model or "").name
    shared: dict[str, Run] = {}
    runs: dict[str, Run] = {}
    for seed in options.seeds:
        seeded = replace(settings, seed=seed)
        pretrained, start = f"pretrained-seed{seed}", options.model
        if options.sweep != "masking" and not options.model:
            shared[pretrained] = Run(curve, None, seeded, Variant(pretrained, options.method, more))
            start = str(Path(options.out, pretrained, "start"))
        for value in options.values:
            name = f"{curve}-{shown(value)}-seed{seed}"
            if options.sweep == "masking":
                changes = masked_at(options.method or "", options.part, value, more, settings)
                runs[name] = Run(curve, value, seeded, Variant(name, options.method, changes))
            elif options.sweep == "steps":
                checkpoint = f"{start}/checkpoint-{int(value)}" if value else None
                runs[name] = Run(curve, value, seeded, Variant(name), checkpoint)
            else:
                part = {"queries": int(value)} if options.sweep == "queries" else {"fraction": value}
                few = replace(seeded, **part)
                untrained = f"no-pre-training-{shown(value)}-seed{seed}"
                like = None
                if options.model and not options.backbone:
                    like = str(Path(options.out, f"untrained-seed{seed}"))
                runs[name] = Run(curve, value, few, Variant(name), start)
                runs[untrained] = Run(UNTRAINED, value, few, Variant(untrained), like)
    return {**shared, **runs}


def masked_at(method: str, part: str, rate: float, given: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Options of a method that masks another share of the tokens.

    Every encoder's or decoder's view that hides tokens of its own draw gets the rate: what a complement hides follows
    from its encoder, and of RetroMAE's decoder it is what each position does not see.

    Args:
        method: its name.
        part: `encoder` or `decoder`.
        rate: fraction of tokens.
        given: other `PretrainingOptions`.
        settings: the encoder's sizes.

    Returns:
        `given` with the rate.

    Raises:
        InputError: nothing is masked there, or the method cannot have that rate.
    """
    config = get_method(method).config
    key = f"{part}s"
    try:
        declared: dict[str, Any] = {name: given.get(name) for name in ("encoders", "decoders")}
        sizes: Any = None if settings.backbone else encoder_shape(settings)
        specs = getattr(config(backbone_config=sizes, **declared), f"{part}_specs")
        changes: dict[str, Any] = {}
        for name, spec in specs.items():
            if isinstance(spec, Decoder) and spec.attention_kind == "sampled":
                changes[name] = {"attention": f"sampled:{shown(rate)}"}
            elif spec.view is not None and spec.view.select not in ("none", "complement"):
                changes[name] = {"view": {"rate": rate}}
        if not changes:
            raise InputError(f"{method} masks no tokens of its own in its {part}'s view, so there is nothing to vary.")
        changed: dict[str, Any] = {**declared, key: merge(given.get(key) or {}, changes)}
        config(backbone_config=sizes, **changed)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    return {**given, key: changed[key]}


def _check_values(options: SweepOptions) -> None:
    """Raise `InputError` where the options alone show that the sweep cannot be run."""
    if options.sweep not in SWEEPS:
        raise InputError(f"Unknown sweep {options.sweep!r}; choose one of: {', '.join(SWEEPS)}.")
    for value in options.values:
        fits, allowed = {
            "masking": (0 < value < 1, "a share above 0 and below 1"),
            "fraction": (0 < value <= 1, "a share above 0 and at most 1"),
            "queries": (value >= 0 and float(value).is_integer(), "a whole number of training queries, 0 for none"),
            "steps": (value >= 0 and float(value).is_integer(), "a whole number of steps, 0 for none"),
        }[options.sweep]
        if not fits:
            raise InputError(f"{shown(value)} is no value of the sweep {options.sweep!r}; each is {allowed}.")
    if len({shown(value) for value in options.values}) < max(len(options.values), 2):
        raise InputError("A sweep needs at least 2 values, each only once.")
    check_seeds(options.seeds)
    _check_idle(options)
    for name, size in (("hidden", options.hidden), ("layers", options.layers)):
        if not 1 <= size <= _LARGEST:
            raise InputError(f"{name} is {size}; it must be from 1 to {_LARGEST}.")
    if options.model and (options.sweep not in FEW or options.method):
        raise InputError(f"--model is for the sweeps {' and '.join(map(repr, FEW))}, in place of --method.")
    if not options.model:
        if options.method is None:
            raise InputError("Name the pre-training method with --method.")
        get_method(options.method)
    for name, given_name, choices in (
        ("part", options.part, ("encoder", "decoder")),
        ("metric", options.metric, METRICS),
        ("similarity", options.similarity, ("dot", "cosine")),
    ):
        if given_name not in choices:
            raise InputError(f"{name} is {given_name!r}; it must be one of: {', '.join(choices)}.")


def _check_idle(options: SweepOptions) -> None:
    """Raise `InputError` for an option that another one leaves without an effect."""
    idle = {
        "--model": (options.model, ("method_options", "pretraining", "part", *_SHAPE)),
        "--backbone": (options.backbone, _SHAPE),
        f"--sweep {options.sweep}": (options.sweep != "masking", ("part",)),
    }
    defaults = {option.name: option.default for option in fields(SweepOptions)}
    for beside, (there, names) in idle.items():
        for name in names if there else ():
            if getattr(options, name) != defaults[name]:
                raise InputError(f"--{name} does nothing beside {beside}; leave it out.")


def _check_untrained(options: SweepOptions, more: Mapping[str, Any]) -> None:
    """Raise `InputError` where the encoder without pre-training would differ by more than that."""
    untrained = options.sweep in FEW or (options.sweep == "steps" and 0 in options.values)
    for name, instead in _UNSHARED.items():
        if untrained and more.get(name) is not None:
            raise InputError(
                f"--method_options has {name}, which the encoder without pre-training would not have; {instead}."
            )


def chosen(runs: Mapping[str, _Run], name: str) -> _Run:
    """The run of a sweep, or the trial of an ablation, that `--only` names.

    Raises:
        InputError: it has none of that name.
    """
    if name not in runs:
        raise InputError(f"--only {name} is no run of this sweep; there are: {', '.join(runs)}.")
    return runs[name]


def shown(value: float) -> str:
    """A value as names of directories and tables have it."""
    return f"{value:.12g}"
