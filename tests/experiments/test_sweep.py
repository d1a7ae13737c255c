"""Sweeps: what is planned, what is refused, what is done once, and the table at the end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread
from tiny_retriever import tiny_config, tiny_tokenizer, write_dataset, write_encoder

from hf_dense import RetroMAEConfig, RetroMAEForPreTraining
from hf_dense.errors import InputError
from hf_dense.evaluation.measures import METRICS
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.experiments import comparison
from hf_dense.experiments.comparison import Settings, Variant, VariantResult, pairs_of
from hf_dense.experiments.sweep import run_sweep
from hf_dense.experiments.sweep_options import SweepOptions
from hf_dense.experiments.sweep_plan import UNTRAINED, masked_at, plan_sweep
from hf_dense.experiments.sweep_results import format_rows
from hf_dense.hub.loading import load_encoder
from hf_dense.hub.retriever_settings import RetrieverSettings, settings_of
from hf_dense.hub.retrievers import build_retriever
from hf_dense.methods import METHODS, get_method
from hf_dense.storage.output import Output

FEW = {"max_steps": 2, "per_device_train_batch_size": 4, "use_cpu": True, "disable_tqdm": True}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_dataset(tmp_path_factory.mktemp("sweep") / "data"))


def options(data: str, out: Path, **changes: Any) -> SweepOptions:
    given: dict[str, Any] = {
        "sweep": "masking",
        "values": [0.2, 0.8],
        "collection": data,
        "out": str(out),
        "method": "retromae",
        "hidden": 32,
        "vocabulary": 300,
        "max_length": 16,
        "pretraining": FEW,
        "finetuning": FEW,
        "split": "test",
    }
    idle = ("hidden", "vocabulary", "pretraining") if changes.get("model") else ()
    idle = idle or (("hidden", "vocabulary") if changes.get("backbone") else ())
    return SweepOptions(**{**{name: value for name, value in given.items() if name not in idle}, **changes})


class Runs:
    """Stand for the trainings and evaluations of a sweep, and note which are asked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def run(self, settings: Settings, variant: Variant, out: Output, start: object = None) -> VariantResult:
        """Queries found at ranks that go by the share masked and by the seed."""
        self.names.append(variant.name)
        _, rate, seed = variant.name.rsplit("-", 2)
        values = [float(rate) - 0.01 * query - 0.1 * int(seed.removeprefix("seed")) for query in range(10)]
        per_query = {metric: {f"q{at}": value for at, value in enumerate(values)} for metric in METRICS}
        result = RetrievalResult(variant.name, "test", dict.fromkeys(METRICS, sum(values) / 10), per_query, 1.0)
        return VariantResult(variant.name, "model", result, [], [], {})


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs()
    monkeypatch.setattr("hf_dense.experiments.sweep.run_variant", made.run)
    monkeypatch.setattr("hf_dense.experiments.sweep.make_start", made.run)
    return made


@pytest.mark.slow
def test_a_sweep_goes_on_where_it_stopped(dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, calls, real = options(dataset, tmp_path / "out"), [], comparison.finetune

    def fails_at_the_second(*arguments: Any, **named: Any) -> Path:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **named)

    monkeypatch.setattr(comparison, "finetune", fails_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(given)
    assert not (tmp_path / "out" / "sweep.json").exists()
    logs = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/*/trainer_state.json")}
    assert len(logs) == 3
    rows = run_sweep(given)
    assert run_sweep(given) == rows
    assert {path: path.stat().st_mtime_ns for path in logs} == logs


def test_a_value_may_be_added_but_nothing_else_changed(dataset: str, tmp_path: Path, runs: Runs) -> None:
    given = options(dataset, tmp_path / "out")
    run_sweep(given)
    rows = run_sweep(replace(given, values=[0.2, 0.5, 0.8]))
    assert [row.point.x for row in rows] == [0.2, 0.5, 0.8]
    for change, named in (
        ({"part": "encoder"}, "part"),
        ({"pretraining": {**FEW, "max_steps": 3}}, "max_steps"),
        ({"sweep": "steps", "values": [0, 2]}, "sweep"),
        ({"method_options": {"held_out": 0.1}}, "held_out"),
    ):
        with pytest.raises(InputError, match=f"was made from (an)?other {named} .*--overwrite"):
            run_sweep(replace(given, **change))
    assert len(runs.names) == 5


def test_the_table_and_the_picture_show_means_over_seeds(dataset: str, tmp_path: Path, runs: Runs) -> None:
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
    given = options(dataset, tmp_path / "out", sweep="fraction", values=[0.4, 1], method=None, model=encoder)
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


@pytest.mark.parametrize("bottleneck", ["cls", "mean"])
def test_random_weights_are_pooled_as_the_model_is(dataset: str, tmp_path: Path, runs: Runs, bottleneck: str) -> None:
    model = tmp_path / "retromae"
    RetroMAEForPreTraining(RetroMAEConfig(backbone_config=tiny_config(), bottleneck=bottleneck)).save_pretrained(model)
    tiny_tokenizer().save_pretrained(model)
    given = {"sweep": "fraction", "values": [0.4, 1], "method": None, "model": str(model)}
    run_sweep(options(dataset, tmp_path / "out", **given))
    untrained = build_retriever(tmp_path / "out" / "untrained-seed0", RetrieverSettings(max_length=16))
    assert settings_of(untrained).pooling == bottleneck


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


def test_fewer_queries_are_among_more(dataset: str) -> None:
    def drawn(count: int | None, seed: int) -> set[str]:
        return set(pairs_of(Settings(dataset, queries=count, seed=seed))["query"])

    everything = drawn(None, 0)
    assert len(everything) == 20
    assert [len(drawn(count, 0)) for count in (1, 5, 20)] == [1, 5, 20]
    assert drawn(5, 0) < drawn(11, 0) < drawn(20, 0) == everything
    assert drawn(5, 0) != drawn(5, 1)


def test_numbers_of_queries_are_compared_with_and_without_pre_training(dataset: str, tmp_path: Path) -> None:
    runs = plan_sweep(options(dataset, tmp_path, sweep="queries", values=[0, 8]))
    amounts = [(run.curve, run.settings.queries) for run in runs.values() if run.value is not None]
    assert amounts == [("retromae", 0), (UNTRAINED, 0), ("retromae", 8), (UNTRAINED, 8)]


@pytest.mark.slow
def test_without_queries_an_encoder_is_measured_as_it_is(dataset: str, tmp_path: Path) -> None:
    encoder = str(write_encoder(tmp_path / "ours"))
    given = options(dataset, tmp_path / "out", sweep="queries", values=[0, 8], method=None, model=encoder)
    rows = run_sweep(given)
    assert [(row.point.curve, row.point.x) for row in rows] == [
        ("ours", 0), ("ours", 8), (UNTRAINED, 0), (UNTRAINED, 8),
    ]  # fmt: skip
    assert not (tmp_path / "out" / "ours-0-seed0" / "finetuned").exists()
    exported = load_encoder(tmp_path / "out" / "ours-0-seed0" / "exported")
    assert all(load_encoder(encoder).state_dict()[name].equal(value) for name, value in exported.state_dict().items())


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


QUERIES = {"sweep": "queries", "values": [0, 20]}
OF_MODEL = {**QUERIES, "method": None, "model": "m"}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "sweep": ({"sweep": "layers"}, "Unknown sweep 'layers'; choose one of: masking, steps, fraction, queries"),
    "rate": ({"values": [0.5, 1.0]}, "1 is no value of the sweep 'masking'"),
    "no number": ({"values": [float("nan"), 0.5]}, "above 0 and below 1"),
    "fraction": ({"sweep": "fraction", "values": [0.5, 1.5]}, "at most 1"),
    "steps": ({"sweep": "steps", "values": [0, 2.5]}, "whole number of steps"),
    "one value": ({"values": [0.5]}, "at least 2 values"),
    "a value twice": ({"values": [0.5, 0.5]}, "each only once"),
    "a value twice, written otherwise": ({"values": [0.5, 0.5 + 1e-15]}, "each only once"),
    "no seed": ({"seeds": []}, "The seeds are none"),
    "a seed of its own": ({"pretraining": {"seed": 9}}, "name those of the sweep with --seeds"),
    "a seed twice": ({"seeds": [1, 1]}, "The seeds are 1, 1; name some, each only once"),
    "method": ({"method": "bert"}, "Unknown method 'bert'"),
    "no method": ({"method": None}, "--method"),
    "no mask": ({"method": "condenser"}, "condenser masks no tokens of its own in its decoder's view"),
    "no mask either": ({"method": "seed_encoder"}, "nothing to vary"),
    "superset": ({"method": "simlm"}, "above its encoder's 0.3"),
    "part": ({"part": "head"}, "part is 'head'"),
    "metric": ({"metric": "f1"}, "metric is 'f1'"),
    "layers": ({"layers": 0}, "layers is 0; it must be from 1 to"),
    "hidden": ({"hidden": 10**20}, "hidden is 1000"),
    "model": ({"model": "somewhere"}, "in place of --method"),
    "missing model": ({"sweep": "fraction", "method": None, "model": "no/where", "values": [0.5, 1]}, "no/where"),
    "split": ({"split": "dev"}, "split 'dev'"),
    "collection": ({"collection": "no/where"}, "is neither a directory"),
    "no JSON": ({"pretraining": "{steps"}, "--pretraining must be JSON"),
    "no mapping": ({"finetuning": "3"}, "--finetuning must be a mapping"),
    "pre-training": ({"pretraining": {"max_step": 3}}, "max_step"),
    "fine-tuning": ({"finetuning": {"temperature": 0}}, "temperature"),
    "order of fine-tuning": ({"finetuning": {"data_seed": 1}}, "data_seed does nothing in fine-tuning"),
    "queries": ({"sweep": "queries", "values": [0, 2.5]}, "a whole number of training queries"),
    "more queries": ({"sweep": "queries", "values": [0, 5000]}, "has 20 training queries, not the 5,000 asked for"),
    "few queries": (
        {"sweep": "queries", "values": [0, 1, 20]},
        "On 1 training queries (seed 0) nothing can be fine-tuned: pairs has 2 rows, fewer",
    ),
    "queries of several passages": (
        {"sweep": "queries", "values": [0, 20], "finetuning": {"per_device_train_batch_size": 24}},
        "pairs has 20 different queries, and a batch of 24 has none twice",
    ),
    "few pairs": ({"sweep": "fraction", "values": [0.05, 1]}, "fewer than one batch of 4"),
    "pre-training of a model": ({**OF_MODEL, "pretraining": FEW}, "--pretraining does nothing beside --model; leave"),
    "width of a model": ({**OF_MODEL, "hidden": 64}, "--hidden does nothing beside --model; leave"),
    "layers of a backbone": ({"backbone": "b", "layers": 1}, "--layers does nothing beside --backbone; leave"),
    "part of no masking": ({**QUERIES, "part": "encoder"}, "--part does nothing beside --sweep queries; leave"),
    "shape": ({**QUERIES, "method_options": {"backbone_config": {"hidden_size": 64}}}, "give --hidden and --layers"),
    "tokenizer": ({**QUERIES, "method_options": {"tokenizer": "t"}}, "give --vocabulary or --backbone"),
    "pooling": (
        {"sweep": "steps", "values": [0, 2], "method_options": {"bottleneck": "mean"}},
        "bottleneck, which the encoder without pre-training would not have",
    ),
    "method's options": ({"method_options": {"depth": 1}}, "depth"),
    "sizes beside a backbone": (
        {"method_options": {"backbone": "me/mine", "backbone_config": {"hidden_size": 32}}},
        "backbone_config is of an encoder from scratch, but this starts from me/mine",
    ),
}


@pytest.mark.parametrize(("changes", "sentence"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_before_any_training(
    dataset: str, tmp_path: Path, runs: Runs, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        run_sweep(options(dataset, tmp_path / "out", **changes))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert not runs.names


def test_a_directory_of_something_else_is_left_alone(dataset: str, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(InputError, match="was not written by hf_dense"):
        run_sweep(options(dataset, tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
