"""The sentences of a verdict, for every outcome."""

from __future__ import annotations

import random

import pytest

from hf_dense.evaluation.result import RetrievalResult
from hf_dense.experiments.adaptation.verdict import HARMED, OPEN, OUTDONE, PAID, Alone, Effort, Verdict, judge

QUERIES = [f"q{number}" for number in range(400)]


def result(name: str, mean: float, seed: int, spread: float = 0.2) -> RetrievalResult:
    rng = random.Random(seed)
    values = {query: min(1.0, max(0.0, rng.gauss(mean, spread))) for query in QUERIES}
    return RetrievalResult(name, "test", {"ndcg@10": sum(values.values()) / len(values)}, {"ndcg@10": values}, 0.0)


def verdict(
    tuned: float, pretrained: float, *, steps: int = 30, longest: int = 90, judged: int = 400, made: bool = False
) -> Verdict:
    results = [result("fine-tuned", tuned, 1), result("RetroMAE, fine-tuned", pretrained, 2)]
    best = max(results, key=lambda one: one.metrics["ndcg@10"])
    return judge(
        Alone(results[0], steps, 30, longest),
        results[1],
        Effort(42.0, 1200, 4.0),
        best,
        {"base": result("base", 0.3, 3), "BM25": result("BM25", 0.4, 4)},
        judged=judged,
        made=made,
    )


def test_pretraining_that_paid() -> None:
    found = verdict(0.5, 0.6)
    assert found.pretraining == PAID
    assert found.needed is None
    assert found.best == "RetroMAE, fine-tuned"
    assert found.sentences[0].startswith("Pre-training paid: +")
    assert found.sentences[0].endswith("400 queries) for 42 minutes (1,200 steps, 4.0 epochs).")
    assert found.sentences[-1].startswith("Use RetroMAE, fine-tuned: nDCG@10 ")
    assert "against BM25 (p = 0.0002)" in found.sentences[-1]


def test_pretraining_that_harmed() -> None:
    found = verdict(0.6, 0.5)
    assert (found.pretraining, found.best) == (HARMED, "fine-tuned")
    assert found.sentences[0].startswith("Skip pre-training: it harmed, -")
    assert found.sentences[0].endswith(
        "in 42 minutes (1,200 steps, 4.0 epochs). Whether more of it would pay was not tried; "
        "--method none gives its time to fine-tuning."
    )


def test_more_fine_tuning_may_gain_more() -> None:
    found = verdict(0.6, 0.5, steps=90)
    assert found.pretraining == OUTDONE
    assert found.sentences[0].startswith("Skip pre-training: more fine-tuning gains more, -")
    assert found.sentences[1] == "Fine-tuning alone had 90 steps, in place of 30 after pre-training."


def test_whether_more_fine_tuning_was_tried_is_said() -> None:
    assert verdict(0.5, 0.6).sentences[1] == (
        "A longer fine-tuning alone, 90 steps in place of 30, was no better on the queries that choose."
    )
    assert verdict(0.5, 0.6, longest=30).sentences[1] == (
        "Whether more fine-tuning in its place would gain as much was not tried."
    )


def test_a_difference_that_does_not_show_names_the_queries_that_would() -> None:
    found = verdict(0.5, 0.513)
    assert found.pretraining == OPEN
    assert found.found.p_value >= 0.05
    assert "not shown to pay" in found.sentences[0]
    difference = found.found.difference
    spread = 2**0.5 * 0.2  # of differences of independent values
    assert found.needed == pytest.approx((2.8016 * spread / difference) ** 2, rel=0.25)
    assert f"{found.needed:,} judged queries; here were 400." in found.sentences[1]


@pytest.mark.slow
def test_where_a_part_of_the_queries_was_measured_a_longer_budget_is_asked_for() -> None:
    needed = verdict(0.5, 0.513).needed
    assert needed is not None
    few, enough = verdict(0.5, 0.513, judged=needed - 1), verdict(0.5, 0.513, judged=needed)
    assert f"400 of {needed:,} queries)" in enough.sentences[0]
    assert enough.sentences[1].endswith(
        f"would show with about {needed:,} judged queries; here were 400 of {needed:,}, as many as there was time for; "
        "give a longer budget (--budget)."
    )
    assert few.sentences[1].endswith("give a longer budget (--budget) and judge more.")
    assert "p = 0.0002, 400 of 1,437 queries)" in verdict(0.5, 0.6, judged=1437).sentences[0]


def test_made_queries_are_said_to_be_made() -> None:
    assert "were made of the documents" in verdict(0.5, 0.6, made=True).sentences[-1]
    assert not any("made of the documents" in sentence for sentence in verdict(0.5, 0.6).sentences)


def test_an_arm_that_made_queries_pass_over_is_named() -> None:
    base, tuned = result("base", 0.5, 3), result("fine-tuned", 0.5, 1)
    found = judge(
        Alone(tuned, 30, 30, 90), None, None, base, {"base": base}, judged=400, made=True, passed_over=tuned.name
    )
    assert found.sentences[1].startswith("Use base: ")
    assert found.sentences[2].startswith("fine-tuned had more on the queries that choose, but its lead over the base ")


def test_the_best_may_have_nothing_to_be_held_against() -> None:
    words = result("BM25", 0.6, 4)
    found = judge(
        Alone(result("fine-tuned", 0.4, 1), 30, 30, 90),
        result("RetroMAE, fine-tuned", 0.4, 2),
        Effort(1, 2, 3.0),
        words,
        {"BM25": words},
        judged=400,
        made=False,
    )
    assert found.sentences[-1] == f"Use BM25: nDCG@10 {words.metrics['ndcg@10']:.3f}."


def test_what_is_behind_bm25_is_not_recommended() -> None:
    tuned, pretrained = result("fine-tuned", 0.4, 1), result("RetroMAE, fine-tuned", 0.4, 2)
    others = {"base": result("base", 0.3, 3), "BM25": result("BM25", 0.5, 4)}
    alone = Alone(tuned, 30, 30, 90)
    found = judge(alone, pretrained, Effort(1, 2, 3.0), tuned, others, judged=400, made=False)
    assert found.best == "fine-tuned"
    assert found.sentences[-1].startswith("fine-tuned was the best on the queries that choose, but is behind BM25 on ")
    assert found.sentences[-1].endswith(" against BM25 (p = 0.0002). Use BM25 unless more queries say otherwise.")


@pytest.mark.parametrize(
    ("score", "used", "said"),
    [
        (
            0.6,
            "fine-tuned + BM25",
            "not pre-trained all the same: the queries that choose had fine-tuning alone ahead.",
        ),
        (0.6, "RetroMAE, fine-tuned + BM25", None),
        (0.4, "RetroMAE, fine-tuned", "pre-trained all the same: the queries that choose had that ahead."),
        (0.4, "fine-tuned, distilled", None),
        (0.6, "BM25", None),
    ],
)
def test_a_choice_that_the_verdict_would_not_make_is_explained(score: float, used: str, said: str | None) -> None:
    alone = Alone(result("fine-tuned", 0.5, 1), 30, 30, 90)
    pretrained, best = result("RetroMAE, fine-tuned", score, 2), result(used, 0.7, 3)
    found = judge(alone, pretrained, Effort(1, 2, 3.0), best, {}, judged=400, made=False)
    sentences = [sentence for sentence in found.sentences if "all the same" in sentence]
    assert len(sentences) == (said is not None)
    assert said is None or said in sentences[0]
    assert found.sentences[-1].startswith(f"Use {used}: ")


def test_less_than_an_epoch_is_not_rounded_to_none() -> None:
    assert str(Effort(minutes=7, steps=79, epochs=0.0451)) == "7 minutes (79 steps, 0.045 epochs)"
    assert str(Effort(minutes=7, steps=79, epochs=1.04)) == "7 minutes (79 steps, 1.0 epochs)"
