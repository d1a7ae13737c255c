"""The papers' sweeps: how retrieval goes with the share of masked tokens, pre-training steps and training queries.

All encoders of a sweep are fine-tuned and evaluated in the same way; `hf_dense.comparison` does each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import AutoModel, TrainingArguments, set_seed

from hf_dense.comparison import (
    Settings,
    Variant,
    VariantResult,
    encoder_shape,
    make_start,
    mean_per_query,
    pairs_of,
    run_variant,
    shared_tokenizer,
)
from hf_dense.data.collections import content_hash
from hf_dense.errors import InputError
from hf_dense.evaluation.analyses import CurvePoint, curve_point
from hf_dense.evaluation.analysis_plots import draw_curves
from hf_dense.evaluation.provenance import provenance
from hf_dense.evaluation.retrieval import METRICS, build_task
from hf_dense.evaluation.significance import Comparison, compare_paired
from hf_dense.files import atomic_directory, write_text
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments
from hf_dense.hub.export import check_fit
from hf_dense.hub.loading import drop_pooler, load_encoder, load_tokenizer
from hf_dense.methods import get_method
from hf_dense.modeling.configuration_bottleneck import Decoder, merge
from hf_dense.pretraining.pretrain import PretrainingOptions
from hf_dense.processes import run_side_by_side
from hf_dense.replacing import check_replaceable

SWEEPS = {
    "masking": "share of tokens masked",
    "steps": "pre-training steps",
    "fraction": "share of the training queries",
}
UNTRAINED = "no pre-training"
_DESCRIPTION = "settings.json"
PRETRAINING: dict[str, Any] = {  # of small encoders; docs/evidence.md
    "max_steps": 4000,
    "per_device_train_batch_size": 16,
    "learning_rate": 2e-3,
    "warmup_steps": 0.1,
    "weight_decay": 0.01,
    "logging_steps": 50,
    "save_strategy": "steps",
    "save_steps": 500,
    "save_total_limit": 1,
}
FINETUNING: dict[str, Any] = {
    "max_steps": 300,
    "per_device_train_batch_size": 64,
    "learning_rate": 1e-3,
    "temperature": 0.05,
}


@dataclass
class SweepOptions:
    """What is varied, and what stays the same."""

    sweep: str = field(
        metadata={
            "help": "what is varied: masking (share of tokens masked), steps (of pre-training, 0 for none) or fraction "
            "(share of the training queries, with and without pre-training)"
        }
    )
    values: list[float] = field(metadata={"help": "its values; all others are compared with the first"})
    dataset: str = field(metadata={"help": "dataset directory with a corpus, queries and qrels for train and --split"})
    output_dir: str = field(metadata={"help": "receives sweep.md, sweep.png and sweep.json; goes on where it stopped"})
    method: str | None = field(default=None, metadata={"help": "pre-training method"})
    method_options: dict | str | None = field(  # type: ignore[type-arg]
        default=None, metadata={"help": "more options of examples/pretrain.py, e.g. {decoders: {decoder: {layers: 1}}}"}
    )
    part: str = field(default="decoder", metadata={"help": "masking: whose tokens, encoder or decoder"})
    encoder: str | None = field(
        default=None, metadata={"help": "fraction: pre-trained encoder or checkpoint, in place of --method"}
    )
    backbone: str | None = field(
        default=None, metadata={"help": "encoder that pre-training starts from; none starts from random weights"}
    )
    hidden: int = field(default=128, metadata={"help": "from random weights: width of the encoder"})
    layers: int = field(default=2, metadata={"help": "from random weights: its number of layers"})
    vocabulary: int = field(default=4000, metadata={"help": "from random weights: tokens, trained on the corpus"})
    max_length: int = field(default=64, metadata={"help": "longest text in tokens, special tokens included"})
    similarity: str = field(default="cosine", metadata={"help": "dot or cosine"})
    pretraining: dict | str | None = field(  # type: ignore[type-arg]
        default=None, metadata={"help": "changes to the TrainingArguments of pre-training, e.g. {max_steps: 10000}"}
    )
    finetuning: dict | str | None = field(  # type: ignore[type-arg]
        default=None, metadata={"help": "changes to those of fine-tuning, e.g. {temperature: 0.02}"}
    )
    split: str = field(default="dev", metadata={"help": "queries that are measured"})
    metric: str = field(default="mrr@10", metadata={"help": f"that is drawn and tested: {', '.join(METRICS)}"})
    seeds: list[int] = field(default_factory=lambda: [0], metadata={"help": "every value is run with each"})
    side_by_side: int = field(default=1, metadata={"help": "runs at once, in processes of one thread each"})


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


@dataclass(frozen=True)
class Row:
    """What one value gave.

    Attributes:
        point: curve (method, or "no pre-training"), value, and the drawn metric with its interval over the queries.
        metrics: means over queries and seeds.
        by_seed: the drawn metric, in the order of the seeds.
        against_first: its difference to the first value of the same curve.
        against_untrained: to no pre-training at the same value, where that is another curve.
    """

    point: CurvePoint
    metrics: dict[str, float]
    by_seed: list[float]
    against_first: Comparison | None
    against_untrained: Comparison | None


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
    rows = _rows(options, runs, results)
    _write(options, rows, output_dir)
    return rows


def run_one(options: SweepOptions, name: str) -> VariantResult | None:
    """Do one run of `plan_sweep`; what is complete is read back. None for a pre-training that others start from."""
    run, directory = plan_sweep(options)[name], Path(options.output_dir) / name
    if run.value is None:
        make_start(run.settings, run.variant, directory)
        return None
    return run_variant(run.settings, run.variant, directory, run.start)


def plan_sweep(options: SweepOptions) -> dict[str, Run]:
    """The runs of a sweep by name (of their directories), pre-trainings that others start from first.

    Raises:
        InputError: an unknown sweep or method, values that make no sense, or options that do not go together.
    """
    _check_values(options)
    given, more = _mapping(options.pretraining, "pretraining"), _mapping(options.method_options, "method_options")
    pretraining = {**PRETRAINING, **given}
    if options.sweep == "steps":
        steps = [int(value) for value in options.values]
        pretraining["max_steps"] = max(given.get("max_steps", 0), *steps)
        pretraining |= {"save_strategy": "steps", "save_steps": math.gcd(*steps), "save_total_limit": None}
    settings = Settings(
        dataset=options.dataset,
        hidden=options.hidden,
        layers=options.layers,
        vocabulary=options.vocabulary,
        max_length=options.max_length,
        backbone=options.backbone,
        pretraining=pretraining,
        finetuning={**FINETUNING, **_mapping(options.finetuning, "finetuning")},
        split=options.split,
        similarity=options.similarity,
    )
    curve = options.method or Path(options.encoder or "").name
    shared: dict[str, Run] = {}
    runs: dict[str, Run] = {}
    for seed in options.seeds:
        seeded = replace(settings, seed=seed)
        pretrained, start = f"pretrained-seed{seed}", options.encoder
        if options.sweep != "masking" and not options.encoder:
            shared[pretrained] = Run(curve, None, seeded, Variant(pretrained, options.method, more))
            start = str(Path(options.output_dir, pretrained, "start"))
        for value in options.values:
            name = f"{curve}-{_shown(value)}-seed{seed}"
            if options.sweep == "masking":
                changes = masked_at(options.method or "", options.part, value, more, settings)
                runs[name] = Run(curve, value, seeded, Variant(name, options.method, changes))
            elif options.sweep == "steps":
                checkpoint = f"{start}/checkpoint-{int(value)}" if value else None
                runs[name] = Run(curve, value, seeded, Variant(name), checkpoint)
            else:
                few = replace(seeded, fraction=value)
                untrained = f"no-pre-training-{_shown(value)}-seed{seed}"
                like = None
                if options.encoder and not options.backbone:
                    like = str(Path(options.output_dir, f"untrained-seed{seed}"))
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
                changes[name] = {"attention": f"sampled:{_shown(rate)}"}
            elif spec.view is not None and spec.view.select not in ("none", "complement"):
                changes[name] = {"view": {"rate": rate}}
        if not changes:
            raise InputError(f"{method} masks no tokens of its own in its {part}'s view, so there is nothing to vary.")
        changed: dict[str, Any] = {**declared, key: merge(given.get(key) or {}, changes)}
        config(backbone_config=sizes, **changed)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    return {**given, key: changed[key]}


def format_rows(rows: Sequence[Row], options: SweepOptions) -> str:
    """The rows as a Markdown table."""
    pairs = any(row.against_untrained for row in rows)
    varied = f"{SWEEPS[options.sweep]}{f' ({options.part})' if options.sweep == 'masking' else ''}"
    head = ["", varied, "nDCG@10", "MRR@10", "Recall@100", f"{options.metric}: difference to the first value"]
    head += [f"{options.metric}: to {UNTRAINED}"] * pairs
    lines = [head, ["---", *["---:"] * 4, *["---"] * (len(head) - 5)]]
    for row in rows:
        compared = [row.against_first, row.against_untrained][: 1 + pairs]
        metrics = [f"{row.metrics[metric]:.4f}" for metric in METRICS]
        lines.append([row.point.curve, _shown(row.point.x), *metrics, *map(_compared, compared)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _check_values(options: SweepOptions) -> None:
    """Raise `InputError` where the options alone show that the sweep cannot be run."""
    if options.sweep not in SWEEPS:
        raise InputError(f"Unknown sweep {options.sweep!r}; choose one of: {', '.join(SWEEPS)}.")
    for value in options.values:
        fits, allowed = {
            "masking": (0 < value < 1, "a share above 0 and below 1"),
            "fraction": (0 < value <= 1, "a share above 0 and at most 1"),
            "steps": (value >= 0 and float(value).is_integer(), "a whole number of steps, 0 for none"),
        }[options.sweep]
        if not fits:
            raise InputError(f"{_shown(value)} is no value of the sweep {options.sweep!r}; each is {allowed}.")
    for name, given, least in (("values", options.values, 2), ("seeds", options.seeds, 1)):
        if len(set(given)) < max(len(given), least):
            raise InputError(f"A sweep needs at least {least} {name}, each only once.")
    if options.encoder and (options.sweep != "fraction" or options.method):
        raise InputError("--encoder is for the sweep 'fraction', in place of --method.")
    if not options.encoder:
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


def _check(options: SweepOptions, runs: Mapping[str, Run]) -> None:
    """Raise `InputError` where the trainings' options, the data or the encoders show that a run would fail."""
    settings = next(iter(runs.values())).settings
    try:
        TrainingArguments(options.output_dir, seed=0, resume_from_checkpoint=None, **settings.pretraining)
        finetuning = BiencoderTrainingArguments(options.output_dir, seed=0, **settings.finetuning)
        more = _mapping(options.method_options, "method_options")
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
                f"{_shown(fraction)} of the training queries (seed {seed}) makes {pairs} pairs, fewer than one batch "
                f"of {finetuning.per_device_train_batch_size}; take more, or lower per_device_train_batch_size."
            )
    for encoder in filter(None, (options.encoder, options.backbone)):
        check_fit(load_tokenizer(encoder), load_encoder(encoder).config, encoder, options.max_length, "cls")


def _claim(options: SweepOptions, settings: Settings, output_dir: Path) -> None:
    """Write what this directory is for, or refuse it when it is for something else."""
    check_replaceable(output_dir, marker=_DESCRIPTION)
    named = {name: getattr(options, name) for name in ("sweep", "method", "part", "encoder")}
    varied = {"dataset": content_hash(options.dataset), "fraction": 1.0, "seed": 0, "split": ""}
    method_options = _mapping(options.method_options, "method_options")
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


def _rows(options: SweepOptions, runs: Mapping[str, Run], results: Mapping[str, VariantResult]) -> list[Row]:
    """Means over the seeds, and paired tests over the queries, each query's mean over the seeds."""
    own: dict[tuple[str, float], list[VariantResult]] = {}
    for name, result in results.items():
        own.setdefault((runs[name].curve, runs[name].value or 0.0), []).append(result)
    scores = {place: mean_per_query(of_seeds) for place, of_seeds in own.items()}
    metric, rows = options.metric, []
    for curve in dict.fromkeys(curve for curve, _ in own):
        for value in options.values:
            found, first = scores[curve, value], scores[curve, options.values[0]]
            untrained = scores.get((UNTRAINED, value)) if curve != UNTRAINED else None
            rows.append(
                Row(
                    point=curve_point(curve, value, found[metric]),
                    metrics={name: sum(values.values()) / len(values) for name, values in found.items()},
                    by_seed=[result.retrieval.metrics[metric] for result in own[curve, value]],
                    against_first=compare_paired(found[metric], first[metric]) if found is not first else None,
                    against_untrained=compare_paired(found[metric], untrained[metric]) if untrained else None,
                )
            )
    return rows


def _write(options: SweepOptions, rows: Sequence[Row], output_dir: Path) -> None:
    """`sweep.png`, `sweep.md` and `sweep.json`."""
    points = sorted((row.point for row in rows), key=lambda point: point.x)
    whose = f" in the {options.part}'s view" if options.sweep == "masking" else ""
    figure = draw_curves(points, metric=options.metric, x_label=f"{SWEEPS[options.sweep]}{whose}")
    axes = figure.axes[0]
    for line in list(axes.lines):
        for row in rows:
            if row.point.curve == line.get_label() and len(row.by_seed) > 1:
                axes.plot([row.point.x] * len(row.by_seed), row.by_seed, "_", color=line.get_color())
    figure.savefig(output_dir / "sweep.png", dpi=144)
    facts = {
        "rows": [asdict(row) for row in rows],
        "options": asdict(options),
        **provenance(options.seeds[0], options.dataset),
        "seeds": options.seeds,
    }
    write_text(output_dir / "sweep.json", json.dumps(facts, indent=1))
    queries = next(row.against_first.queries for row in rows if row.against_first)
    about = (
        f"{queries:,} queries of split {options.split!r} of {options.dataset}; seeds: "
        f"{', '.join(map(str, options.seeds))}. Differences with 95 % bootstrap intervals over the queries and "
        "p-values of the two-sided paired randomisation test; each query's score is its mean over the seeds."
    )
    write_text(output_dir / "sweep.md", f"{format_rows(rows, options)}\n\n{about}\n")


def _compared(found: Comparison | None) -> str:
    if found is None:
        return "-"
    return f"{found.difference:+.4f} ({found.low:+.4f} to {found.high:+.4f}, p = {found.p_value:.4f})"


def _shown(value: float) -> str:
    return f"{value:.12g}"


def _mapping(value: dict[str, Any] | str | None, name: str) -> dict[str, Any]:
    """An option that is a mapping, which flags give as JSON."""
    try:
        found = json.loads(value) if isinstance(value, str) else value or {}
    except json.JSONDecodeError as error:
        raise InputError(f"--{name} must be JSON such as '{{\"a\": 1}}', not {value!r}.") from error
    if not isinstance(found, dict):
        raise InputError(f"--{name} must be a mapping, not {value!r}.")
    return found
