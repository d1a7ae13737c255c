"""Collections and models of the Hub are used by their names, at a revision, wherever directories are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from huggingface_hub import HfApi
from manifests import manifest_of
from pyarrow import parquet
from tiny_retriever import write_dataset, write_retriever

from hf_dense.commands.main import main
from hf_dense.data import hub_names
from hf_dense.data.collections import content_hash, load_corpus, load_qrels, named_split
from hf_dense.data.corpus import load_passages
from hf_dense.errors import InputError
from hf_dense.hub.loading import load_encoder, load_retriever, load_tokenizer

NAME, OLD, MODEL = "someone/questions", "someone/questions@old", "someone/finder@old"


@pytest.fixture
def local(hub_here: HfApi, tmp_path: Path) -> Iterator[Path]:
    """A directory with `data` and `model` as they are at the revision `old` on the Hub; on `main` they are others."""
    hub_names._fetched.cache_clear()
    write_dataset(tmp_path / "data", passages=40)
    write_dataset(tmp_path / "more", passages=41)
    write_retriever(tmp_path / "model")
    write_retriever(tmp_path / "other", seed=1)
    for kind, name, (first, second) in (
        ("dataset", NAME, ("data", "more")),
        ("model", "someone/finder", ("model", "other")),
    ):
        hub_here.create_repo(name, repo_type=kind, exist_ok=True)
        hub_here.upload_folder(repo_id=name, repo_type=kind, folder_path=tmp_path / first)
        hub_here.create_branch(name, repo_type=kind, branch="old", exist_ok=True)
        hub_here.upload_folder(repo_id=name, repo_type=kind, folder_path=tmp_path / second)
    yield tmp_path
    hub_names._fetched.cache_clear()


def test_a_collection_is_what_it_is_at_a_revision(local: Path) -> None:
    assert content_hash(OLD) == content_hash(local / "data")
    assert content_hash(NAME) == content_hash(local / "more") != content_hash(OLD)
    assert len(load_corpus(Path(OLD))) == 40
    assert len(load_corpus(NAME)) == 41
    assert load_qrels(OLD, "test") == load_qrels(local / "data", "test")
    assert named_split(f"{OLD}:dev", "test") == (OLD, "dev")
    assert named_split(str(local / "data"), "test") == (str(local / "data"), "test")


def test_judgements_of_mteb_are_fetched_where_they_lie(hub_here: HfApi, tmp_path: Path) -> None:
    folder, name = write_dataset(tmp_path / "data", passages=40), "someone/mteb"
    expected = load_qrels(folder, "test")
    rows = [(query, passage, grade) for query, graded in expected.items() for passage, grade in graded.items()]
    columns = dict(zip(("query-id", "corpus-id", "score"), map(list, zip(*rows, strict=True)), strict=True))
    shutil.rmtree(folder / "qrels")
    (folder / "data").mkdir()
    parquet.write_table(pa.table(columns), folder / "data" / "test-00000-of-00001.parquet")
    hub_here.create_repo(name, repo_type="dataset")
    hub_here.upload_folder(repo_id=name, repo_type="dataset", folder_path=folder)
    assert load_qrels(name, "test") == load_qrels(folder, "test") == expected
    assert content_hash(name) == content_hash(folder)


def test_a_model_is_what_it_is_at_a_revision(local: Path) -> None:
    expected, other = load_retriever(local / "model"), load_retriever(local / "other")
    for name, model in ((MODEL, expected), ("someone/finder", other)):
        assert load_retriever(name).encode_query("abc").tolist() == model.encode_query("abc").tolist()
    assert len(load_tokenizer(MODEL)) == len(expected.tokenizer)
    weight = load_encoder(MODEL).embeddings.word_embeddings.weight
    assert weight.equal(expected[0].model.embeddings.word_embeddings.weight)


@pytest.mark.slow
def test_every_verb_takes_names(local: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = local / "out"
    tasks = ["--tasks", f"{OLD}:test", str(local / "data"), "--no_bm25"]
    main(["evaluate", f"mine={MODEL}", *tasks, "--out", str(out / "evaluation")])
    facts = json.loads((out / "evaluation" / "results.json").read_text())["models"]["mine"]["tasks"]
    assert facts["questions@old-test"]["ndcg@10"] == facts["data-test"]["ndcg@10"]
    manifest = manifest_of(out / "evaluation" / "mine" / "questions@old-test")
    assert manifest.sources == {"model": MODEL, "collection": OLD}
    main(["data", "negatives", OLD, "--model", MODEL, "--depth", "4", "--out", str(out / "mined")])
    main(["publish", str(out / "mined"), "someone/lists"])
    training = ["--max_steps", "1", "--per_device_train_batch_size", "4", "--use_cpu", "true", "--report_to", "none"]
    main(["search", MODEL, "abc", "--corpus", OLD, "--index", str(out / "index")])
    assert "40 passages ready" in capsys.readouterr().out
    words = ["--model", MODEL, "--collection", OLD, "--lists", "someone/lists", "--passages", "3", *training]
    main(["finetune", *words, "--out", str(out / "lists"), "--keep", f"{NAME}:test", "--measure_on", "test"])
    tuned = manifest_of(out / "lists" / "model")
    assert tuned.facts["lineage"][0]["start"] == MODEL
    assert "base_model: someone/finder\n" in (out / "lists" / "model" / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("someone/questions@none", "The dataset someone/questions of the Hub has no revision 'none'"),
        ("someone/nothing", "someone/nothing is neither a directory nor a dataset of the Hub that can be reached"),
        ("nothing", "nothing is not a directory; give the directory of a collection, or a dataset of the Hub"),
    ],
)
def test_what_is_not_there_is_said(name: str, sentence: str, local: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        load_corpus(name)
    with pytest.raises(InputError, match="The model someone/finder of the Hub has no revision 'none'"):
        load_retriever("someone/finder@none")


def test_a_corpus_is_read_at_a_revision(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(name: str, *given: object, revision: str | None = None, **_: object) -> object:
        asked.append((name, revision))
        raise FileNotFoundError(name)

    monkeypatch.setattr("hf_dense.data.corpus.load_dataset_builder", load)
    with pytest.raises(InputError, match="neither a path nor a dataset that can be reached"):
        load_passages(OLD)
    assert asked == [(NAME, "old")]
