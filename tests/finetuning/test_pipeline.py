"""The stages, one after the other: each made once, gone on with after a kill, refused where another run's."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from json_lines import write_lines
from launched import launch
from manifests import manifest_of
from pyarrow import parquet
from sentence_transformers import CrossEncoder, SentenceTransformer
from test_biencoder import killed, killed_after
from tiny_retriever import random_words, tiny_config, tiny_tokenizer, weights, write_embedder, write_encoder
from transformers import ElectraConfig, ElectraForSequenceClassification

from hf_dense.errors import InputError
from hf_dense.finetuning import mining, scoring, training
from hf_dense.finetuning import pipeline as pipeline_module
from hf_dense.finetuning.lists import PassageLists, load_entries
from hf_dense.finetuning.pipeline import Pipeline, run_pipeline, stage_seconds, start_of
from hf_dense.hub.retriever_settings import RetrieverSettings, settings_of
from hf_dense.storage.checkpoints import load_history
from hf_dense.storage.manifest import Manifest

STAGES = ("bm25", "retriever1", "mined1", "retriever2", "mined2", "reranker", "scores", "distilled")


def write_collection(folder: Path) -> Path:
    """120 passages of words; a query is two words of its passage."""
    generator, words = random.Random(0), random_words(60)
    texts = [" ".join(generator.choices(words, k=6)) for _ in range(120)]
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": f"p{at}", "title": "", "text": text} for at, text in enumerate(texts)]
    write_lines(folder / "corpus.jsonl", rows)
    asked = [{"_id": f"q{at}", "text": " ".join(text.split()[:2])} for at, text in enumerate(texts[:80])]
    write_lines(folder / "queries.jsonl", asked)
    for split, span in (("train", range(60)), ("dev", range(60, 80))):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{at}\tp{at}\t1" for at in span)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def write_base(folder: Path) -> Path:
    torch.manual_seed(0)
    sizes = {key: getattr(tiny_config(), key) for key in ("vocab_size", "hidden_size", "num_hidden_layers")}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 64, "embedding_size": 32, "max_position_embeddings": 96}
    ElectraForSequenceClassification(ElectraConfig(**sizes, num_labels=1)).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    return settings(tmp_path)


def settings(tmp_path: Path) -> dict[str, Any]:
    training = {
        "max_steps": 6,
        "per_device_train_batch_size": 8,
        "passages": 3,
        "learning_rate": 1e-3,
        "temperature": 0.1,
        "logging_steps": 1,
        "save_steps": 2,
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return {
        "collection": str(write_collection(tmp_path / "collection")),
        "model": str(write_encoder(tmp_path / "encoder")),
        "out": str(tmp_path / "run"),
        "max_length": 48,
        "bm25": {"depth": 20},
        "retriever1": training,
        "mined": {"depth": 20},
        "retriever2": training,
        "reranker": {
            **{key: value for key, value in training.items() if key != "temperature"},
            "base": str(write_base(tmp_path / "base")),
            "max_length": 64,
            "kept": 2,
        },
        "distilled": {**training, "distillation": "kl", "contrast": "simlm", "depth": 10},
    }


def files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_all_stages_are_made_once_and_measured(given: dict[str, Any], tmp_path: Path) -> None:
    pipeline = Pipeline.of(given)
    models = run_pipeline(pipeline)
    assert list(models) == ["retriever1", "retriever2", "reranker", "distilled"]
    run = tmp_path / "run"
    manifests = {path.name: Manifest.load(path) for path in run.iterdir() if path.is_dir()}
    assert {name: manifest and manifest.state for name, manifest in manifests.items()} == dict.fromkeys(
        ("encoder", *STAGES), "complete"
    )
    assert all(stage_seconds(run, name) > 0 for name in STAGES)
    for name in ("retriever1", "retriever2", "distilled"):
        assert SentenceTransformer(str(models[name])).similarity_fn_name == "cosine"
    assert CrossEncoder(str(models["reranker"])).predict([("a", "b")]).shape == (1,)
    scored = parquet.read_table(run / "scores" / "negatives" / "train.parquet").to_pylist()
    assert all(row["positive_scores"] and len(row["negative_scores"]) == len(row["negatives"]) for row in scored)
    before = files(run)
    assert run_pipeline(pipeline) == models
    after = files(run)
    assert {path for path in after if after[path] != before.get(path)} == {str(run / "hf_dense.json")}, "nothing else"
    from hf_dense.experiments.pipeline_results import measure_stages

    table = measure_stages(pipeline, models, "dev")
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == ["bm25", *models]
    facts = json.loads((run / "results.json").read_text())
    assert facts["results"][2]["before"] == "retriever1"
    assert facts["results"][2]["queries"] == 20
    assert {"low", "high", "p_value"} <= facts["results"][2]["against before"]["mrr@10"].keys()
    assert (run / "metrics.png").stat().st_size > 1000
    with pytest.raises(InputError, match="'train' was trained on; measure on another"):
        measure_stages(pipeline, models, "train")


def test_it_starts_from_the_models_own_settings(
    given: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    embedder, run = str(write_embedder(tmp_path / "embedder")), Path(given["out"])
    del given["max_length"]
    assert start_of(Pipeline.of({**given, "model": embedder})) == embedder, "as it is"
    assert not (run / "encoder").exists()
    plain = start_of(Pipeline.of({**given, "max_length": 40}))
    assert settings_of(SentenceTransformer(str(plain))) == RetrieverSettings(
        "cls", False, "cosine", {"query": "", "document": ""}, 40
    )
    assert not [record for record in caplog.records if "in place of" in record.getMessage()]
    changed = start_of(Pipeline.of({**given, "model": embedder, "similarity": "dot", "out": str(tmp_path / "other")}))
    assert settings_of(SentenceTransformer(str(changed))) == RetrieverSettings(
        "mean", True, "dot", {"query": "ask ", "document": ""}, 20
    )
    assert f"{embedder}: similarity dot in place of cosine, which is its own." in caplog.text


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, torch.Tensor]]:
    """The weights of a run that nothing stopped."""
    place = tmp_path_factory.mktemp("whole")
    return {name: weights(model) for name, model in run_pipeline(Pipeline.of(settings(place))).items()}


@pytest.mark.parametrize(
    ("module", "function", "calls"),
    [
        pytest.param(mining, "write_lists", 0, marks=pytest.mark.slow),  # of mined1, its vectors done
        pytest.param(mining, "write_lists", 1, marks=pytest.mark.slow),
        pytest.param(scoring, "_join", 0, marks=pytest.mark.slow),
        pytest.param(training, "write_model_card", 2, marks=pytest.mark.slow),  # of the re-ranker, trained
        *(pytest.param(None, "training_step", steps, marks=pytest.mark.slow) for steps in (3, 6 + 5, 12 + 1, 18 + 4)),
    ],
)
def test_a_killed_stage_is_gone_on_with(
    given: dict[str, Any], whole: dict[str, dict[str, torch.Tensor]], module: Any, function: str, calls: int
) -> None:
    if module is None:
        with killed_after(calls):
            run_pipeline(Pipeline.of(given))
    else:
        real, left = getattr(module, function), iter(range(calls))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, function, lambda *a, **n: (real if next(left, None) is not None else killed)(*a, **n))
            with pytest.raises(KeyboardInterrupt):
                run_pipeline(Pipeline.of(given))
    models = run_pipeline(Pipeline.of(given))
    assert models.keys() == whole.keys()
    for name, model in models.items():
        found = weights(model)
        assert all(torch.equal(found[key], whole[name][key]) for key in whole[name]), name
    assert not list(Path(given["out"]).glob("**/*.partial"))


@pytest.mark.slow
def test_the_best_checkpoint_on_held_out_queries_is_kept(given: dict[str, Any], tmp_path: Path) -> None:
    given = {**given, "validation": 0.3, "validation_passages": 50, "distilled": None}
    for name in ("retriever1", "retriever2", "reranker"):
        given[name] = (
            {**given[name], "eval_steps": 2, "patience": 5} if name != "reranker" else {**given[name], "eval_steps": 2}
        )
    run_pipeline(Pipeline.of(given))
    for name in ("retriever1", "reranker"):
        state = json.loads((tmp_path / "run" / name / "trainer_state.json").read_text())
        key = "eval_validation_cosine_mrr@10" if name == "retriever1" else "eval_validation_mrr@10"
        measured = [row[key] for row in state["log_history"] if key in row]
        assert len(measured) == 3
        assert state["best_metric"] == max(measured)


@pytest.mark.slow
def test_negatives_are_mined_again_while_training(given: dict[str, Any], tmp_path: Path) -> None:
    given = {**given, "reranker": None, "distilled": None}
    given["retriever2"] = {**given["retriever2"], "max_steps": 16, "refresh": 1, "start": "retriever1"}
    whole = run_pipeline(Pipeline.of(given))["retriever2"]
    run = tmp_path / "run" / "retriever2"
    assert sorted(path.name for path in run.glob("refresh-*")) == ["refresh-1", "refresh-2"], "7 steps are an epoch"
    first, second = (parquet.read_table(run / f"refresh-{at}/negatives/train.parquet").to_pylist() for at in (1, 2))
    assert [row["negatives"] for row in first] != [row["negatives"] for row in second]
    again = {**given, "out": str(tmp_path / "again")}
    with killed_after(6 + 10):  # retriever1 takes six of them
        run_pipeline(Pipeline.of(again))
    resumed = run_pipeline(Pipeline.of(again))["retriever2"]
    expected, found = weights(whole), weights(resumed)
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    for changes, difference in (({"refresh": 2}, r"every \(1, now 2\)"), ({"max_steps": 17}, "max_steps")):
        with pytest.raises(InputError, match=f"retriever2 was made from (an)?other {difference}"):
            run_pipeline(Pipeline.of({**again, "retriever2": {**again["retriever2"], **changes}}))


@pytest.mark.slow
def test_a_stage_reads_texts_of_its_own_lengths(given: dict[str, Any], tmp_path: Path) -> None:
    given["retriever2"] = {**given["retriever2"], "start": "retriever1", "max_length": 64, "query_length": 8}
    models = run_pipeline(Pipeline.of(given))
    read = {
        name: settings_of(SentenceTransformer(str(models[name]))) for name in ("retriever1", "retriever2", "distilled")
    }
    lengths = {name: (found.max_length, found.query_length) for name, found in read.items()}
    assert lengths == {"retriever1": (48, None), "retriever2": (64, 8), "distilled": (48, None)}
    start = weights(tmp_path / "run" / "retriever2-start")
    assert all(torch.equal(value, start[key]) for key, value in weights(models["retriever1"]).items())
    before = files(tmp_path / "run" / "retriever2-start") | files(tmp_path / "run" / "retriever2")
    run_pipeline(Pipeline.of(given))
    assert files(tmp_path / "run" / "retriever2-start") | files(tmp_path / "run" / "retriever2") == before
    with pytest.raises(InputError, match=r"retriever2-start .*max_length"):
        run_pipeline(Pipeline.of({**given, "retriever2": {**given["retriever2"], "max_length": 50}}))


def test_negatives_of_bm25_are_joined_to_those_that_are_mined_and_mined_again(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[PassageLists] = []
    lists_of = pipeline_module.lists_of
    monkeypatch.setattr(pipeline_module, "lists_of", lambda *named: made.append(lists_of(*named)) or made[-1])
    given = {**given, "reranker": None, "distilled": None}
    given["retriever2"] = {**given["retriever2"], "max_steps": 8, "refresh": 1, "with_bm25": True, "depth": 40}
    run_pipeline(Pipeline.of(given))
    run = tmp_path / "run"
    manifest = manifest_of(run / "retriever2")
    assert [manifest.sources[what] for what in ("lists", "lists 2")] == [str(run / "mined1"), str(run / "bm25")]
    ranked, fresh = load_entries(run / "bm25"), load_entries(run / "retriever2" / "refresh-1")
    for entry, lexical, mined in zip(made[-1].entries, ranked, fresh, strict=True):
        assert entry.negatives[:1] == mined.negatives[:1]
        assert {*entry.negatives} == {*lexical.negatives, *mined.negatives}


def test_negatives_that_a_training_mines_name_its_precision(given: dict[str, Any], tmp_path: Path) -> None:
    given = {**given, "reranker": None, "distilled": None}
    given["retriever2"] = {**given["retriever2"], "max_steps": 8, "refresh": 1, "precision": "bf16"}
    run_pipeline(Pipeline.of(given))
    for place, precision in (("mined1", "fp32"), ("retriever2/refresh-1", "bf16")):
        manifest = manifest_of(tmp_path / "run" / place)
        assert manifest.made_from["precision"] == precision


def test_a_share_of_the_queries(given: dict[str, Any], tmp_path: Path) -> None:
    given = {**given, "fraction": 0.5, "retriever2": None, "reranker": None, "distilled": None}
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_module, "finetune", lambda model, lists, *rest, **named: seen.append(len(lists)))
        run_pipeline(Pipeline.of(given))
    assert 18 < seen[0] < 42


@pytest.mark.slow
def test_what_was_made_from_something_else_is_refused_or_replaced(given: dict[str, Any], tmp_path: Path) -> None:
    given = {**given, "reranker": None, "distilled": None}
    run_pipeline(Pipeline.of(given))
    before = files(tmp_path / "run")
    other = {**given, "retriever1": {**given["retriever1"], "learning_rate": 1e-4}}
    with pytest.raises(InputError, match=r"retriever1 was made from another learning_rate \(0.001, now 0.0001\)"):
        run_pipeline(Pipeline.of(other))
    assert files(tmp_path / "run").keys() == before.keys()
    run_pipeline(Pipeline.of({**other, "overwrite": True}))
    after = files(tmp_path / "run")
    changed = {Path(path).relative_to(tmp_path / "run").parts[0] for path in before if after[path] != before[path]}
    assert changed == {"retriever1", "mined1", "retriever2", "hf_dense.json"}, "what follows from it, and no more"
    with (tmp_path / "collection" / "corpus.jsonl").open("a") as stream:
        stream.write('{"_id": "new", "title": "", "text": "one more"}\n')
    with pytest.raises(InputError, match="bm25 was made from another collection"):
        run_pipeline(Pipeline.of(other))


def test_a_foreign_directory_is_not_touched(given: dict[str, Any], tmp_path: Path) -> None:
    given = {**given, "retriever2": None, "reranker": None, "distilled": None, "overwrite": True}
    for place in ("collection", "encoder", "foreign"):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "README.md").write_text("mine")
        before = files(tmp_path / place)
        with pytest.raises(InputError, match=r"was not written by hf_dense|would replace it"):
            run_pipeline(Pipeline.of({**given, "out": str(tmp_path / place)}))
        assert files(tmp_path / place) == before
    Manifest("pipeline", "complete", claims=("*",)).save(tmp_path)  # as if all that is there were ours
    with pytest.raises(InputError, match="would replace it"):
        run_pipeline(Pipeline.of({**given, "out": str(tmp_path)}))
    run_pipeline(Pipeline.of(given))
    (tmp_path / "run" / "retriever1" / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match=r"thesis\.tex is not as hf_dense wrote it"):
        run_pipeline(Pipeline.of({**given, "seed": 7}))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"retriever2": None}, "The section reranker needs retriever2"),
        ({"reranker": None}, "The section distilled needs reranker"),
        ({"retriever1": {"learning": 1}}, "The section retriever1 has the key 'learning', which is no option of it"),
        ({"mined": {"width": 1}}, "The section mined has the key 'width'"),
        ({"mined": {"skip": -1}}, "The section mined has skip: -1; it is a whole number, 0 or more"),
        ({"retriever1": {"seed": 1}}, "The section retriever1 has seed, which all share; write seed beside"),
        ({"reranker": {"output_dir": "x"}}, "The section reranker has output_dir, which all share; write out beside"),
        ({"mined": {"filter_margin": 0.9}}, "filter_margin is of the cross-encoder that filter_by names"),
        ({"bm25": {"depth": "200"}}, "The section bm25 has depth: '200'; it is a whole number, 1 or more"),
        ({"retriever1": {"with_bm25": True}}, "with_bm25 belongs to the section retriever2, not to retriever1"),
        ({"retriever1": {"max_length": 16, "query_length": 32}}, "query_length is 32; it must be from 3 to max_length"),
        ({"retriever1": {"query_length": 1}}, "query_length: 1; it is a whole number, 3 or more"),
        ({"retriever2": {"with_bm25": "yes"}}, "with_bm25: 'yes'; it is true or false"),
        ({"retriever1": {"refresh": 1}}, "refresh belongs to the section retriever2, not to retriever1"),
        (
            {"retriever2": {"start": "bm25"}, "reranker": None, "distilled": None},
            "starts from the model or from retriever1",
        ),
        ({"validation": 1.0}, r"validation is 1.0"),
        ({"fraction": 0}, "fraction is 0"),
        ({"colection": "x"}, "The pipeline has the key 'colection'"),
        ({"model": None}, "does not say model; name it with --model"),
        ({"bm25": [1]}, "The section bm25 must hold"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Pipeline.of({**given, **changes})


@pytest.mark.parametrize(
    ("section", "changes", "sentence"),
    [
        ("distilled", {"contrast": "triplet"}, "The section distilled cannot be used: contrast is 'triplet'"),
        ("distilled", {"learning_rate": "fast"}, "The section distilled has learning_rate: 'fast', which is no number"),
        ("retriever1", {"max_steps": "4.7"}, "The section retriever1 has max_steps: '4.7'; it is a whole number"),
        ("retriever1", {"max_steps": 4.7}, "The section retriever1 has max_steps: 4.7; it is a whole number"),
        ("distilled", {"depth": 1}, "Lists of 3 passages for distilled need 2 scored negatives"),
        ("distilled", {"lr_scheduler_type": "curved"}, "The section distilled cannot be used: curved is not a valid"),
        ("distilled", {"optim": "adamw_bnb_8bit"}, "The section distilled cannot be used: No optimiser can be made"),
        (
            "retriever2",
            {"data_seed": 1},
            "The section retriever2 cannot be used: data_seed does nothing in fine-tuning",
        ),
        ("retriever2", {"dataloader_drop_last": False}, "Of lists only whole batches are trained on"),
        ("retriever2", {"distillation": "kl"}, "distillation 'kl' needs a teacher's scores"),
        ("retriever2", {"contrast": "own", "passages": 1}, "compares a query's own passages"),
        ("retriever2", {"per_device_train_batch_size": 61}, "There are 60 training queries, fewer than one batch"),
        ("retriever2", {"passages": 121}, "Lists of 121 passages for retriever2 were asked for; the corpus has 120"),
        ("retriever2", {"max_length": 1000}, "max_length is 1000 tokens; the encoder"),
        ("retriever2", {"query_length": 64}, "query_length is 64; it must be from 3 to max_length, 48 tokens"),
        ("reranker", {"passages": 121}, "longer than the corpus"),
        ("reranker", {"learning_rate": 3.0}, "The section reranker cannot be used: --learning_rate is 3.0"),
        ("reranker", {"base": "nowhere/at/all"}, "There is no model directory nowhere/at/all"),
        ("reranker", {"max_length": 1000}, "max_length is 1000; the encoder takes pairs of 4 to 96 tokens"),
        ("mined", {"filter_by": "nowhere/at/all"}, "There is no model directory nowhere/at/all"),
        ("mined", {"kind": "bm25"}, "kind of search is 'bm25'"),
        ("", {"collection": "nowhere"}, "nowhere is not a directory"),
        ("", {"split": "later"}, "no relevance judgements for split 'later'"),
        ("", {"model": "nowhere/at/all"}, "There is no model directory nowhere/at/all"),
        ("", {"max_length": 1000}, "max_length is 1000 tokens; the encoder"),
        ("", {"similarity": "euclidean"}, "similarity is 'euclidean'"),
        ("", {"validation": 1e-9}, "The share validation 1e-09 of the training queries holds none"),
    ],
)
def test_all_is_checked_before_the_first_stage_begins(
    given: dict[str, Any], tmp_path: Path, section: str, changes: dict[str, Any], sentence: str
) -> None:
    changed = {section: {**given[section], **changes}} if section else changes
    with pytest.raises(InputError, match=sentence):
        run_pipeline(Pipeline.of({**given, **changed}))
    assert not (tmp_path / "run").exists()


def test_numbers_that_yaml_reads_as_text(given: dict[str, Any], tmp_path: Path) -> None:
    given = {**given, "retriever2": None, "reranker": None, "distilled": None}
    given["retriever1"] = {**given["retriever1"], "learning_rate": "1e-3"}
    assert yaml.safe_load("1e-3") == "1e-3"
    run_pipeline(Pipeline.of(given))
    rates = [row["learning_rate"] for row in load_history(tmp_path / "run" / "retriever1") if "loss" in row]
    assert max(rates) == pytest.approx(1e-3)


@pytest.mark.slow
def test_two_processes_go_through_all_stages(given: dict[str, Any], tmp_path: Path) -> None:
    for config in (Path(given["model"]) / "config.json", Path(given["reranker"]["base"]) / "config.json"):
        settings = json.loads(config.read_text())  # without dropout, of which every process draws its own
        config.write_text(json.dumps({**settings, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}))
    for name in ("retriever1", "retriever2", "reranker", "distilled"):
        given[name] = {**given[name], "per_device_train_batch_size": 4}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(given))
    done = launch("-m", "hf_dense.commands.main", "finetune", "--config", tmp_path / "pipeline.yaml", timeout=600)
    assert done.returncode == 0, done.stderr
    assert "| distilled |" in done.stdout
    histories = [load_history(tmp_path / "run" / name) for name in ("retriever1", "distilled")]
    for name in ("retriever1", "retriever2", "reranker", "distilled"):
        given[name] = {**given[name], "per_device_train_batch_size": 8}
    run_pipeline(Pipeline.of({**given, "out": str(tmp_path / "one")}))
    for name, history in zip(("retriever1", "distilled"), histories, strict=True):
        alone = [row["loss"] for row in load_history(tmp_path / "one" / name) if "loss" in row]
        assert [row["loss"] for row in history if "loss" in row] == pytest.approx(alone, rel=0.02)


def test_from_the_command_line(given: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {**given, "retriever2": None, "reranker": None, "distilled": None, "out": "elsewhere"}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(given))
    from hf_dense.commands.main import main

    main(["finetune", "--config", str(tmp_path / "pipeline.yaml"), "--out", str(tmp_path / "run")])
    assert "| retriever1 |" in capsys.readouterr().out
