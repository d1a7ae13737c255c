"""The plans of the evidence can be declared, as `hf-dense sweep` reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_dense.commands.recipes import read_configs
from hf_dense.commands.sweep import plan_ablation
from hf_dense.experiments.ablation import check_declarations
from hf_dense.experiments.sweep_options import AblationOptions, SweepOptions
from hf_dense.experiments.sweep_plan import plan_sweep

FOLDER = Path(__file__).parents[2] / "benchmarks" / "evidence"


@pytest.mark.parametrize(
    ("plans", "pretrainings"),
    [
        (["methods"], 12),
        (["recipes"], 7),
        (["masking"], 5),
        (["shapes"], 7),
        (["general_first"], 4),
        (["optimizers"], 3),
        (["methods_reqa_squad"], 7),
        (["contrast"], 5),
        (["steps"], 6),
        (["past_bm25"], 2),
        (["past_bm25", "past_bm25_reqa_squad"], 2),
    ],
)
def test_every_variant_can_be_declared(plans: list[str], pretrainings: int) -> None:
    values = read_configs([str(FOLDER / f"{plan}.yaml") for plan in plans])
    trials = plan_ablation(AblationOptions("out", "collection"), values)
    check_declarations(trials)
    assert [trial.variant for trial in trials] == list(values["variants"])
    assert len({trial.pipeline.model for trial in trials}) == pretrainings, "variants that pre-train alike share it"


@pytest.mark.parametrize("plan", ["few_labels"])
def test_every_value_can_be_planned(plan: str) -> None:
    options = SweepOptions(**read_configs([str(FOLDER / f"{plan}.yaml")]))
    runs = plan_sweep(options)
    assert {run.value for run in runs.values()} == {None, *options.values}


def test_every_plan_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {
        "contrast",
        "few_labels",
        "general_first",
        "masking",
        "methods",
        "methods_reqa_squad",
        "optimizers",
        "past_bm25",
        "past_bm25_reqa_squad",
        "recipes",
        "shapes",
        "steps",
    }
