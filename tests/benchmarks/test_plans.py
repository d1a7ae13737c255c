"""The plans of the evidence can be declared, as `hf-dense sweep` reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_dense.commands.recipes import read_configs
from hf_dense.commands.sweep import plan_ablation
from hf_dense.experiments.ablation import check_declarations
from hf_dense.experiments.sweep_options import AblationOptions

PLANS = sorted((Path(__file__).parents[2] / "benchmarks" / "evidence").glob("*.yaml"))


@pytest.mark.parametrize("plan", PLANS, ids=[plan.stem for plan in PLANS])
def test_every_variant_can_be_declared(plan: Path) -> None:
    values = read_configs([str(plan)])
    trials = plan_ablation(AblationOptions("out"), values)
    check_declarations(trials)
    assert [trial.variant for trial in trials] == list(values["variants"])
    assert len({trial.pipeline.model for trial in trials}) == len(trials), "two variants pre-train alike"
