"""The collection that is kept is found fit before anything is trained, and measured beside the own one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tiny_retriever import write_dataset, write_retriever

from hf_dense.errors import InputError
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.experiments import keeping
from hf_dense.experiments.arms import Arm, format_rows, make_rows
from hf_dense.experiments.keeping import Kept, open_kept


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "own", passages=30)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    folder = write_dataset(tmp_path / "other", passages=33)
    shutil.copy(folder / "qrels" / "test.tsv", folder / "qrels" / "dev.tsv")
    return folder


def test_a_collection_with_or_without_its_split(own: Path, other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_kept(str(other), own) == Kept("other", other, "dev")
    assert open_kept(f"{other}:test", own) == Kept("other", other, "test")
    (own.parent / "documents").mkdir()
    assert open_kept(str(other), own.parent / "documents") == Kept("other", other, "dev")
    assert open_kept(str(other), own / "corpus.jsonl") == Kept("other", other, "dev")
    monkeypatch.setattr(keeping, "open_probe", lambda: Path("there"))
    assert open_kept("python_docs", own) == Kept("python_docs", Path("there"), "dev")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("{other}:later", "other has no relevance judgements for split 'later'"),
        ("{own}", "own has no relevance judgements for split 'dev'; it has test, train"),
        ("nowhere", "There is no collection nowhere to keep; give COLLECTION"),
        ("nowhere:dev", "There is no collection nowhere to keep"),
        ("{copy}:test", "copy is the collection that is tuned for; keep another one, or python_docs"),
    ],
)
def test_what_cannot_be_kept(own: Path, other: Path, given: str, sentence: str) -> None:
    copy = shutil.copytree(own, own.with_name("copy"))
    with pytest.raises(InputError, match=sentence):
        open_kept(given.format(own=own, other=other, copy=copy), own)


def result(name: str, **values: float) -> RetrievalResult:
    """Of two queries, around a mean."""
    metrics = {"ndcg@10": 0.0, "mrr@10": 0.0, "recall@100": 0.0} | {
        key.replace("_", "@"): value for key, value in values.items()
    }
    per_query = {metric: {"a": value - 0.01, "b": value + 0.02} for metric, value in metrics.items()}
    return RetrievalResult(name, "dev", metrics, per_query, 0.0)


def test_every_arm_is_shown_with_both_figures() -> None:
    arms = [
        Arm(result("bm25", ndcg_10=0.5), result("bm25", ndcg_10=0.6), 3.0),
        Arm(result("untouched", ndcg_10=0.7), result("untouched", ndcg_10=0.4)),
        Arm(result("retriever1", ndcg_10=0.9), result("retriever1", ndcg_10=0.1), 60.0),
    ]
    rows = make_rows(arms)
    assert [row.get("before") for row in rows] == [None, "bm25", "untouched"]
    assert rows[2]["against before"]["ndcg@10"]["difference"] == pytest.approx(0.2)
    kept = [row["kept"].get("against untouched", {}).get("ndcg@10", {}).get("difference") for row in rows]
    assert kept == [pytest.approx(0.2), None, pytest.approx(-0.3)]
    assert json.loads(json.dumps(rows)) == rows
    head, _, *lines = format_rows(rows).splitlines()
    assert "| kept: nDCG@10 | kept: against untouched | time |" in head
    cells = [cell.strip() for cell in lines[2].split("|")][1:-1]
    assert (cells[0], cells[1], cells[6], cells[8]) == ("retriever1", "0.9000", "0.1000", "60 s")
    assert cells[7].startswith("-0.3000 (")
    assert [cell.strip() for cell in lines[1].split("|")][-2] == "-", "nothing was made"


def test_without_another_collection_nothing_is_said_of_one() -> None:
    rows = make_rows([Arm(result("bm25", ndcg_10=0.5), None, 3.0)])
    assert "kept" not in rows[0]
    assert "kept" not in format_rows(rows)


@pytest.mark.slow
def test_a_training_is_measured_beside_its_start(
    own: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from hf_dense.commands.main import main

    retriever, run = write_retriever(tmp_path / "retriever"), tmp_path / "run"
    words = ["finetune", "--model", str(retriever), "--collection", str(own), "--out", str(run), "--max_steps", "2"]
    words += ["--per_device_train_batch_size", "4", "--use_cpu", "true", "--disable_tqdm", "true"]
    measured = [*words, "--measure_on", "test", "--keep", str(other)]
    main(measured)
    out = capsys.readouterr().out
    assert [line.split("|")[1].strip() for line in out.splitlines() if line.startswith("| ")][1:] == [
        "---",
        "untouched",
        "fine-tuned",
    ]
    facts = json.loads((run / "evaluation" / "results.json").read_text())
    assert facts["kept"]["name"] == "other"
    assert {row["name"]: row["kept"]["queries"] for row in facts["results"]} == {"untouched": 20, "fine-tuned": 20}
    assert facts["results"][0]["kept"]["metrics"] != facts["results"][0]["metrics"]
    found = RetrievalResult.load(run / "evaluation" / "kept-other-dev" / "fine-tuned")
    assert facts["results"][1]["kept"]["metrics"] == found.metrics
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name == "result.json"}
    main(measured)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name == "result.json"} == before
    main([*words, "--overwrite", "--learning_rate", "1e-3"])
    assert not (run / "evaluation").exists(), "it was of the training that was replaced"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--keep", "{other}"], "has no relevance judgements for split 'dev'"),
        (["--measure_on", "train", "--keep", "{other}"], "The split 'train' is trained on"),
        (["--measure_on", "test", "--keep", "nowhere"], "There is no collection nowhere"),
    ],
)
def test_all_is_checked_before_training(
    words: list[str], sentence: str, own: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from hf_dense.commands.main import main

    given = ["--model", str(write_retriever(tmp_path / "retriever")), "--collection", str(own)]
    with pytest.raises(SystemExit):
        main(["finetune", *given, "--out", str(tmp_path / "run"), *(word.format(other=other) for word in words)])
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
