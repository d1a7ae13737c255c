"""Ablations: what their rows say, and what is refused before anything is trained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_retriever import write_dataset
from transformers import TrainingArguments

from hf_dense.errors import InputError
from hf_dense.evaluation.measures import METRICS
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.experiments import ablation
from hf_dense.experiments.ablation import Trial, bottleneck_gaps, format_variants, make_rows, run_ablation
from hf_dense.experiments.sweep_options import AblationOptions
from hf_dense.finetuning.pipeline import Pipeline
from hf_dense.pretraining.options import PretrainingOptions
from hf_dense.storage.output import Output


def result(name: str, *scores: float) -> RetrievalResult:
    per_query = {metric: {f"q{at}": score for at, score in enumerate(scores)} for metric in METRICS}
    return RetrievalResult(name, "dev", dict.fromkeys(METRICS, sum(scores) / len(scores)), per_query, 1.0)


def test_rows_are_means_over_seeds_compared_with_the_first() -> None:
    found = {
        "all": [result("all", 0.2, 0.4, 0.6), result("all", 0.4, 0.6, 0.8)],
        "less": [result("less", 0.1, 0.3, 0.5), result("less", 0.1, 0.3, 0.5)],
    }
    first, second = make_rows(found, "mrr@10", {"less": {"half": 0.25, "other": 0.5}})
    assert first.metrics["ndcg@10"] == pytest.approx(0.5)
    assert first.by_seed == pytest.approx([0.4, 0.6])
    assert first.against_first is None
    assert second.against_first is not None
    assert second.against_first.difference == pytest.approx(-0.2)
    assert second.against_first.queries == 3
    table = format_variants([first, second], "mrr@10").splitlines()
    assert table[0].endswith("| MRR@10: difference to the first | MRR@10 by seed | bottleneck gap |")
    assert table[2] == "| all | 0.5000 | 0.5000 | 0.5000 | - | 0.4000 / 0.6000 | - |"
    assert "| -0.2000 (" in table[3]
    assert table[3].endswith("| 0.250 / 0.500 |")


def test_one_seed_has_no_column_of_its_own() -> None:
    rows = make_rows({"all": [result("all", 0.2, 0.3)], "less": [result("less", 0.1, 0.3)]}, "mrr@10", {})
    table = format_variants(rows, "mrr@10")
    assert "by seed" not in table
    assert "gap" not in table


def test_a_gap_is_the_mean_of_the_end_of_pre_training_and_of_the_seeds(tmp_path: Path) -> None:
    trials = [Trial("none", "none", None, Pipeline("data", "a", "b"))]
    for seed, end in ((0, 0.4), (1, 0.8)):
        arguments = TrainingArguments(str(tmp_path / str(seed)), use_cpu=True)
        trials.append(Trial("one", str(seed), (PretrainingOptions("condenser", "c"), arguments), trials[0].pipeline))
        history: list[dict[str, float]] = [{"step": 5, "decoder_gap": 9.0}, {"step": 8, "decoder_gap": end - 0.1}]
        history += [{"step": 10, "decoder_gap": end + 0.1, "decoder_loss": 3.0}, {"step": 10, "train_loss": 1.0}]
        (tmp_path / str(seed)).mkdir()
        (tmp_path / str(seed) / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    assert bottleneck_gaps(trials) == {"one": {"decoder": pytest.approx(0.6)}}


def test_a_later_variants_fault_is_known_before_the_first_is_trained(tmp_path: Path) -> None:
    data = str(write_dataset(tmp_path / "data"))
    pipeline = Pipeline(data, "anything", str(tmp_path / "out" / "x" / "finetuned"))
    wrong = PretrainingOptions("simlm", "anything", decoders='{"decoder": {"layers": -1}}')
    trials = [Trial("good", "good", None, pipeline), Trial("wrong", "wrong", (wrong, None), pipeline)]  # type: ignore[arg-type]
    options = AblationOptions(str(tmp_path / "out"), split="test")
    with pytest.raises(InputError, match=r"The variant 'wrong' cannot be pre-trained: .*layers"):
        run_ablation(options, trials)
    absent = PretrainingOptions("condenser", "no/where.jsonl")
    with pytest.raises(InputError, match=r"The variant 'wrong' cannot be pre-trained: .*no/where\.jsonl"):
        run_ablation(options, [trials[0], replace(trials[1], pretraining=(absent, None))])  # type: ignore[arg-type]
    for changed, message in (
        (AblationOptions(str(tmp_path / "out"), split="train"), "The split 'train' is trained on"),
        (AblationOptions(str(tmp_path / "out"), split="test", metric="map"), "metric is 'map'"),
        (AblationOptions(str(tmp_path / "out"), split="none"), "none"),
        (AblationOptions(str(tmp_path / "out"), split="test", seeds=[0, 0]), "The seeds are 0, 0; name some, each"),
        (AblationOptions(str(tmp_path / "out"), split="test", seeds=[]), "The seeds are none"),
        (AblationOptions(str(tmp_path / "out"), split="test", side_by_side=0), "side_by_side is 0"),
    ):
        with pytest.raises(InputError, match=message):
            run_ablation(changed, trials[:1])
    other = Trial("other", "other", None, replace(pipeline, collection=str(write_dataset(tmp_path / "other"))))
    with pytest.raises(InputError, match=r"are of the collections .*data and .*other; name one with --collection"):
        run_ablation(options, [trials[0], other])
    assert not (tmp_path / "out").exists()


def test_side_by_side_what_others_start_from_is_trained_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = str(write_dataset(tmp_path / "data"))
    given = PretrainingOptions("condenser", data)
    pretrained = {name: TrainingArguments(str(tmp_path / name), use_cpu=True) for name in ("a", "b")}
    trials = [
        Trial(name, f"{name}-seed0", start and (given, pretrained[start]), Pipeline(data, "anything", name))
        for name, start in (("first", "a"), ("same start", "a"), ("other", "b"), ("none", None), ("none too", None))
    ]
    rounds, read = list[tuple[dict[str, Any], int | None]](), list[str]()

    def run(commands: dict[str, Any], _: Path, at_once: int | None = None) -> None:
        rounds.append((commands, at_once))

    def read_back(_: AblationOptions, trial: Trial, command: str = "") -> RetrievalResult:
        read.append(trial.place)
        return result(trial.variant, 0.2, 0.3)

    monkeypatch.setattr(ablation, "run_side_by_side", run)
    monkeypatch.setattr(ablation, "run_trial", read_back)
    monkeypatch.setattr(ablation, "bottleneck_gaps", lambda _: {})
    options = AblationOptions(str(tmp_path / "out"), split="test", side_by_side=2)
    run_ablation(options, trials, program=["sweep", "x"])
    (first, at_once), (later, _) = rounds
    assert list(first) == ["first-seed0", "other-seed0", "none-seed0", "none too-seed0"]
    assert at_once == 2
    assert first["other-seed0"] == ["sweep", "x", "--only", "other-seed0"]
    assert list(later) == ["same start-seed0"]
    assert read == [trial.place for trial in trials]


def test_of_trials_that_were_done_no_time_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = str(write_dataset(tmp_path / "data")), tmp_path / "out"
    trials = [Trial(name, name, None, Pipeline(data, "anything", name)) for name in ("done", "one", "two")]
    with Output(out).occupy("ablation", {}, again=True) as work:
        with Output(out / "done" / "evaluation-test").occupy("evaluation", {}) as evaluation:
            evaluation.complete()
        work.complete()
    monkeypatch.setattr(ablation, "run_trial", lambda _, trial, command="": result(trial.variant, 0.2, 0.3))
    monkeypatch.setattr(ablation, "bottleneck_gaps", lambda _: {})
    run_ablation(AblationOptions(str(out), split="test"), trials)
    said = [line for line in capsys.readouterr().err.splitlines() if " done in " in line]
    assert [line.partition(" done in")[0] for line in said] == ["one: 1 of 2", "two: 2 of 2"]


def test_a_trial_that_fails_says_which_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise InputError("The loss is no number at step 7.")

    data = str(write_dataset(tmp_path / "data"))
    monkeypatch.setattr(ablation, "run_pipeline", broken)
    options = AblationOptions(str(tmp_path / "out"), split="test")
    with pytest.raises(InputError, match=r"^twice the rate-seed1: The loss is no number at step 7\.$"):
        run_ablation(options, [Trial("twice the rate", "twice the rate-seed1", None, Pipeline(data, "anything", "x"))])
