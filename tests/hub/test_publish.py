"""What is published is complete, with its card, and nothing of anybody else's is touched."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import DatasetCard, HfApi, ModelCard, constants
from manifests import manifest_of
from tiny_retriever import tiny_config, write_dataset, write_embedder, write_encoder, write_retriever

from hf_dense import InputError, RetroMAEConfig, RetroMAEForPreTraining
from hf_dense.commands.main import main
from hf_dense.data.collections import training_pairs
from hf_dense.evaluation.measured import measured_of
from hf_dense.evaluation.mteb_results import describe
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.hub import repositories
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.hub.lineage import lineage_of
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.publish import publish
from hf_dense.search.fingerprints import model_source
from hf_dense.storage.manifest import MANIFEST, Manifest
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source


def arguments(out: Path, **changes: Any) -> BiencoderTrainingArguments:
    options = {"max_steps": 2, "per_device_train_batch_size": 4, "use_cpu": True, "report_to": "none"}
    return BiencoderTrainingArguments(output_dir=str(out), **{**options, **changes})


def card_of(hub: HfApi, repo: str, kind: str = "model", revision: str | None = None) -> Any:
    path = hub.hf_hub_download(repo, "README.md", repo_type=kind, revision=revision)
    return (ModelCard if kind == "model" else DatasetCard).load(path)


def test_places_of_this_machine_are_named_before_all_the_world_reads_them(
    hub_here: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    write_dataset(tmp_path / "data")
    absolute, relative = (["data", "negatives", str(place), "--out"] for place in (tmp_path / "data", "data"))
    for words, out in ((absolute, "first"), (relative, "second")):
        monkeypatch.setattr("sys.argv", ["hf-dense", *words, out])
        main([*words, out])
    publish("second", "someone/second")
    assert "places of this machine" not in caplog.text
    publish("first", "someone/first")
    assert f"sees places of this machine: {tmp_path / 'data'}" in caplog.text
    caplog.clear()
    for task in (str(tmp_path / "data"), "data:train"):
        words = ["evaluate", "bm25", "--tasks", task, "--out", "evaluation"]
        monkeypatch.setattr("sys.argv", ["hf-dense", *words])
        main(words)
    publish("evaluation", "someone/evaluation")
    assert f"sees places of this machine: {tmp_path / 'data'}" in caplog.text, "of what an earlier call measured"


def test_a_training_publishes_its_model_and_nothing_else(hub_here: HfApi, tmp_path: Path) -> None:
    data, embedder = write_dataset(tmp_path / "data"), write_embedder(tmp_path / "embedder")
    given = {"push_to_hub": True, "save_strategy": "steps", "save_steps": 1, "hub_token": "hf_secret"}
    with pytest.raises(InputError, match="is published when it is complete, its checkpoints are not"):
        finetune(embedder, training_pairs(data), arguments(tmp_path / "tuned", **given, hub_strategy="checkpoint"))
    model = finetune(embedder, training_pairs(data), arguments(tmp_path / "tuned", **given))
    files = set(hub_here.list_repo_files("someone/tuned"))
    assert files == {MANIFEST, *Manifest.load(model).files}
    assert not [name for name in files if "lock" in name or "checkpoint" in name or name == "training_args.bin"]
    card = card_of(hub_here, "someone/tuned")
    assert card.data.to_dict().get("base_model") is None
    assert (card.data.license, card.data.library_name) == ("mit", "sentence-transformers")
    assert 'SentenceTransformer("someone/tuned")' in card.text
    assert "pooling mean; normalize True; similarity cosine; max_length 20; query prompt 'ask '" in card.text
    assert f"`mit`, which {embedder} has" in card.text
    assert "Somebody's embedder" not in card.text
    assert "hf_secret" not in json.dumps([path.read_text(errors="ignore") for path in model.rglob("*.json")])
    publish(tmp_path / "tuned", "someone/again")  # the training stands for its model
    assert set(hub_here.list_repo_files("someone/again")) == files


def write_evaluation(place: Path, model: str | Path, value: float, **more: Any) -> Path:
    """What an evaluation leaves, but for its rankings."""
    sources = {"model": model_source(load_retriever(model), model), "collection": Source("data", "f1")}
    sources |= {name: Source(str(source), "f2") for name, source in more.pop("sources", {}).items()}
    settings = {"protocol": "passages", "split": "test", **more}
    with Output(place).stage("evaluation", settings, sources) as work:
        RetrievalResult("x", settings["split"], {"ndcg@10": value}, {}, 1.0).save(work.result)
    return place


def test_results_of_this_very_model_go_into_its_card(
    hub_here: HfApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    model, other = write_retriever(tmp_path / "mine"), write_retriever(tmp_path / "other", seed=1)
    with Output(out).occupy("evaluations", {}, claims=["results.md"], again=True) as work:
        (out / "results.md").write_text("| two | 0.5 |")
        work.complete()
    write_evaluation(out / "one" / "data-test", other, 0.25)
    write_evaluation(out / "two" / "data-test", model, 0.5)
    write_evaluation(out / "two" / "nq-test", model, 0.75, protocol="answers")
    first = {"first stage": out / "one" / "data-test"}
    again = {"protocol": "re-ranking", "depth": 100, "sources": first}
    write_evaluation(out / "one + two" / "data-test", model, 0.625, **again)
    write_evaluation(out / "whole" / "data-test", model, 0.875, **again, of="documents")
    before = Manifest.load(model)
    main(["publish", str(model), "someone/measured", "--results", str(out), "--private"])
    assert capsys.readouterr().out.strip().endswith("/someone/measured")
    assert {
        (found.dataset_name, found.dataset_split, found.metric_type): found.metric_value
        for found in card_of(hub_here, "someone/measured").data.eval_results
    } == {
        ("data", "test", "ndcg@10"): 0.5,
        ("nq, answers", "test", "ndcg@10"): 0.75,
        ("data, the first 100 of one", "test", "ndcg@10"): 0.625,
        ("data, the first 100 of one, documents", "test", "ndcg@10"): 0.875,
    }
    assert Manifest.load(model) == before, "nothing is written here"
    write_evaluation(out / "again" / "data-test", model, 0.5)
    assert len(measured_of(model, out)) == 4, "what was measured twice is said once"
    differs = write_evaluation(out / "moved" / "data-test", model, 0.375)
    with pytest.raises(SystemExit):
        main(["publish", str(model), "someone/measured", "--results", str(out)])
    assert f"again/data-test and {differs} are results of one task, and differ; name" in capsys.readouterr().err
    assert measured_of(model, differs) == [("data", "test", {"ndcg@10": 0.375})]
    shutil.rmtree(differs.parent)
    for results, message in (
        (out / "two", f"holds no evaluation of {other}, but of others ({model}); measure it"),
        (model, "holds no evaluation; measure the model with hf-dense evaluate"),
    ):
        with pytest.raises(SystemExit):
            main(["publish", str(other), "someone/measured", "--results", str(results)])
        assert message in capsys.readouterr().err
    main(["publish", str(out), "someone/report"])
    files = hub_here.list_repo_files("someone/report", repo_type="dataset")
    assert {"results.md", "two/data-test/result.json", f"two/data-test/{MANIFEST}", "README.md"} <= set(files)
    assert "| two | 0.5 |" in card_of(hub_here, "someone/report", "dataset").text
    with pytest.raises(InputError, match="holds no model that results could be of"):
        publish(out, "someone/report", results=[("data", "test", {"ndcg@10": 0.5})])


@pytest.mark.slow
def test_a_new_version_replaces_what_was_published_and_nothing_else(hub_here: HfApi, tmp_path: Path) -> None:
    hub = hub_here
    first = write_retriever(tmp_path / "first")
    assert publish(first, "versions").endswith("/someone/versions"), "the account's own name is added"
    manifest = manifest_of(write_embedder_export(tmp_path))
    publish(tmp_path / "second", "someone/versions")
    files = set(hub.list_repo_files("someone/versions"))
    assert files == {MANIFEST, *manifest.files}
    publish(first, "someone/versions")
    assert "2_Normalize/config.json" not in hub.list_repo_files("someone/versions")
    publish(tmp_path / "second", "someone/versions", revision="normal")
    assert set(hub.list_repo_files("someone/versions", revision="normal")) == files
    assert "2_Normalize/config.json" not in hub.list_repo_files("someone/versions")
    hub.create_repo("someone/theirs")
    hub.upload_file(path_or_fileobj=b"{}", path_in_repo="config.json", repo_id="someone/theirs")
    with pytest.raises(InputError, match=r"holds 'config\.json', which hf_dense did not publish; name another one"):
        publish(first, "someone/theirs")
    assert hub.list_repo_files("someone/theirs") == ["config.json"]
    main(["data", "passages", str(write_documents(tmp_path)), "--out", str(tmp_path / "corpus"), "--length", "20"])
    assert publish(tmp_path / "corpus", "someone/corpus").endswith("/datasets/someone/corpus")
    assert {"README.md", MANIFEST} < set(hub.list_repo_files("someone/corpus", repo_type="dataset"))
    main(["export", str(write_encoder(tmp_path / "encoder")), "--kind", "encoder", "--out", str(tmp_path / "plain")])
    with pytest.raises(InputError, match=r"another kind of output \(retriever, not encoder\)"):
        publish(tmp_path / "plain", "someone/versions")


def test_the_card_of_a_branch_loads_that_branch(hub_here: HfApi, tmp_path: Path) -> None:
    publish(write_retriever(tmp_path / "mine"), "someone/branches", revision="v2")
    assert (
        'SentenceTransformer("someone/branches", revision="v2")'
        in card_of(hub_here, "someone/branches", revision="v2").text
    )


@pytest.mark.slow
def test_results_stay_on_the_card_of_the_same_model(
    hub_here: HfApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, other = write_retriever(tmp_path / "mine"), write_retriever(tmp_path / "other", seed=1)
    publish(model, "someone/twice", results=[("data", "test", {"ndcg@10": 0.5})])
    publish(model, "someone/twice")
    assert [found.metric_value for found in card_of(hub_here, "someone/twice").data.eval_results] == [0.5]
    publish(model, "someone/twice", results=[("data", "test", {"ndcg@10": 0.25})])
    assert [found.metric_value for found in card_of(hub_here, "someone/twice").data.eval_results] == [0.25]
    main(["export", str(write_encoder(tmp_path / "encoder")), "--kind", "encoder", "--out", str(tmp_path / "plain")])
    with pytest.raises(InputError, match="another kind of output"):
        publish(tmp_path / "plain", "someone/twice")
    assert "left out" not in caplog.text, "nothing was published"
    publish(other, "someone/twice")
    assert card_of(hub_here, "someone/twice").data.eval_results is None
    assert "The results on the card of someone/twice are of another model, and are left out" in caplog.text


def test_a_card_that_the_hub_does_not_take_makes_no_repository(hub_here: HfApi, tmp_path: Path) -> None:
    model = export_sentence_transformer(
        write_retriever(tmp_path / "mine"), Output(tmp_path / "out", licence="no licence")
    )
    sentence = r'does not take the card of someone/unlicensed: .* "license" must be one of \[apache-2.0, mit\]\.$'
    with pytest.raises(InputError, match=sentence):
        publish(model, "someone/unlicensed")
    assert not hub_here.repo_exists("someone/unlicensed")


def test_what_is_to_be_private_is_not_written_where_all_may_read(
    hub_here: HfApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_retriever(tmp_path / "mine")
    for _ in range(2):
        publish(model, "someone/secret", private=True)
    assert hub_here.repo_info("someone/secret").private
    hub_here.create_repo("someone/open")
    with pytest.raises(SystemExit):
        main(["publish", str(model), "someone/open", "--private"])
    assert "someone/open is public, and so would be what is written there" in capsys.readouterr().err
    assert hub_here.list_repo_files("someone/open") == []
    publish(model, "someone/open")


@pytest.mark.parametrize("revision", ["", "a b", "v1..2", "refs/pr/1", "v1.", "v1.lock", "-v1", "/v1", "0" * 40])
def test_a_branch_of_no_name_is_refused_before_anything_is_trained(
    revision: str, hub_here: HfApi, tmp_path: Path
) -> None:
    data, embedder = training_pairs(write_dataset(tmp_path / "data")), write_embedder(tmp_path / "embedder")
    given = {"push_to_hub": True, "hub_model_id": "someone/no-branch", "hub_revision": revision}
    with pytest.raises(InputError, match=f"'{re.escape(revision)}' is no name of a branch; write to one such as"):
        finetune(embedder, data, arguments(tmp_path / "run", **given))
    assert not (tmp_path / "run").exists()
    assert not hub_here.repo_exists("someone/no-branch")


def test_a_tag_stays_what_it_is(hub_here: HfApi, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "mine")
    publish(model, "someone/tagged")
    hub_here.create_tag("someone/tagged", tag="v1.0")
    with pytest.raises(InputError, match=r"'v1\.0' is a tag of someone/tagged, which stands for what it was given to"):
        publish(model, "someone/tagged", revision="v1.0")
    assert [branch.name for branch in hub_here.list_repo_refs("someone/tagged").branches] == ["main"]
    publish(model, "someone/tagged", revision="next/v1.1+a")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"hub_model_id": "someone/full"},
            "The repository someone/full holds 'notes.txt', which hf_dense did not publish",
        ),
        (
            {"hub_model_id": "someone/bare", "hub_private_repo": True},
            "The repository someone/bare is public, and so would",
        ),
        ({"hub_model_id": "someone/pre"}, "holds another kind of output .pre-training, not retriever."),
    ],
)
def test_a_repository_without_room_is_refused_before_anything_is_trained(
    given: dict[str, Any], message: str, hub_here: HfApi, tmp_path: Path
) -> None:
    for name in ("full", "bare"):
        hub_here.create_repo(f"someone/{name}", exist_ok=True)
    hub_here.upload_file(path_or_fileobj=b"mine", path_in_repo="notes.txt", repo_id="someone/full")
    with Output(tmp_path / "pre").stage("pre-training", {}, {}) as work:
        write_encoder(work.result)
    publish(tmp_path / "pre", "someone/pre")
    data, embedder = training_pairs(write_dataset(tmp_path / "data")), write_embedder(tmp_path / "embedder")
    with pytest.raises(InputError, match=message):
        finetune(embedder, data, arguments(tmp_path / "run", push_to_hub=True, **given))
    assert not (tmp_path / "run").exists(), "it is known before anything is trained"


def test_a_repository_without_room_is_refused_before_anything_is_exported(
    hub_here: HfApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub_here.create_repo("someone/taken", exist_ok=True)
    hub_here.upload_file(path_or_fileobj=b"mine", path_in_repo="notes.txt", repo_id="someone/taken")
    embedder = write_embedder(tmp_path / "embedder")
    with pytest.raises(SystemExit):
        main(["export", str(embedder), "--out", str(tmp_path / "out"), "--push_to_hub", "someone/taken"])
    assert "holds 'notes.txt', which hf_dense did not publish" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def write_embedder_export(root: Path) -> Path:
    main(["export", str(write_embedder(root / "embedder")), "--out", str(root / "second")])
    return root / "second"


def write_documents(root: Path) -> Path:
    (root / "documents").mkdir()
    (root / "documents" / "a.md").write_text("# A\n\nSome words are here, and more of them are there.\n")
    return root / "documents"


def test_of_a_pre_training_the_states_of_the_run_stay_here(hub_here: HfApi, tmp_path: Path) -> None:
    """Arguments that a Trainer keeps hold the token of its user."""
    (tmp_path / "run").mkdir()
    with Output(tmp_path / "run").occupy("pre-training", {"method": "retromae"}, claims=["*"]) as work:
        RetroMAEForPreTraining(RetroMAEConfig(backbone_config=tiny_config())).save_pretrained(work.path)
        for name in ("training_args.bin", "checkpoint-2/optimizer.pt", "runs/x/events", "trainer_state.json"):
            (work.path / name).parent.mkdir(parents=True, exist_ok=True)
            (work.path / name).write_text("{}")
        work.complete()
    publish(work.path, "someone/retromae")
    files = hub_here.list_repo_files("someone/retromae")
    assert {"config.json", "model.safetensors", "modeling_retromae.py", "trainer_state.json", "README.md"} <= set(files)
    assert not [name for name in files if name.startswith(("training_args", "checkpoint", "runs", ".hf_dense"))]
    assert "retromae" in card_of(hub_here, "someone/retromae").data.tags


@pytest.mark.parametrize("base", ["{tmp_path}", None, "someone/base"])
def test_an_adapter_of_a_model_of_this_machine_is_not_published(
    base: str | None, hub_here: HfApi, tmp_path: Path
) -> None:
    base = base and base.format(tmp_path=tmp_path)
    with Output(tmp_path / "mine").stage("retriever", {}, {}) as work:
        write_encoder(work.result)
        (work.result / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    if base == "someone/base":
        publish(tmp_path / "mine", "someone/adapter")
        return
    with pytest.raises(InputError, match=re.escape(f"holds an adapter of {base}, which only this machine has")):
        publish(tmp_path / "mine", "someone/no-adapter")
    assert not hub_here.repo_exists("someone/no-adapter")


def test_a_card_that_somebody_wrote_is_kept(hub_here: HfApi, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "mine")
    (model / "README.md").write_text("# My own words\n")
    (model / "notes.txt").write_text("mine alone")
    publish(model, "someone/own-words")
    (model / "README.md").write_text("# My own words, and more\n")
    publish(model, "someone/own-words")
    assert Path(hub_here.hf_hub_download("someone/own-words", "README.md")).read_text() == "# My own words, and more\n"
    assert "notes.txt" not in hub_here.list_repo_files("someone/own-words")
    with pytest.raises(InputError, match="was changed by hand, so results cannot be put into it"):
        publish(model, "someone/own-words", results=[("data", "test", {"ndcg@10": 0.5})])


@pytest.mark.parametrize(
    ("repo", "settings", "message"),
    [
        ("nobody/mine", {}, "The token may not write to nobody/mine; name a repository of yours"),
        ("someone/mine", {"HF_TOKEN": "hf_read"}, "The token may not write to someone/mine"),
        ("a b", {}, "'a b' is no name of a repository; it is me/name"),
        ("one/two/three", {}, "'one/two/three' is no name of a repository"),
        ("someone/mine", {"HF_TOKEN": "hf_wrong"}, "The Hub does not accept the token; log in anew"),
        ("someone/mine", {"HF_TOKEN": ""}, "There is no token of the Hub; log in with 'hf auth login'"),
        ("someone/mine", {"HF_HUB_OFFLINE": True}, "The Hub is not to be asked"),
        ("someone/mine", {"ENDPOINT": "http://127.0.0.1:9"}, r"The Hub \(http://127.0.0.1:9\) cannot be reached: "),
    ],
)
def test_what_stands_in_the_way_is_one_sentence(
    repo: str, settings: dict[str, Any], message: str, hub_here: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_retriever(tmp_path / "mine")
    for name, value in settings.items():
        if name == "HF_TOKEN":
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.setattr(constants, name, value)
    with pytest.raises(InputError, match=message) as raised:
        publish(model, repo)
    assert "\n" not in str(raised.value)
    data = training_pairs(write_dataset(tmp_path / "data"))
    with pytest.raises(InputError, match=message):
        finetune(model, data, arguments(tmp_path / "run", push_to_hub=True, hub_model_id=repo))
    assert not (tmp_path / "run").exists(), "it is known before anything is trained"


def test_what_is_not_ours_or_not_whole(hub_here: HfApi, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "mine")
    (model / "modules.json").write_text("[]  ")
    running = Output(tmp_path / "run").occupy("pre-training", {}, claims=["*"])
    several = write_retriever(tmp_path / "several" / "distilled" / "model").parents[1]
    Manifest("pipeline", "complete").save(several)
    Manifest("evaluation", "complete").save(write_retriever(tmp_path / "evaluation" / "dev" / "bm25"))
    for directory, message in (
        (tmp_path / "evaluation", "was not written by hf_dense, but .*/dev/bm25 in it was, and can be published"),
        (write_embedder(tmp_path / "foreign"), "was not written by hf_dense; a model becomes publishable by hf-dense"),
        (tmp_path / "nowhere", "There is no directory .*nowhere; name what hf_dense wrote, and then the repository"),
        (running.path, "is not complete; give the command that writes it again"),
        (model, r"modules\.json is not as hf_dense wrote it"),
        (several, "holds several models; publish one of them: .*/distilled/model"),
    ):
        with pytest.raises(InputError, match=message):
            publish(directory, "someone/broken")
    assert not hub_here.repo_exists("someone/broken")


@pytest.mark.parametrize("name", ["../secret", "{tmp_path}/secret", "link", "folder/secret"])
def test_a_manifest_of_somebody_elses_publishes_nothing_of_this_machine(
    name: str, hub_here: HfApi, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("a token")
    report = tmp_path / "report"
    report.mkdir()
    (report / "link").symlink_to(tmp_path / "secret")
    (report / "folder").symlink_to(tmp_path)
    named = name.format(tmp_path=tmp_path)
    Manifest("report", "complete", files={named: (tmp_path / "secret").stat().st_size}).save(report)
    with pytest.raises(InputError, match="is not as hf_dense wrote it"):
        publish(report, "someone/leaked")
    assert not hub_here.repo_exists("someone/leaked", repo_type="dataset")


def test_a_token_that_does_not_say_what_it_may(
    hub_here: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_fine")
    with pytest.raises(InputError, match="The token may not write to nobody/mine"):
        publish(write_retriever(tmp_path / "mine"), "nobody/mine")


def test_what_was_edited_on_the_hub_is_not_replaced(hub_here: HfApi, tmp_path: Path) -> None:
    first, second = (
        export_sentence_transformer(write_embedder(tmp_path / f"base-{seed}", seed=seed), tmp_path / f"out-{seed}")
        for seed in (0, 1)
    )
    publish(first, "someone/mine")
    hub_here.upload_file(path_or_fileobj=b"mine", path_in_repo="notes.txt", repo_id="someone/mine")
    publish(second, "someone/mine")
    assert "notes.txt" in hub_here.list_repo_files("someone/mine"), "it is in nobody's way"
    hub_here.upload_file(path_or_fileobj=b"# By hand", path_in_repo="README.md", repo_id="someone/mine")
    with pytest.raises(
        InputError, match=r"holds 'README\.md', which is not as hf_dense published it; move it away there"
    ):
        publish(first, "someone/mine")
    assert card_of(hub_here, "someone/mine").text == "# By hand"


@pytest.mark.parametrize("revision", [None, "next"])
@pytest.mark.parametrize("name", ["notes.txt", "README.md"])
def test_what_is_written_on_the_hub_while_we_publish_is_kept(
    name: str, revision: str | None, hub_here: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (
        export_sentence_transformer(write_embedder(tmp_path / f"base-{seed}", seed=seed), tmp_path / f"out-{seed}")
        for seed in (0, 1)
    )
    repo = f"someone/at-once-{name.partition('.')[0]}-{revision}"
    publish(first, repo, revision=revision)
    monkeypatch.setattr(repositories, "_PAUSES", (0,))
    make, edits = HfApi.create_repo, [b"# By hand"]

    def edited_meanwhile(api: HfApi, *arguments: Any, **options: Any) -> Any:
        if edits:
            hub_here.upload_file(
                path_or_fileobj=edits.pop(), path_in_repo=name, repo_id=repo, revision=revision or "main"
            )
        return make(api, *arguments, **options)

    monkeypatch.setattr(HfApi, "create_repo", edited_meanwhile)
    if name == "README.md":
        with pytest.raises(InputError, match=r"holds 'README\.md', which is not as hf_dense published it"):
            publish(second, repo, revision=revision)
    else:
        publish(second, repo, revision=revision)
    assert Path(hub_here.hf_hub_download(repo, name, revision=revision)).read_bytes() == b"# By hand"


def test_a_readme_alone_is_kept_where_somebody_wrote_it(hub_here: HfApi, tmp_path: Path) -> None:
    model = export_sentence_transformer(write_embedder(tmp_path / "base"), tmp_path / "out")
    for name, text in (("new", "---\nlicense: mit\n---\n"), ("written", "---\nlicense: mit\n---\n# My plans\n")):
        hub_here.create_repo(f"someone/{name}")
        hub_here.upload_file(path_or_fileobj=text.encode(), path_in_repo="README.md", repo_id=f"someone/{name}")
    publish(model, "someone/new")
    with pytest.raises(InputError, match=r"holds 'README\.md', which hf_dense did not publish"):
        publish(model, "someone/written")
    assert card_of(hub_here, "someone/written").text.strip() == "# My plans"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "config_sentence_transformers.json", "model.safetensors"])
def test_what_was_edited_on_the_hub_to_as_many_bytes_is_not_replaced(
    name: str, hub_here: HfApi, tmp_path: Path
) -> None:
    first, second = (
        export_sentence_transformer(
            write_embedder(tmp_path / f"base-{seed}", seed=seed), tmp_path / f"out-{seed}", similarity=similarity
        )
        for seed, similarity in ((0, "dot"), (1, "cosine"))
    )
    repo = f"someone/edited-{name.partition('.')[0]}"
    publish(first, repo)
    published = Path(hub_here.hf_hub_download(repo, name)).read_bytes()
    publish(second, repo)
    publish(first, repo)
    edited = published[:-1] + b" "
    hub_here.upload_file(path_or_fileobj=edited, path_in_repo=name, repo_id=repo)
    for model in (first, second):
        with pytest.raises(InputError, match=f"holds '{name}', which is not as hf_dense published it"):
            publish(model, repo)
    assert Path(hub_here.hf_hub_download(repo, name)).read_bytes() == edited


def test_what_was_edited_here_to_as_many_bytes_is_known(hub_here: HfApi, tmp_path: Path) -> None:
    model = write_retriever(tmp_path / "mine")
    card = (model / "README.md").read_text()
    (model / "README.md").write_text(own := card.replace("retriever", "RETRIEVER"))
    publish(model, "someone/few-words")
    assert Path(hub_here.hf_hub_download("someone/few-words", "README.md")).read_text() == own
    config = (model / "config.json").read_text()
    (model / "config.json").write_text(config.replace("64", "46"))
    with pytest.raises(InputError, match=r"config\.json is not as hf_dense wrote it"):
        publish(model, "someone/few-words")


def test_results_of_stages_are_of_their_collections(tmp_path: Path) -> None:
    out, model = tmp_path / "out", write_retriever(tmp_path / "mine")
    for folder, collection, value in (("dev", "data", 0.5), ("kept", "others/data2", 0.25)):
        write_evaluation(out / folder / "tuned", model, value, split="dev", sources={"collection": collection})
    assert measured_of(model, out) == [("data", "dev", {"ndcg@10": 0.5}), ("data2", "dev", {"ndcg@10": 0.25})]
    again = {"protocol": "re-ranking", "depth": 100, "split": "dev"}
    first = {"collection": "data", "first stage": out / "dev" / "retriever2"}
    write_evaluation(out / "dev" / "reranker", model, 0.75, **again, sources=first)
    assert ("data, the first 100 of retriever2", "dev", {"ndcg@10": 0.75}) in measured_of(model, out)


def test_what_is_no_part_of_evaluations_any_more_goes(hub_here: HfApi, tmp_path: Path) -> None:
    out, model = tmp_path / "out", write_retriever(tmp_path / "mine")
    with Output(out).occupy("evaluations", {}, claims=["results.md"], again=True) as work:
        (out / "results.md").write_text("| mine | 0.5 |")
        work.complete()
    for name in ("data-dev", "data-test"):
        write_evaluation(out / "mine" / name, model, 0.5, split=name.removeprefix("data-"))
    assert measured_of(model, out) == [("data", split, {"ndcg@10": 0.5}) for split in ("dev", "test")]
    publish(out, "someone/figures")
    card = card_of(hub_here, "someone/figures", "dataset").text
    assert f"made from `{model}` (model), `data` (collection) by" in card
    assert f"Each part's `{MANIFEST}` says what it was made from" in card
    assert hub_here.file_exists("someone/figures", "mine/data-dev/result.json", repo_type="dataset")
    shutil.rmtree(out / "mine" / "data-dev")
    publish(out, "someone/figures")
    there = hub_here.list_repo_files("someone/figures", repo_type="dataset")
    assert [name for name in there if "data-dev" in name] == []
    assert "mine/data-test/result.json" in there


def test_a_licence_that_is_given_later_is_not_passed_over(hub_here: HfApi, tmp_path: Path) -> None:
    embedder, out = write_embedder(tmp_path / "base"), tmp_path / "out"
    export_sentence_transformer(embedder, out)
    with pytest.raises(InputError, match=r"was made from another licence \(other, now cc-by-nc-4.0\)"):
        export_sentence_transformer(embedder, Output(out, licence="cc-by-nc-4.0"))
    export_sentence_transformer(embedder, Output(out, overwrite=True, licence="cc-by-nc-4.0"))
    publish(out, "someone/licensed")
    assert card_of(hub_here, "someone/licensed").data.license == "cc-by-nc-4.0"
    assert describe(out, "someone/licensed", "1").license == "cc-by-nc-4.0"
    export_sentence_transformer(out, tmp_path / "again")
    assert describe(tmp_path / "again", "someone/again", "1").license == "cc-by-nc-4.0", "of what it was made of"


def test_a_model_at_a_revision_has_the_licence_of_that_revision(hub_here: HfApi, tmp_path: Path) -> None:
    for seed, revision, licence in ((0, "v1", "cc-by-nc-4.0"), (1, None, "apache-2.0")):
        out = tmp_path / f"out-{seed}"
        export_sentence_transformer(write_embedder(tmp_path / f"base-{seed}", seed=seed), Output(out, licence=licence))
        publish(out, "someone/licences", revision=revision)
    (first,), (newest,) = (lineage_of(f"someone/licences{revision}") for revision in ("@v1", ""))
    assert (first["licence"], newest["licence"]) == ("cc-by-nc-4.0", "apache-2.0")
