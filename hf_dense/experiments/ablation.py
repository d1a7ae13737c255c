"""An ablation: retrievers that differ in one thing, each pre-trained, fine-tuned in stages and measured alike."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from transformers import TrainingArguments

from hf_dense.data.collections import content_hash
from hf_dense.data.corpus import load_passages
from hf_dense.errors import InputError
from hf_dense.evaluation.measures import METRICS, mean_metrics, title
from hf_dense.evaluation.plots import draw_metrics, save_figure
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.retrieval import build_task, evaluate_retriever
from hf_dense.evaluation.significance import Comparison, compare_paired
from hf_dense.experiments.comparison import mean_per_query
from hf_dense.experiments.countdown import Countdown
from hf_dense.experiments.processes import run_side_by_side
from hf_dense.experiments.sweep_options import AblationOptions
from hf_dense.experiments.sweep_results import format_comparison
from hf_dense.finetuning.pipeline import Pipeline, run_pipeline
from hf_dense.methods import get_method
from hf_dense.pretraining.gap import SUFFIX
from hf_dense.pretraining.options import PretrainingOptions, check_options, given_mapping
from hf_dense.pretraining.pretrain import pretrain
from hf_dense.storage.checkpoints import load_history
from hf_dense.storage.files import write_text
from hf_dense.storage.manifest import COMPLETE, Manifest
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output
from hf_dense.storage.process_group import alone, are_several, is_main_process, wait_for_everyone
from hf_dense.storage.provenance import provenance
from hf_dense.storage.training_values import check_seeds

_TABLE, _PICTURE, _FACTS = "sweep.md", "sweep.png", "sweep.json"
_RETRIEVERS: Final = ("distilled", "retriever2", "retriever1")  # of which the first that there is is measured


@dataclass(frozen=True)
class Trial:
    """One variant with one seed.

    Args:
        variant: its name.
        place: name of the directory in which it is fine-tuned and measured.
        pretraining: what and how; None where fine-tuning starts from a model that is there already. Trials whose
            pre-training has the same directory share it.
        pipeline: the stages of fine-tuning, from that.
    """

    variant: str
    place: str
    pretraining: tuple[PretrainingOptions, TrainingArguments] | None
    pipeline: Pipeline


@dataclass(frozen=True)
class VariantRow:
    """What one variant gave.

    Attributes:
        name: of the variant.
        metrics: means over queries and seeds.
        by_seed: the tested metric, in the order of the seeds.
        against_first: its difference to the first variant, each query's score being its mean over the seeds.
        gaps: what each decoder loses, in nats, with another text's bottleneck: means over the last quarter of
            pre-training and over seeds. Empty where there is none to measure.
    """

    name: str
    metrics: dict[str, float]
    by_seed: list[float]
    against_first: Comparison | None
    gaps: dict[str, float]


def run_ablation(
    options: AblationOptions, trials: Sequence[Trial], command: str = "", program: Sequence[str] = ()
) -> list[VariantRow]:
    """Train and measure every trial, and write `sweep.md`, `sweep.png` and `sweep.json`.

    Args:
        options: see the fields; what is complete in `out` is read back.
        trials: of all variants and seeds. All of a variant measure the last retriever of its pipeline, on one
            collection.
        command: that starts it, for people.
        program: that starts it, where `side_by_side` is above 1; with `--only PLACE` it has to call `run_trial`.

    Returns:
        One row for each variant, in the order given.

    Raises:
        InputError: something given cannot work; what can be known of all trials is known before the first is trained.
    """
    _check(options, trials)
    output, results = Output(Path(options.out), options.overwrite, command), dict[str, list[RetrievalResult]]()
    with output.occupy("ablation", {}, claims=(_TABLE, _PICTURE, _FACTS), again=True) as work:
        side_by_side = bool(program) and options.side_by_side > 1
        if side_by_side:
            for round_ in _rounds(trials):
                commands = {trial.place: [*program, "--only", trial.place] for trial in round_}
                run_side_by_side(commands, output.path / "logs", options.side_by_side)
        waiting = [] if side_by_side else [trial for trial in trials if not _is_done(options, trial)]
        countdown = Countdown(len(waiting))
        for trial in trials:
            if (found := run_trial(options, trial, command)) is not None:
                results.setdefault(trial.variant, []).append(found)
            if trial in waiting:
                countdown.step(trial.place)
        rows = make_rows(results, options.metric, bottleneck_gaps(trials) if is_main_process() else {})
        if is_main_process():
            _write(options, trials, rows, output)
        work.complete()
    return rows


def run_trial(options: AblationOptions, trial: Trial, command: str = "") -> RetrievalResult | None:
    """Pre-train, fine-tune and measure one trial; what is complete is read back. None but in the main process."""
    found = None
    with _named(trial):
        if trial.pretraining is not None:
            pretrain(*trial.pretraining, command)
        models = run_pipeline(trial.pipeline, command)
    model = next(models[name] for name in _RETRIEVERS if name in models)
    if is_main_process():
        with alone():
            place = Output(Path(options.out), options.overwrite, command).at(trial.place, f"evaluation-{options.split}")
            collection, name = trial.pipeline.collection, trial.variant
            found = evaluate_retriever(model, collection, options.split, name=name, out=place)
    wait_for_everyone()
    return found


@contextmanager
def _named(trial: Trial) -> Iterator[None]:
    """Have the sentence of what fails say of which trial it is."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{trial.place}: {error}") from error


def _is_done(options: AblationOptions, trial: Trial) -> bool:
    """Whether a trial was measured before; `run_trial` sees to it that it is the same."""
    manifest = Manifest.load(Path(options.out, trial.place, f"evaluation-{options.split}"))
    return manifest is not None and manifest.state == COMPLETE


def bottleneck_gaps(trials: Sequence[Trial]) -> dict[str, dict[str, float]]:
    """By variant, what each decoder's gap was at the end of its pre-training; see `VariantRow`."""
    found: dict[str, dict[str, list[float]]] = {}
    for trial in trials:
        if trial.pretraining is None:
            continue
        history = load_history(str(trial.pretraining[1].output_dir))
        last = max((entry["step"] for entry in history), default=0)
        for entry in history:
            for name, value in entry.items():
                if name.endswith(SUFFIX) and entry["step"] > 0.75 * last:
                    found.setdefault(trial.variant, {}).setdefault(name.removesuffix(SUFFIX), []).append(value)
    return {variant: {name: fmean(values) for name, values in gaps.items()} for variant, gaps in found.items()}


def make_rows(
    results: Mapping[str, Sequence[RetrievalResult]], metric: str, gaps: Mapping[str, dict[str, float]]
) -> list[VariantRow]:
    """Means over seeds of each variant, and paired tests against the first.

    Args:
        results: by variant, one for each seed.
        metric: that is tested.
        gaps: by variant, of its decoders.
    """
    rows: list[VariantRow] = []
    first: dict[str, float] | None = None
    for name, of_seeds in results.items():
        scores = mean_per_query(of_seeds)
        rows.append(
            VariantRow(
                name,
                mean_metrics(scores),
                [result.metrics[metric] for result in of_seeds],
                None if first is None else compare_paired(scores[metric], first),
                gaps.get(name, {}),
            )
        )
        first = scores[metric] if first is None else first
    return rows


def format_variants(rows: Sequence[VariantRow], metric: str) -> str:
    """The rows as a Markdown table."""
    several = any(len(row.by_seed) > 1 for row in rows)
    measured = any(row.gaps for row in rows)
    head = ["", *map(title, METRICS), f"{title(metric)}: difference to the first"]
    head += [f"{title(metric)} by seed"] * several + ["bottleneck gap"] * measured
    lines = []
    for row in rows:
        metrics = [f"{row.metrics[name]:.4f}" for name in METRICS]
        seeds = [" / ".join(f"{value:.4f}" for value in row.by_seed)] * several
        gaps = [" / ".join(f"{gap:z.3f}" for gap in row.gaps.values()) or "-"] * measured
        lines.append([row.name, *metrics, format_comparison(row.against_first), *seeds, *gaps])
    return markdown_table(head, lines, range(1, len(METRICS) + 1))


def _rounds(trials: Sequence[Trial]) -> tuple[list[Trial], list[Trial]]:
    """The trials that pre-train or need no pre-training, then those that start from what one of these pre-trained."""
    first, later, begun = list[Trial](), list[Trial](), set[str | None]()
    for trial in trials:
        shared = None if trial.pretraining is None else trial.pretraining[1].output_dir
        (later if shared in begun else first).append(trial)
        begun |= {shared} - {None}
    return first, later


def _check(options: AblationOptions, trials: Sequence[Trial]) -> None:
    """Raise `InputError` where a later trial would fail by what is known already."""
    check_seeds(options.seeds)
    if options.side_by_side < 1:
        raise InputError(f"side_by_side is {options.side_by_side}; at least one trial runs at a time.")
    if options.side_by_side > 1 and are_several():
        raise InputError("With --side_by_side a sweep is one process; it starts those of the trials itself.")
    if options.metric not in METRICS:
        raise InputError(f"metric is {options.metric!r}; it must be one of: {', '.join(METRICS)}.")
    for trial in trials:
        if options.split == trial.pipeline.split:
            raise InputError(f"The split {options.split!r} is trained on; measure on another (--split).")
    check_declarations(trials)
    _check_corpora(trials)
    first, *others = dict.fromkeys(trial.pipeline.collection for trial in trials)
    if others:
        raise InputError(f"The variants are of the collections {first} and {others[0]}; name one with --collection.")
    build_task(first, options.split)


def check_declarations(trials: Sequence[Trial]) -> None:
    """Raise `InputError` for a variant whose encoders and decoders its method does not have so."""
    for trial in trials:
        if trial.pretraining is None:
            continue
        given, training = trial.pretraining
        try:
            check_options(given, training)
            encoders, decoders = given_mapping(given.encoders, "encoders"), given_mapping(given.decoders, "decoders")
            get_method(given.method).config(backbone_config=None, encoders=encoders, decoders=decoders)
        except (TypeError, ValueError) as error:
            raise InputError(f"The variant {trial.variant!r} cannot be pre-trained: {error}") from error


def _check_corpora(trials: Sequence[Trial]) -> None:
    """Raise `InputError` for a variant whose corpus cannot be read; a stream is opened when it is trained on."""
    given = [(trial.variant, trial.pretraining[0]) for trial in trials if trial.pretraining is not None]
    corpora = {(each.corpus, each.text_column): variant for variant, each in given if not each.streaming}
    for (corpus, text_column), variant in corpora.items():
        try:
            load_passages(corpus, text_column)
        except InputError as error:
            raise InputError(f"The variant {variant!r} cannot be pre-trained: {error}") from error


def _write(options: AblationOptions, trials: Sequence[Trial], rows: Sequence[VariantRow], output: Output) -> None:
    collection = trials[0].pipeline.collection
    facts = {
        "rows": [asdict(row) for row in rows],
        "options": asdict(options),
        "variants": {trial.variant: _described(trial) for trial in trials},
        **provenance(options.seeds[0], collection, content_hash(collection)),
        "seeds": options.seeds,
    }
    write_text(output.path / _FACTS, json.dumps(facts, indent=1))
    shown = [{"name": row.name, **{title(name): row.metrics[name] for name in METRICS}} for row in rows]
    save_figure(draw_metrics(shown), output.path / _PICTURE)
    about = (
        f"Split {options.split!r} of {collection}; seeds: {', '.join(map(str, options.seeds))}. Differences with 95 % "
        "bootstrap intervals over the queries and p-values of the two-sided paired randomisation test, not corrected "
        "for their number; each query's score is its mean over the seeds."
    )
    if any(row.gaps for row in rows):
        about += (
            " Bottleneck gap: what a decoder loses, in nats, with another text's vector; the mean over the last "
            "quarter of pre-training."
        )
    write_text(output.path / _TABLE, f"{format_variants(rows, options.metric)}\n\n{about}\n")


def _described(trial: Trial) -> dict[str, Any]:
    options = None if trial.pretraining is None else asdict(trial.pretraining[0])
    return {"pretraining": options, "finetuning": asdict(trial.pipeline)}
