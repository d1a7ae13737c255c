"""How a budget is shared, as a pure function of the rates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hf_dense.errors import InputError
from hf_dense.experiments.adaptation.learning import Learning
from hf_dense.experiments.adaptation.plan import Task, describe, fit_batch, index_seconds, make_plan
from hf_dense.experiments.adaptation.rates import Rates

RATES = Rates(passage=0.02, kept=0.01, finetuning=1.0, pretraining={"retromae": 0.4}, memory=3 * 10**9)
TASK = Task(budget=600, spent=20, passages=2000, changed=False, kept=2000, queries=1000, models=4, weights=90 * 10**6)
COUNTS = {"passages": 100, "train": 900, "dev": 50, "test": 50}
LEARNING = Learning(queries=10, negatives=3, texts=16, finetuning_rate=5e-5, pretraining_rate=1e-4, length=128)


def test_all_that_is_planned_fits_into_the_budget_and_most_of_it_is_used() -> None:
    for budget in (300, 600, 1800, 7200, 10 * 3600):
        plan = make_plan(replace(TASK, budget=budget), RATES, LEARNING)
        expected = TASK.spent + sum(plan.seconds.values())
        assert 0.7 * budget < expected <= budget, (budget, plan)
        steps = plan.pretraining["retromae"]
        assert plan.seconds["pre-training"] == pytest.approx(steps * 0.4)
        assert plan.seconds["fine-tuning"] == pytest.approx(3 * plan.finetuning + plan.longer)
        assert plan.epochs == steps * 16 / 2000


def test_what_a_cross_encoder_takes_to_teach_is_planned_with() -> None:
    for scoring in (0.5, 4.0, 30.0):
        plan = make_plan(replace(TASK, budget=1800), replace(RATES, scoring=scoring), LEARNING)
        assert TASK.spent + sum(plan.seconds.values()) <= 1800
        assert plan.seconds["fine-tuning"] == pytest.approx((3 + scoring) * plan.finetuning + plan.longer)
    with pytest.raises(InputError, match="too short for this model"):
        make_plan(TASK, replace(RATES, scoring=60.0), LEARNING)
    rates, learning = fit_batch(TASK, replace(RATES, scoring=60.0), LEARNING)
    assert rates.scoring / 60 == rates.finetuning == 0.25
    assert (learning.queries, learning.negatives) == (5, 1)


def test_a_large_corpus_is_measured_on_a_part_and_indexed_where_that_fits() -> None:
    small = make_plan(replace(TASK, budget=1200), RATES, LEARNING)
    assert (small.pool, small.index) == (2000, True)
    large = make_plan(replace(TASK, passages=10_000), RATES, LEARNING)
    assert 500 <= large.pool < 10_000
    assert not large.index
    assert make_plan(replace(TASK, passages=10_000, budget=3600), RATES, LEARNING).index


def test_less_is_measured_where_fine_tuning_would_have_no_time() -> None:
    """Rates of two cores at 2.5 GHz, a base of six layers x 384, 2,070 passages and ten minutes."""
    slow = Rates(passage=0.0205, kept=0.0096, finetuning=3.34, pretraining={"retromae": 2.0}, memory=10**9)
    task = replace(TASK, spent=60, passages=2070, models=5)
    plan = make_plan(task, slow, LEARNING)
    assert plan.finetuning >= 10
    assert 500 <= plan.pool < 2070
    assert not plan.kept
    assert task.spent + sum(plan.seconds.values()) <= task.budget
    assert plan.pool < make_plan(replace(task, budget=900), slow, LEARNING).pool


def test_probes_take_a_twentieth_of_pretraining_at_most_or_there_are_none() -> None:
    counts = {}
    for budget in (600, 7200, 10 * 3600):
        plan = make_plan(replace(TASK, budget=budget), RATES, LEARNING)
        counts[budget] = plan.probes
        assert (plan.probes + bool(plan.probes)) * 2000 * RATES.passage <= 0.05 * plan.seconds["pre-training"] + 1
    assert counts[600] == 0 < counts[7200] <= counts[36000] == 20


def test_one_fine_tuning_has_the_time_of_pretraining_too() -> None:
    task = replace(TASK, queries=100_000)
    for methods in ({"retromae": 0.4}, {"retromae": 0.4, "dupmae": 0.8}):
        plan = make_plan(task, replace(RATES, pretraining=methods), LEARNING)
        for method, seconds in methods.items():
            assert (plan.longer - plan.finetuning) * 1.0 == pytest.approx(plan.pretraining[method] * seconds, abs=3)
    said = "\n".join(describe(plan, task, LEARNING, COUNTS, COUNTS))
    assert f"longer: {plan.longer:,} steps, as long as pre-training and fine-tuning together." in said
    assert "of 10 queries, at a rate of 5e-05" in said


def test_the_longer_fine_tuning_reads_no_query_more_than_ten_times() -> None:
    for methods in ({"retromae": 0.4}, {}):
        task = replace(TASK, budget=3600, queries=300)
        plan = make_plan(task, replace(RATES, pretraining=methods), LEARNING)
        assert (plan.finetuning, plan.longer) == (90, 300)
        said = "\n".join(describe(plan, task, LEARNING, COUNTS, COUNTS))
        assert "Fine-tuning once more, longer: 300 steps, 10 times over all queries." in said


def test_where_time_is_short_there_is_no_longer_fine_tuning() -> None:
    for budget, expected in ((150, False), (180, True)):
        plan = make_plan(replace(TASK, budget=budget, spent=0, kept=0, passages=500), RATES, LEARNING)
        assert bool(plan.longer) is expected, plan
        assert plan.finetuning >= 10


def test_methods_share_the_time_of_pretraining() -> None:
    both = replace(RATES, pretraining={"retromae": 0.4, "dupmae": 0.8})
    plan = make_plan(TASK, both, LEARNING)
    assert plan.pretraining["retromae"] == pytest.approx(2 * plan.pretraining["dupmae"], abs=2)
    assert plan.seconds["fine-tuning"] == 4 * plan.finetuning + plan.longer


def test_without_methods_fine_tuning_has_all_the_time() -> None:
    without = replace(RATES, pretraining={})
    for budget in (300, 600):
        plan, task = make_plan(replace(TASK, budget=budget), without, LEARNING), replace(TASK, budget=budget)
        assert (plan.pretraining, plan.epochs, plan.probes) == ({}, 0, 0)
        assert 0.7 * budget < TASK.spent + sum(plan.seconds.values()) <= budget
        assert plan.seconds["fine-tuning"] == 2 * plan.finetuning + plan.longer
        assert plan.finetuning > 2 * make_plan(task, RATES, LEARNING).finetuning
    said = "\n".join(describe(plan, task, LEARNING, COUNTS, COUNTS))
    assert "Fine-tuning, each of 2 times" in said
    assert "re-training" not in said


def test_batches_are_halved_where_the_time_is_too_short_for_whole_ones() -> None:
    """Rates of two cores of half that speed."""
    slow = Rates(passage=0.025, kept=0.012, finetuning=8.0, pretraining={"retromae": 5.0}, memory=10**9)
    task = replace(TASK, spent=70, passages=1962)
    with pytest.raises(InputError, match="too short"):
        make_plan(task, slow, LEARNING)
    rates, learning = fit_batch(task, slow, LEARNING)
    assert (rates.finetuning, learning.queries, learning.negatives) == (4.0, 10, 1)
    assert make_plan(task, rates, learning).finetuning >= 10
    assert fit_batch(TASK, RATES, LEARNING) == (RATES, LEARNING)
    _, least = fit_batch(replace(task, budget=120), slow, LEARNING)
    assert (least.queries, least.negatives, least.halved) == (5, 1, None)


def test_a_budget_that_is_too_short_names_one_that_is_not() -> None:
    with pytest.raises(InputError, match=r"of 1m is too short .* about (\d+) min or more") as raised:
        make_plan(replace(TASK, budget=60), RATES, LEARNING)
    minutes = int(str(raised.value).split("about ")[1].split()[0])
    make_plan(replace(TASK, budget=60 * minutes), RATES, LEARNING)


def test_many_epochs_are_warned_of_and_what_does_not_fit_is_said() -> None:
    task = replace(TASK, passages=100, budget=3600)
    said = "\n".join(describe(make_plan(task, RATES, LEARNING), task, LEARNING, COUNTS, COUNTS))
    assert "Warning: pre-training reads every passage" in said
    assert "Every arm is measured on all 100 passages" in said
    task = replace(TASK, passages=50_000)
    said = "\n".join(describe(make_plan(task, RATES, LEARNING), task, LEARNING, COUNTS, {"dev": 20, "test": 30}))
    assert "Warning" not in said
    assert "of the 50,000 passages, with 30 of 50 test, 20 of 50 dev queries" in said
    assert "is built last, if there is time left" in said


def test_an_index_takes_what_one_model_of_several_takes_for_its_part() -> None:
    plan = make_plan(replace(TASK, passages=50_000), RATES, LEARNING)
    assert index_seconds(plan, 2 * plan.pool, 4) == pytest.approx(plan.seconds["encoding"] / 2)
