"""Sweeps: what is planned, what is refused, what is done once, and the table at the end."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from matplotlib.image import imread
from tiny_retriever import write_dataset, write_encoder
from transformers import TrainingArguments

import hf_dense.experiments.comparison
from hf_dense.errors import InputError
from hf_dense.evaluation.measures import METRICS
from hf_dense.evaluation.result import RESULT_FILE, RetrievalResult
from hf_dense.experiments.comparison import Settings, pairs_of
from hf_dense.experiments.sweep import run_sweep
from hf_dense.experiments.sweep_plan import UNTRAINED, SweepOptions, masked_at, plan_sweep
from hf_dense.experiments.sweep_results import format_rows
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments
from hf_dense.hub.loading import load_encoder
from hf_dense.methods import METHODS, get_method
from hf_dense.pretraining.pretrain import PretrainingOptions
from hf_dense.storage.files import write_text

FEW = {"max_steps": 2, "per_device_train_batch_size": 4, "use_cpu": True, "disable_tqdm": True}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_dataset(tmp_path_factory.mktemp("sweep") / "data"))


def options(data: str, output_dir: Path, **changes: Any) -> SweepOptions:
    given: dict[str, Any] = {
        "sweep": "masking",
        "values": [0.2, 0.8],
        "dataset": data,
        "output_dir": str(output_dir),
        "method": "retromae",
        "hidden": 32,
        "vocabulary": 300,
        "max_length": 16,
        "pretraining": FEW,
        "finetuning": FEW,
        "split": "test",
    }
    return SweepOptions(**{**given, **changes})


class Trainings:
    """Stand for pre-training, export, fine-tuning and evaluation: note what is done, and may fail."""

    def __init__(self) -> None:
        self.pretrained: list[str] = []
        self.finetuned: list[str] = []
        self.fails_at = 0

    def pretrain(self, options: PretrainingOptions, training: TrainingArguments) -> None:
        decoders: Any = options.decoders
        self.pretrained.append(decoders["decoder"]["attention"])
        write_text(f"{training.output_dir}/trainer_state.json", '{"log_history": []}')

    def export(self, checkpoint: Path, output_dir: Path, **_: Any) -> Path:
        output_dir.mkdir(parents=True, exist_ok=True)
        return output_dir

    def finetune(self, model: Path, pairs: Dataset, arguments: BiencoderTrainingArguments) -> None:
        if len(self.finetuned) + 1 == self.fails_at:
            self.fails_at = 0
            raise KeyboardInterrupt
        self.finetuned.append(model.parent.name)
        assert arguments.output_dir
        write_text(f"{arguments.output_dir}/trainer_state.json", '{"log_history": []}')
        Path(arguments.output_dir, "model").mkdir()

    def evaluate(self, model: str, data: str, split: str, *, name: str, output_dir: Path) -> RetrievalResult:
        """Queries found at ranks that go by the share masked and by the seed."""
        _, rate, seed = name.split("-")
        values = [float(rate) - 0.01 * query - 0.1 * int(seed.removeprefix("seed")) for query in range(10)]
        per_query = {metric: {f"q{at}": value for at, value in enumerate(values)} for metric in METRICS}
        result = RetrievalResult(name, split, dict.fromkeys(METRICS, sum(values) / 10), per_query, 1.0)
        write_text(output_dir / RESULT_FILE, json.dumps(asdict(result)))
        return result


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    made = Trainings()
    names = {"export_sentence_transformer": "export", "evaluate_retriever": "evaluate"}
    for name in ("pretrain", "finetune", *names):
        monkeypatch.setattr(hf_dense.experiments.comparison, name, getattr(made, names.get(name, name)))
    return made


def test_a_sweep_goes_on_where_it_stopped(dataset: str, tmp_path: Path, trainings: Trainings) -> None:
    given = options(dataset, tmp_path / "out", seeds=[0, 1])
    trainings.fails_at = 3
    with pytest.raises(KeyboardInterrupt):
        run_sweep(given)
    assert not (tmp_path / "out" / "sweep.json").exists()
    rows = run_sweep(given)
    assert trainings.pretrained == ["sampled:0.2", "sampled:0.8"] * 2
    assert trainings.finetuned == [f"retromae-{rate}-seed{seed}" for seed in (0, 1) for rate in (0.2, 0.8)]
    assert run_sweep(given) == rows
    assert (len(trainings.pretrained), len(trainings.finetuned)) == (4, 4)


def test_a_value_may_be_added_but_nothing_else_changed(dataset: str, tmp_path: Path, trainings: Trainings) -> None:
    given = options(dataset, tmp_path / "out")
    run_sweep(given)
    rows = run_sweep(replace(given, values=[0.2, 0.5, 0.8]))
    assert [row.point.x for row in rows] == [0.2, 0.5, 0.8]
    assert trainings.pretrained == ["sampled:0.2", "sampled:0.8", "sampled:0.5"]
    for change, named in (
        ({"part": "encoder"}, "part"),
        ({"pretraining": {**FEW, "max_steps": 3}}, "pretraining"),
        ({"sweep": "steps", "values": [0, 2]}, "sweep"),
        ({"method_options": {"held_out": 0.1}}, "method_options"),
    ):
        with pytest.raises(InputError, match=f"a sweep with another {named};"):
            run_sweep(replace(given, **change))
    assert len(trainings.pretrained) == 3


def test_what_an_earlier_version_did_is_not_done_again(dataset: str, tmp_path: Path, trainings: Trainings) -> None:
    run_sweep(options(dataset, tmp_path))
    path = tmp_path / "retromae-0.2-seed0" / "variant.json"
    described = json.loads(path.read_text())
    del described["settings"]["fraction"], described["settings"]["backbone"]  # fields that came later
    path.write_text(json.dumps(described))
    run_sweep(options(dataset, tmp_path))
    assert len(trainings.finetuned) == 2


def test_the_table_and_the_picture_show_means_over_seeds(dataset: str, tmp_path: Path, trainings: Trainings) -> None:
    given = options(dataset, tmp_path / "out", seeds=[0, 1])
    first, second = run_sweep(given)
    assert first.by_seed == pytest.approx([0.155, 0.055])
    assert first.metrics["mrr@10"] == first.point.value == pytest.approx(0.105)
    assert first.point.low < first.point.value < first.point.high
    assert first.against_first is None
    assert second.against_first is not None
    assert second.against_first.difference == pytest.approx(0.6)
    assert second.against_first.p_value < 0.01
    table = format_rows([first, second], given).splitlines()
    assert table[0].startswith(
        "|  | share of tokens masked (decoder) | nDCG@10 | MRR@10 | Recall@100 | mrr@10: difference"
    )
    assert table[2] == "| retromae | 0.2 | 0.1050 | 0.1050 | 0.1050 | - |"
    assert table[3].startswith("| retromae | 0.8 | 0.7050 | 0.7050 | 0.7050 | +0.6000 (+0.6000 to +0.6000, p = 0.00")
    written = (tmp_path / "out" / "sweep.md").read_text()
    assert written.splitlines()[:4] == table
    assert "10 queries of split 'test'" in written
    facts = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert facts["rows"][1]["against_first"]["queries"] == 10
    assert facts["data"]["content_hash"]
    assert min(imread(tmp_path / "out" / "sweep.png").shape[:2]) > 300


@pytest.mark.slow
def test_a_real_masking_sweep_trains_with_each_rate(dataset: str, tmp_path: Path) -> None:
    rows = run_sweep(options(dataset, tmp_path))
    assert [row.point.x for row in rows] == [0.2, 0.8]
    for rate in (0.2, 0.8):
        config = json.loads((tmp_path / f"retromae-{rate}-seed0" / "start" / "config.json").read_text())
        assert config["decoders"]["decoder"]["attention"] == f"sampled:{rate}"


@pytest.mark.slow
def test_steps_are_checkpoints_of_one_pre_training(dataset: str, tmp_path: Path) -> None:
    rows = run_sweep(options(dataset, tmp_path, sweep="steps", values=[0, 2, 6]))
    start = tmp_path / "pretrained-seed0" / "start"
    assert {path.name for path in start.glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-4", "checkpoint-6"}
    assert [row.point.x for row in rows] == [0, 2, 6]
    exported = {value: load_encoder(tmp_path / f"retromae-{value}-seed0" / "exported").state_dict() for value in (2, 6)}
    for value, weights in exported.items():
        for name, tensor in load_encoder(start / f"checkpoint-{value}").state_dict().items():
            assert tensor.equal(weights[name]), (value, name)
    assert any(not tensor.equal(exported[6][name]) for name, tensor in exported[2].items())


@pytest.mark.slow
def test_pre_training_starts_from_the_backbone(dataset: str, tmp_path: Path) -> None:
    backbone = write_encoder(tmp_path / "backbone")
    given = options(dataset, tmp_path / "out", sweep="steps", values=[0, 2], backbone=str(backbone))
    assert len(run_sweep(given)) == 2
    own, none, some = (
        load_encoder(path).state_dict()["embeddings.word_embeddings.weight"]
        for path in (backbone, *(tmp_path / "out" / f"retromae-{steps}-seed0" / "exported" for steps in (0, 2)))
    )
    assert own.equal(none)
    assert not own.equal(some)
    assert (own - some).abs().max() < 0.02  # two steps of 2e-3, or the tokens would be others


@pytest.mark.slow
def test_few_shots_are_compared_with_an_encoder_without_pre_training(dataset: str, tmp_path: Path) -> None:
    encoder = str(write_encoder(tmp_path / "ours"))
    given = options(dataset, tmp_path / "out", sweep="fraction", values=[0.4, 1], method=None, encoder=encoder)
    rows = run_sweep(given)
    assert [(row.point.curve, row.point.x) for row in rows] == [
        ("ours", 0.4), ("ours", 1), (UNTRAINED, 0.4), (UNTRAINED, 1),
    ]  # fmt: skip
    assert [row.against_untrained is None for row in rows] == [False, False, True, True]
    table = format_rows(rows, given).splitlines()
    assert table[0].split(" | ")[-1] == "mrr@10: to no pre-training |"
    assert len({line.count("|") for line in table}) == 1
    ours, untrained = (load_encoder(path).state_dict() for path in (encoder, tmp_path / "out" / "untrained-seed0"))
    words = "embeddings.word_embeddings.weight"
    assert ours[words].shape == untrained[words].shape
    assert not ours[words].equal(untrained[words])


def test_pre_training_for_few_shots_is_done_once_for_a_seed(dataset: str, tmp_path: Path) -> None:
    runs = plan_sweep(options(dataset, tmp_path, sweep="fraction", values=[0.1, 0.5, 1], seeds=[3, 4]))
    assert [name for name, run in runs.items() if run.value is None] == ["pretrained-seed3", "pretrained-seed4"]
    assert {run.start for run in runs.values() if run.curve == "retromae" and run.settings.seed == 4} == {
        None, str(tmp_path / "pretrained-seed4" / "start"),
    }  # fmt: skip
    assert sum(run.curve == UNTRAINED for run in runs.values()) == 6
    assert runs["retromae-0.1-seed3"].settings.fraction == 0.1


def test_a_smaller_share_of_the_queries_is_among_a_larger_one(dataset: str) -> None:
    def drawn(fraction: float, seed: int) -> set[str]:
        return set(pairs_of(Settings(dataset, fraction=fraction, seed=seed))["query"])

    few, more = drawn(0.3, 0), drawn(0.7, 0)
    assert few < more < drawn(1.0, 0)
    assert few != drawn(0.3, 1)
    assert drawn(1.0, 0) == drawn(1.0, 1)


def masked_shares(name: str, part: str, rate: float) -> dict[str, Any]:
    """What a method's views hide after `masked_at`."""
    changes = masked_at(name, part, rate, {}, Settings("nowhere"))
    assert set(changes) == {f"{part}s"}
    config = get_method(name).config(backbone_config={"num_hidden_layers": 2}, **changes)
    specs: dict[str, Any] = getattr(config, f"{part}_specs")
    return {
        key: spec.attention_value if getattr(spec, "attention_kind", "") == "sampled" else spec.view.rate
        for key, spec in specs.items()
    }


@pytest.mark.parametrize("name", METHODS)
def test_the_encoder_of_every_method_is_masked_as_asked(name: str) -> None:
    assert set(masked_shares(name, "encoder", 0.4).values()) == {0.4}


def test_the_decoder_is_masked_as_asked() -> None:
    for name in ("retromae", "dupmae", "cotmae", "query_cotmae", "simlm"):
        assert masked_shares(name, "decoder", 0.65) == {"decoder": 0.65}
    shares = masked_shares("master", "decoder", 0.65)
    assert shares.pop("complement") == 0.3  # unused: it hides what its encoder's view shows
    assert set(shares.values()) == {0.65}


def test_other_changes_to_a_method_stay() -> None:
    given = {"decoders": {"decoder": {"weight": 2.0}}, "held_out": 0.0}
    changes = masked_at("retromae", "decoder", 0.15, given, Settings("nowhere"))
    assert changes == {"decoders": {"decoder": {"weight": 2.0, "attention": "sampled:0.15"}}, "held_out": 0.0}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "sweep": ({"sweep": "layers"}, "Unknown sweep 'layers'; choose one of: masking, steps, fraction"),
    "rate": ({"values": [0.5, 1.0]}, "1 is no value of the sweep 'masking'"),
    "no number": ({"values": [float("nan"), 0.5]}, "above 0 and below 1"),
    "fraction": ({"sweep": "fraction", "values": [0.5, 1.5]}, "at most 1"),
    "steps": ({"sweep": "steps", "values": [0, 2.5]}, "whole number of steps"),
    "one value": ({"values": [0.5]}, "at least 2 values"),
    "a value twice": ({"values": [0.5, 0.5]}, "each only once"),
    "no seed": ({"seeds": []}, "at least 1 seeds"),
    "method": ({"method": "bert"}, "Unknown method 'bert'"),
    "no method": ({"method": None}, "--method"),
    "no mask": ({"method": "condenser"}, "condenser masks no tokens of its own in its decoder's view"),
    "no mask either": ({"method": "seed_encoder"}, "nothing to vary"),
    "superset": ({"method": "simlm"}, "above its encoder's 0.3"),
    "part": ({"part": "head"}, "part is 'head'"),
    "metric": ({"metric": "f1"}, "metric is 'f1'"),
    "encoder": ({"encoder": "somewhere"}, "in place of --method"),
    "missing encoder": ({"sweep": "fraction", "method": None, "encoder": "no/where", "values": [0.5, 1]}, "no/where"),
    "split": ({"split": "dev"}, "split 'dev'"),
    "dataset": ({"dataset": "no/where"}, "is not a directory"),
    "no JSON": ({"pretraining": "{steps"}, "--pretraining must be JSON"),
    "no mapping": ({"finetuning": "3"}, "--finetuning must be a mapping"),
    "pre-training": ({"pretraining": {"max_step": 3}}, "max_step"),
    "fine-tuning": ({"finetuning": {"temperature": 0}}, "temperature"),
    "few pairs": ({"sweep": "fraction", "values": [0.1, 1]}, "fewer than one batch of 4"),
    "method's options": ({"method_options": {"depth": 1}}, "depth"),
}


@pytest.mark.parametrize(("changes", "sentence"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_before_any_training(
    dataset: str, tmp_path: Path, trainings: Trainings, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        run_sweep(options(dataset, tmp_path / "out", **changes))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert not trainings.pretrained
    assert not trainings.finetuned


def test_a_directory_of_something_else_is_left_alone(dataset: str, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(InputError, match="not an earlier output"):
        run_sweep(options(dataset, tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
