"""What was found, in sentences: whether pre-training paid, and which retriever to use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hf_dense.evaluation.measures import title
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.significance import Comparison, compare_paired
from hf_dense.experiments.adaptation.options import NO_METHOD
from hf_dense.experiments.asked import METRIC

PAID, HARMED, OUTDONE, OPEN, UNTRIED = "paid", "harmed", "outdone", "not shown", "not tried"
_SKIPPED: Final = {
    HARMED: "it harmed",
    OUTDONE: "more fine-tuning gains more",
    OPEN: "it is not shown to pay",
}
_CERTAIN: Final = 0.05  # p-value below which a difference is taken for real
_POWER: Final = 1.959964 + 0.841621  # normal quantiles: found at the 5 % level four times of five
_MOST: Final = 100_000  # queries that anybody could judge


@dataclass(frozen=True)
class Effort:
    """What pre-training took.

    Attributes:
        minutes: by the clock.
        steps: of optimisation.
        epochs: how often it read every passage.
    """

    minutes: float
    steps: int
    epochs: float

    def __str__(self) -> str:
        took = f"{self.minutes:.0f} minutes" if self.minutes >= 1.5 else f"{60 * self.minutes:.0f} seconds"
        epochs = f"{self.epochs:.1f}" if self.epochs >= 1 else f"{self.epochs:.2g}"
        return f"{took} ({self.steps:,} steps, {epochs} epochs)"


@dataclass(frozen=True)
class Alone:
    """Fine-tuning without pre-training, of the length that dev chose.

    Attributes:
        result: what it came to.
        steps: of it.
        usual: steps of fine-tuning after pre-training.
        longest: the most that were tried without it.
    """

    result: RetrievalResult
    steps: int
    usual: int
    longest: int

    @property
    def is_longer(self) -> bool:
        """Whether it has the time of pre-training on top."""
        return self.steps > self.usual

    def __str__(self) -> str:
        if self.longest == self.usual:
            return "Whether more fine-tuning in its place would gain as much was not tried."
        if self.is_longer:
            return f"Fine-tuning alone had {self.steps:,} steps, in place of {self.usual:,} after pre-training."
        return (
            f"A longer fine-tuning alone, {self.longest:,} steps in place of {self.usual:,}, was no better on the "
            "queries that choose."
        )


@dataclass(frozen=True)
class Verdict:
    """The answer to "does pre-training on my corpus pay, and which retriever should I use?".

    Attributes:
        pretraining: `paid`; `harmed`, or `outdone` by more fine-tuning; `not shown`; or `not tried`.
        found: pre-trained, then fine-tuned, against fine-tuned alone; None where that was not tried.
        effort: that pre-training took; None likewise.
        needed: queries at which a difference of this size would most likely show; None where it does show.
        best: name of the arm to use.
        sentences: all of it in words.
    """

    pretraining: str
    found: Comparison | None
    effort: Effort | None
    needed: int | None
    best: str
    sentences: tuple[str, ...]


def judge(
    alone: Alone,
    pretrained: RetrievalResult | None,
    effort: Effort | None,
    best: RetrievalResult,
    others: Mapping[str, RetrievalResult],
    *,
    judged: int,
    made: bool,
    passed_over: str | None = None,
) -> Verdict:
    """Say what came out.

    Args:
        alone: fine-tuned alone.
        pretrained: pre-trained, then fine-tuned; None where that was not tried.
        effort: that pre-training took; None likewise.
        best: the arm that dev chose.
        others: the arms to hold it against, by their names: the base, BM25.
        judged: queries that there are to report on, of which a short budget measures a part.
        made: whether the queries were made of the documents.
        passed_over: name of an arm that was ahead of `best` on dev, where that was too little to choose it.
    """
    outcome, found, needed, sentences = UNTRIED, None, None, ["Whether pre-training pays was not tried."]
    if pretrained is not None and effort is not None:
        found = compare_paired(pretrained.per_query[METRIC], alone.result.per_query[METRIC])
        worse = OUTDONE if alone.is_longer else HARMED
        outcome = OPEN if found.p_value >= _CERTAIN else PAID if found.difference > 0 else worse
        needed = _needed(found, pretrained, alone.result) if outcome == OPEN else None
        sentences = [_of_pretraining(outcome, found, effort, judged)]
        if needed is not None:
            sentences.append(_of_queries(needed, found.queries, judged))
        sentences.append(str(alone))
        sentences += _of_choice(outcome == PAID, best.name, pretrained.name, alone.result.name)
    sentences.append(_of_best(best, others))
    if passed_over:
        sentences.append(
            f"{passed_over} had more on the queries that choose, but its lead over the base may be chance, and those "
            "queries are made of the documents: it was not chosen."
        )
    if made:
        queries = len(alone.result.per_query[METRIC])
        sentences.append(
            f"The {queries:,} queries were made of the documents, so this tells how well passages are found by "
            "words like their own; people ask in other words. Judged queries of yours would settle it"
            f"{f' ({needed:,} or more)' if needed and needed <= _MOST else ' (some hundreds)'}."
        )
    return Verdict(outcome, found, effort, needed, best.name, tuple(sentences))


def is_ahead(one: RetrievalResult, other: RetrievalResult) -> bool:
    """Whether a retriever is ahead of another on the same queries by more than chance."""
    found = compare_paired(one.per_query[METRIC], other.per_query[METRIC])
    return found.difference > 0 and found.p_value < _CERTAIN


def _of_pretraining(outcome: str, found: Comparison, effort: Effort, judged: int) -> str:
    points = 100 * found.difference, 100 * found.low, 100 * found.high
    figures = (
        f"{points[0]:+z.1f} points of {title(METRIC)} against fine-tuning alone (95 % interval {points[1]:+z.1f} to "
        f"{points[2]:+z.1f}, p = {found.p_value:.4f}, {_part(found.queries, judged)} queries)"
    )
    if outcome == PAID:
        return f"Pre-training paid: {figures} for {effort}."
    return (
        f"Skip pre-training: {_SKIPPED[outcome]}, {figures}, in {effort}. Whether more of it would pay was not tried; "
        f"--method {NO_METHOD} gives its time to fine-tuning."
    )


def _needed(found: Comparison, first: RetrievalResult, second: RetrievalResult) -> int | None:
    """Queries at which the difference would be found at the 5 % level with probability 0.8 (normal approximation)."""
    if found.difference == 0:
        return None
    differences = [first.per_query[METRIC][query] - value for query, value in second.per_query[METRIC].items()]
    mean = sum(differences) / len(differences)
    variance = sum((value - mean) ** 2 for value in differences) / max(len(differences) - 1, 1)
    return math.ceil(_POWER**2 * variance / mean**2)


def _part(queries: int, judged: int) -> str:
    return f"{queries:,} of {judged:,}" if queries < judged else f"{queries:,}"


def _of_queries(needed: int, queries: int, judged: int) -> str:
    if needed > _MOST:
        return "A difference as small as this one will hardly ever matter, nor could it be shown."
    here = f"would show with about {needed:,} judged queries; here were {_part(queries, judged)}"
    more = " and judge more" if needed > judged else ""
    advice = f", as many as there was time for; give a longer budget (--budget){more}" if queries < judged else ""
    return f"A difference of this size {here}{advice}."


def _of_choice(paid: bool, best: str, pretrained: str, alone: str) -> list[str]:
    """What to say where the queries that choose saw it otherwise than those that are reported on; names of arms."""
    if paid and best.startswith(alone):
        return ["The one to use was not pre-trained all the same: the queries that choose had fine-tuning alone ahead."]
    if not paid and best.startswith(pretrained):
        return ["The one to use was pre-trained all the same: the queries that choose had that ahead."]
    return []


def _of_best(best: RetrievalResult, others: Mapping[str, RetrievalResult]) -> str:
    figure = f"{title(METRIC)} {best.metrics[METRIC]:.3f}"
    against, ahead = [], []
    for name, other in others.items():
        if name != best.name:
            found = compare_paired(best.per_query[METRIC], other.per_query[METRIC])
            against.append(f"{100 * found.difference:+z.1f} points against {name} (p = {found.p_value:.4f})")
            if found.difference < 0 and found.p_value < _CERTAIN:
                ahead.append(name)
    figures = ", ".join([figure, *against])
    if not ahead:
        return f"Use {best.name}: {figures}."
    better = " or ".join(ahead)
    return (
        f"{best.name} was the best on the queries that choose, but is behind {better} on those that judge: {figures}. "
        f"Use {better} unless more queries say otherwise."
    )
