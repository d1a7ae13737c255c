"""How the time is shared: what each arm gets, before anything long begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from hf_dense.errors import InputError
from hf_dense.experiments.adaptation.learning import Learning
from hf_dense.experiments.adaptation.options import write_budget
from hf_dense.experiments.adaptation.rates import Rates

_SAFE: Final = 0.85  # of the budget that is planned with
_STAGE: Final = 2.0  # seconds that each stage needs to begin and to end
_STAGES: Final = 12  # and two more of a longer fine-tuning
_MEASURING: Final = (0.25, 0.15, 0.1)  # of the time, at most, for encoding
_KEEPING: Final = 0.8  # of as much, at most, for what is kept
_FINETUNING: Final = 0.6  # of what is left, at most, for the fine-tunings, where there are pre-trainings too
_BESIDE_LONGER: Final = 0.4  # likewise, where one more of them takes as long as a pre-training
_EPOCHS: Final = 3  # of fine-tuning, at most
_MOST_EPOCHS: Final = 10  # of the longer one
_LONGER: Final = 2  # times the steps, at least: less would be no other arm
_STEPS: Final = (10, 1000)  # of fine-tuning
_LEAST_POOL: Final = 500  # passages
_PROBING: Final = 0.05  # of pre-training, at most, for its probes
_PROBES: Final = (2, 20)  # of each, if there are any, and at most
_PROBED: Final = 2_200  # texts of a probe, at most (hf_dense.pretraining.probe)
_MANY_EPOCHS: Final = 20  # of pre-training: more is warned of


@dataclass(frozen=True)
class Task:
    """What is to be planned for.

    Attributes:
        budget: seconds in all.
        spent: seconds that have gone by.
        passages: of the corpus.
        changed: whether some of them are indexed otherwise than they are measured.
        kept: passages of the other collection; 0 where none is measured.
        queries: to train on.
        models: that are encoded with, but for that of the longer fine-tuning.
        weights: bytes of one.
    """

    budget: float
    spent: float
    passages: int
    changed: bool
    kept: int
    queries: int
    models: int
    weights: int


@dataclass(frozen=True)
class Plan:
    """What is done.

    Attributes:
        pool: passages that every arm is measured on: all, or so many of them.
        kept: whether the other collection is measured.
        index: whether time is kept for encoding all passages for the result.
        finetuning: steps of each fine-tuning, but for the longer one.
        pretraining: steps of each pre-training, by method.
        epochs: that the longest pre-training takes.
        probes: of retrieval during each pre-training, one before it aside; 0 where they would take too long.
        seconds: expected of each part.
        memory: bytes expected at the peak.
        disk: bytes expected at the end.
        longer: steps of one more fine-tuning, with the time of a pre-training on top; 0 where there is no time for it.
        lines: all of it in words.
    """

    pool: int
    kept: bool
    index: bool
    finetuning: int
    pretraining: dict[str, int]
    epochs: float
    probes: int
    seconds: dict[str, float]
    memory: int
    disk: int
    longer: int = 0
    lines: tuple[str, ...] = ()


def tuned_arms(methods: int) -> int:
    """How many arms are fine-tuned alike: the base, what each method made of it, and the better of these, distilled."""
    return methods + 2


def make_plan(task: Task, rates: Rates, learning: Learning) -> Plan:
    """Share the budget: measuring first, then fine-tuning; pre-training and a longer fine-tuning share the rest alike.

    Where fine-tuning would have no time otherwise, the longer one is left out, and then less is measured.

    Raises:
        InputError: the budget is too short for anything.
    """
    if plan := _fitting(task, rates, learning):
        return plan
    measuring = task.models * min(task.passages, _LEAST_POOL) * rates.passage
    training = _STEPS[0] * _alike(rates) / _for_finetuning(rates, longer=False)
    least = (task.spent + _STAGE * _STAGES + 2 * measuring + training) / _SAFE
    raise InputError(
        f"The budget of {write_budget(task.budget)} is too short for this model on this machine; give about "
        f"{max(least, 1.5 * task.budget) / 60:.0f} min or more (--budget)."
    )


def fit_batch(task: Task, rates: Rates, learning: Learning) -> tuple[Rates, Learning]:
    """Halve the batches of fine-tuning while the time is too short for steps of them."""
    while (halved := learning.halved) and _fitting(task, rates, learning) is None:
        learning, rates = halved, rates.halved
    return rates, learning


def _fitting(task: Task, rates: Rates, learning: Learning) -> Plan | None:
    """The plan that measures most of those that have time for fine-tuning, a longer one too if possible; or None."""
    for measuring, longer in product(_MEASURING, (True, False)):
        plan = _share(task, rates, learning, measuring, longer)
        if plan.finetuning >= _STEPS[0] and bool(plan.longer) == longer:
            return plan
    return None


def _share(task: Task, rates: Rates, learning: Learning, measuring: float, longer: bool) -> Plan:
    """The plan with so much of the time for measuring, at most, and with or without a longer fine-tuning."""
    rest = _STAGE * (_STAGES + 2 * longer)
    time = _SAFE * task.budget - task.spent - rest
    models = task.models + longer
    kept = task.kept > 0 and models * task.kept * rates.kept <= _KEEPING * measuring * time
    keeping = models * task.kept * rates.kept if kept else 0.0
    pool = min(task.passages, max(_LEAST_POOL, int(measuring * time / (models * rates.passage))))
    encoding = models * pool * rates.passage
    whole = task.passages * rates.passage if pool < task.passages or task.changed else 0.0
    index = whole <= measuring / 2 * time
    left = time - keeping - encoding - (whole if index else 0.0)
    finetuning, more, tuning = _tunings(task, rates, learning, left, longer)
    share = (left - tuning) / max(len(rates.pretraining), 1)
    steps = {method: max(1, int(share / seconds)) for method, seconds in rates.pretraining.items()}
    seconds = {
        **({"pre-training": sum(steps[method] * rates.pretraining[method] for method in steps)} if steps else {}),
        "fine-tuning": tuning,
        "encoding": encoding + keeping + (whole if index else 0.0),
        "the rest": rest,
    }
    return Plan(
        pool=pool,
        kept=kept,
        index=index,
        finetuning=finetuning,
        longer=more,
        pretraining=steps,
        probes=_probes(share, min(pool, _PROBED) * rates.passage) if steps else 0,
        epochs=max(steps.values(), default=0) * learning.texts / task.passages,
        seconds=seconds,
        memory=rates.memory,
        disk=_disk(task, len(steps), more > 0),
    )


def _tunings(task: Task, rates: Rates, learning: Learning, left: float, longer: bool) -> tuple[int, int, float]:
    """Steps of each fine-tuning and of the longer one, 0 for none, and the seconds of all, with so many left."""
    methods = len(rates.pretraining)
    wanted = min(max(_STEPS[0], _EPOCHS * task.queries // learning.queries), _STEPS[1])
    alike = _alike(rates)
    steps = min(wanted, max(0, int(_for_finetuning(rates, longer) * left / alike)))
    free = left - steps * alike
    share = (free - steps * rates.finetuning) / (methods + 1)  # of each pre-training, and of the longer one on top
    more = min(steps + int(share / rates.finetuning), _most_steps(task, learning))
    if not longer or more < _LONGER * steps:
        more = 0
    return steps, more, steps * alike + more * rates.finetuning


def _alike(rates: Rates) -> float:
    """Seconds of a step of all arms that are fine-tuned alike, with what a teacher takes for it."""
    return tuned_arms(len(rates.pretraining)) * rates.finetuning + rates.scoring


def _most_steps(task: Task, learning: Learning) -> int:
    """Of the longer fine-tuning."""
    return _MOST_EPOCHS * task.queries // learning.queries


def _for_finetuning(rates: Rates, longer: bool) -> float:
    """The share of what is left that fine-tunings of the same steps have at most."""
    if not rates.pretraining:
        return 1.0
    return _BESIDE_LONGER if longer else _FINETUNING


def index_seconds(plan: Plan, passages: int, models: int) -> float:
    """What encoding all passages takes at most, as fast as `models` read those that are measured on."""
    return plan.seconds["encoding"] / (models * plan.pool) * passages


def _probes(training: float, seconds: float) -> int:
    """How many probes of so many seconds go into a training of so many."""
    fitting = min(int(_PROBING * training / seconds) - 1, _PROBES[1])  # one comes before the first step
    return fitting if fitting >= _PROBES[0] else 0


def _disk(task: Task, methods: int, longer: bool) -> int:
    """Models, each with a checkpoint of three times its size (weights and both moments of Adam)."""
    return task.weights * (4 * (tuned_arms(methods) + longer + methods) + 1)


def describe(
    plan: Plan, task: Task, learning: Learning, counts: Mapping[str, int], measured: Mapping[str, int]
) -> list[str]:
    """The plan in lines.

    Args:
        plan: what is done.
        task: what it was planned for.
        learning: how it is trained.
        counts: of the queries of each split.
        measured: how many of dev and of test are measured on.
    """
    pool = f"all {plan.pool:,} passages"
    if plan.pool < task.passages:
        queries = ", ".join(f"{measured[split]:,} of {counts[split]:,} {split}" for split in ("test", "dev"))
        pool = f"{plan.pool:,} of the {task.passages:,} passages, with {queries} queries"
    asked = ", ".join(f"{counts[split]:,} {split}" for split in ("train", "dev", "test"))
    forgotten = "" if plan.kept or not task.kept else "; for what is forgotten there is no time"
    how_long = _how_long(plan, task, learning)
    longer = [f"Fine-tuning once more, longer: {plan.longer:,} steps, {how_long}."] if plan.longer else []
    lines = [
        f"{task.passages:,} passages; queries: {asked}.",
        *(
            f"Pre-training by {method}: {steps:,} steps of {learning.texts} texts, "
            f"at a rate of {learning.pretraining_rate:g}."
            for method, steps in plan.pretraining.items()
        ),
        f"Fine-tuning, each of {tuned_arms(len(plan.pretraining))} times: {plan.finetuning:,} steps of "
        f"{learning.queries} queries, at a rate of {learning.finetuning_rate:g}"
        f"{f', with BM25 negatives of each: {learning.negatives}' if learning.negatives else ''}"
        f"{', both in bfloat16' if learning.bf16 else ''}.",
        *longer,
        f"Every arm is measured on {pool}{forgotten}.",
        "Expected: "
        + ", ".join(f"{what} {_minutes(seconds)}" for what, seconds in plan.seconds.items())
        + f"; {_minutes(sum(plan.seconds.values()))} in all, {plan.memory / 1e9:.1f} GB of memory, "
        + f"{plan.disk / 1e9:.1f} GB of disk.",
    ]
    if plan.epochs > _MANY_EPOCHS:
        lines.append(
            f"Warning: pre-training reads every passage {plan.epochs:.0f} times; more documents, or a smaller budget, "
            "would serve as well."
        )
    if not plan.index:
        lines.append("The index of all passages is built last, if there is time left; else hf-dense search builds it.")
    return lines


def _how_long(plan: Plan, task: Task, learning: Learning) -> str:
    if plan.longer == _most_steps(task, learning):
        return f"{_MOST_EPOCHS} times over all queries"
    return "as long as pre-training and fine-tuning together" if plan.pretraining else "which fills the budget"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"
