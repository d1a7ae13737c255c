"""Results in the layout of MTEB's results repository: MTEB reads them back, under the model's name and commit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import mteb
import pytest
from huggingface_hub import HfApi
from mteb.models.model_meta import ModelMeta
from mteb.results import TaskResult
from tiny_retriever import write_dataset, write_retriever

from hf_dense.commands.main import main
from hf_dense.errors import InputError
from hf_dense.evaluation.mteb_results import write_mteb_results
from hf_dense.evaluation.retrieval import SCORES_FILE, Passages, build_task, evaluate_retriever
from hf_dense.evaluation.runner import run_protocol
from hf_dense.storage.manifest import COMPLETE, Manifest


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`model`, measured in `measured` on SciFact (a few texts in its place) and on a directory, and `other`."""
    root = tmp_path_factory.mktemp("mteb")
    write_retriever(root / "model")
    write_retriever(root / "other", seed=1)
    data = write_dataset(root / "data")
    task = mteb.get_task("SciFact")
    task.dataset, task.data_loaded = build_task(data, "test").dataset, True
    run_protocol(Passages(task, "test"), root / "model", root / "measured" / "SciFact", name="mine")
    evaluate_retriever(root / "model", data, "test", name="mine", out=root / "measured" / "data-test")
    evaluate_retriever(root / "other", data, "test", name="other", out=root / "local" / "data-test")
    return root


def test_published_results_are_mtebs(root: Path, hub_here: HfApi, tmp_path: Path) -> None:
    words = ["--results", str(root / "measured"), "--mteb", str(tmp_path / "out"), "--trained_on", "MSMARCO"]
    main(["publish", str(root / "model"), "someone/leading", *words])
    commit = hub_here.model_info("someone/leading").sha
    folder = tmp_path / "out" / "results" / "someone__leading" / str(commit)
    assert {path.name for path in folder.glob("*.json")} >= {"SciFact.json", "model_meta.json"}
    assert not [path for path in folder.iterdir() if "Local" in path.name], "directories are no tasks of MTEB's"
    result = TaskResult.from_disk(folder / "SciFact.json")
    assert result.dataset_revision == mteb.get_task("SciFact").metadata.dataset["revision"]
    ours = json.loads((root / "measured" / "SciFact" / "result.json").read_text())["metrics"]
    assert result.scores["test"][0]["ndcg_at_10"] == pytest.approx(ours["ndcg@10"], abs=1e-4)
    meta = json.loads((folder / "model_meta.json").read_text())
    assert (meta["name"], meta["revision"]) == ("someone/leading", commit)
    assert "Sentence Transformers" in meta["framework"]
    assert (meta["embed_dim"], meta["max_tokens"], meta["similarity_fn_name"]) == (32, 32, "dot")
    assert meta["training_datasets"] == ["MSMARCO"] or "MSMARCO" in str(meta["training_datasets"])
    assert meta["reference"] == "https://huggingface.co/someone/leading"


@pytest.mark.slow
def test_a_model_is_published_with_its_results_again(root: Path, hub_here: HfApi, tmp_path: Path) -> None:
    words = ["publish", str(root / "model"), "someone/again", "--results", str(root / "measured"), "--mteb"]
    for data in ("MSMARCO", "MSMARCO", "NQ"):
        main([*words, str(tmp_path / "out"), "--trained_on", data])
        commit = hub_here.model_info("someone/again").sha
        assert [path.name for path in (tmp_path / "out" / "results" / "someone__again").iterdir()] == [commit]
    assert data in next((tmp_path / "out").rglob("model_meta.json")).read_text()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"--trained_on": "MyData"}, "MTEB has no task 'MyData'"),
        ({"--results": "{root}/measured/data-test"}, "on a task of MTEB by its name; measure it on one"),
        ({"--mteb": "{root}/measured"}, "is the directory of evaluations, and would replace it"),
        ({"--mteb": "{tmp}/mine"}, "was not written by hf_dense"),
        ({"--mteb": "{tmp}/other"}, "holds results of a/b, not of someone/first; name another directory"),
    ],
)
def test_results_that_cannot_be_written_keep_a_model_from_the_hub(
    changes: dict[str, str],
    sentence: str,
    root: Path,
    hub_here: HfApi,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    write_mteb_results(root / "model", root / "measured", tmp_path / "other", name="a/b", revision="1" * 40)
    given = {"--results": f"{root}/measured", "--mteb": f"{tmp_path}/out", "--trained_on": "NQ", **changes}
    words = [word.format(root=root, tmp=tmp_path) for pair in given.items() for word in pair]
    with pytest.raises(SystemExit):
        main(["publish", str(root / "model"), "someone/first", *words])
    assert sentence in capsys.readouterr().err
    assert not hub_here.repo_exists("someone/first")


def test_what_it_was_trained_on_may_be_unknown_or_nothing(root: Path, tmp_path: Path) -> None:
    for name, given in (("unknown", None), ("nothing", [])):
        out = write_mteb_results(
            root / "model", root / "measured", tmp_path / name, name="a/b", revision="1" * 40, trained_on=given
        )
        meta = json.loads(next(out.rglob("model_meta.json")).read_text())
        assert (meta["training_datasets"] is None) is (given is None)


@pytest.mark.filterwarnings("error:Pydantic")
@pytest.mark.parametrize(("licence", "written"), [("MIT", "mit"), ("other", None), ("llama3.3", None)])
def test_what_is_said_of_the_model_is_read_by_mteb(
    licence: str, written: str | None, root: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(root / "model", tmp_path / "model")
    Manifest("retriever", COMPLETE, licence=licence).save(model)
    out = write_mteb_results(model, root / "measured", tmp_path / "out", name="a/b", revision="1" * 40)
    meta = json.loads(next(out.rglob("model_meta.json")).read_text())
    assert meta["license"] == written
    assert ModelMeta.model_validate({**meta, "loader": None}).license == written


def test_what_cannot_be_written(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"out": tmp_path / "out", "name": "a/b", "revision": "1" * 40}
    with pytest.raises(InputError, match=r"other on a task of MTEB by its name; measure it on one"):
        write_mteb_results(root / "other", root / "local", **given)
    with pytest.raises(InputError, match="MTEB has no task 'MyData' that a model could be trained on"):
        write_mteb_results(root / "model", root / "measured", **given, trained_on=["MyData"])
    for name in ("a", "b"):
        place = shutil.copytree(root / "measured" / "SciFact", tmp_path / "measured" / name)
    scores = json.loads((place / SCORES_FILE).read_text())
    scores["scores"]["test"][0]["ndcg_at_10"] = 0.875
    (place / SCORES_FILE).write_text(json.dumps(scores))
    with pytest.raises(InputError, match=r"measured/a and .*measured/b are results of one task, and differ"):
        write_mteb_results(root / "model", tmp_path / "measured", **given)
    for words, sentence in (
        (["--mteb", str(tmp_path / "out")], "name the evaluations with --results DIR"),
        (["--trained_on", "NQ"], "say where its results are written with --mteb DIR"),
    ):
        with pytest.raises(SystemExit):
            main(["publish", str(root / "model"), "someone/leading", *words])
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
