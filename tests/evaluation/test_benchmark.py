"""Many tasks: local and public, done once, one failure costing nothing else; tables with published rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from manifests import manifest_of
from tiny_retriever import write_dataset, write_retriever

from hf_dense.commands.main import main
from hf_dense.errors import InputError
from hf_dense.evaluation import benchmark, retrieval
from hf_dense.evaluation import tasks as task_names
from hf_dense.evaluation.benchmark import evaluate_tasks
from hf_dense.evaluation.measures import title
from hf_dense.evaluation.reranking import FirstPassages
from hf_dense.evaluation.result import RetrievalResult, load_rankings
from hf_dense.evaluation.retrieval import build_task
from hf_dense.evaluation.tables import format_glue, format_results, load_published, summarise
from hf_dense.evaluation.tasks import BEIR, CQADUPSTACK, GROUPS, expand
from hf_dense.hub.precision import Reading
from hf_dense.storage.output import Output


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | Path]:
    return {"mine": write_retriever(tmp_path_factory.mktemp("models") / "mine"), "bm25": "bm25"}


def result(value: float) -> RetrievalResult:
    return RetrievalResult("r", "test", {"ndcg@10": value, "mrr@10": value / 2}, {}, 1.0)


def test_local_tasks_are_measured_once(models: dict[str, str | Path], tmp_path: Path) -> None:
    first, second = (write_dataset(tmp_path / name) for name in ("first", "second"))
    tasks = [str(first), f"{second}:train"]
    found = evaluate_tasks(models, tasks, tmp_path / "out")
    assert {name: sorted(results) for name, results in found.items()} == {
        "mine": ["first-test", "second-train"],
        "bm25": ["first-test", "second-train"],
    }
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*/result.json")}
    assert len(files) == 4
    assert evaluate_tasks(models, tasks, tmp_path / "out") == found
    assert {path: path.stat().st_mtime_ns for path in files} == files
    table = (tmp_path / "out" / "results.md").read_text()
    assert f"| bm25 | {found['bm25']['first-test'].metrics['ndcg@10']:.4f} |" in table
    assert "published" not in table


def test_a_task_that_fails_costs_no_other(models: dict[str, str | Path], tmp_path: Path) -> None:
    good = write_dataset(tmp_path / "good")
    bad = write_dataset(tmp_path / "bad")
    (bad / "qrels" / "test.tsv").unlink()
    with pytest.raises(InputError, match=r"^mine on bad-test, bm25 on bad-test: .* no relevance judgements "):
        evaluate_tasks(models, [str(bad), str(good)], tmp_path / "out")
    facts = json.loads((tmp_path / "out" / "results.json").read_text())
    reason = "bad has no relevance judgements for split 'test'; it has train"
    assert facts["failed"] == {"mine on bad-test": reason, "bm25 on bad-test": reason}, "without places of this machine"
    assert set(facts["models"]["mine"]["tasks"]) == {"good-test"}
    assert not (tmp_path / "out" / "mine" / "bad-test").exists()
    table = (tmp_path / "out" / "results.md").read_text()
    assert "- Not measured in the last call (results.json says why): mine on bad-test, bm25 on bad-test\n" in table


def test_every_reason_is_said(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data")
    models = {name: str(tmp_path / name) for name in ("first", "second")}
    with pytest.raises(InputError, match=r"^first on data-test: .*first.* second on data-test: .*second"):
        evaluate_tasks(models, [str(data)], tmp_path / "out")


@pytest.mark.parametrize(("protocol", "metric"), [("documents", "mrr@100"), ("candidates", "auc")])
def test_local_tasks_are_measured_by_other_protocols(
    models: dict[str, str | Path], tmp_path: Path, protocol: str, metric: str
) -> None:
    data = write_dataset(tmp_path / "data")
    with (data / "qrels" / "test.tsv").open("a") as stream:
        stream.write("q1\tp7\t0\nq2\tp7\t0\n")
    found = evaluate_tasks({"mine": models["mine"]}, [str(data)], tmp_path / "out", protocol=protocol)
    assert 0 <= found["mine"]["data-test"].metrics[metric] <= 1
    assert f"data-test {title(metric)}" in (tmp_path / "out" / "results.md").read_text()
    with pytest.raises(InputError, match="The protocol is 'books'; allowed: passages, documents"):
        evaluate_tasks(models, [str(data)], tmp_path / "other", protocol="books")


def test_rankings_are_ordered_anew(models: dict[str, str | Path], tmp_path: Path) -> None:
    """BM25 finds everything here; a random retriever that orders what it found ranks like itself among those."""
    data = write_dataset(tmp_path / "data", passages=150)  # more than are ordered anew
    other = write_retriever(tmp_path / "other", seed=5)
    both = {"again": models["mine"], "other": other}
    found = evaluate_tasks({"mine": models["mine"]}, [str(data)], tmp_path / "out", rerankers=both)
    assert list(found) == ["mine", "mine + again", "mine + other"]
    first, same, worse = (results["data-test"] for results in found.values())
    assert same.per_query == first.per_query, "a retriever does not change its own order"
    assert worse.per_query["recall@1000"] == first.per_query["recall@1000"]
    assert first.metrics["recall@1000"] == 1 > first.metrics["recall@100"], "something lies below"
    assert worse.per_query["mrr@10"] != first.per_query["mrr@10"]
    given = ({"mine": models["mine"]}, [str(data)], tmp_path / "out")
    shallow = evaluate_tasks(*given, rerankers={"other": other}, rerank_depth=5)
    assert list(shallow) == ["mine", "mine + other (5)"]
    reordered = shallow["mine + other (5)"]["data-test"].per_query["mrr@10"]
    for query, value in first.per_query["mrr@10"].items():
        assert reordered[query] >= 1 / 5 if value >= 1 / 5 else reordered[query] == value
    with pytest.raises(InputError, match="rerank_depth is 1001; it must be from 1 to 1000"):
        evaluate_tasks(*given, rerankers=both, rerank_depth=1001)
    with (data / "qrels" / "test.tsv").open("a") as stream:
        stream.write("q1\tp7\t0\nq2\tp7\t0\n")
    with pytest.raises(InputError, match="candidates are; give the cross-encoder as a model"):
        evaluate_tasks({"mine": models["mine"]}, [str(data)], tmp_path / "more", protocol="candidates", rerankers=both)


@pytest.mark.slow
def test_what_is_re_ranked_or_cut_is_held_against_its_own_model(models: dict[str, str | Path], tmp_path: Path) -> None:
    """Against the row above it stood, of another model, by another re-ranker; the results may have been moved."""
    data, other = str(write_dataset(tmp_path / "data")), write_retriever(tmp_path / "other", seed=5)
    both = {"mine": models["mine"], "other": other}
    evaluate_tasks(both, [data], tmp_path / "out", rerankers={"again": other}, dimensions=[16])
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    evaluate_tasks({"third": models["mine"]}, [data], moved)
    *_, last = written = (moved / "results.md").read_text().splitlines()
    assert last == "- The p-values are not corrected for the number of comparisons."
    lines = [line for line in written if "p = " in line]
    assert [line.partition(", ")[2].partition(":")[0] for line in lines] == [
        "other - mine",
        "mine + again - mine",
        "other + again - other",
        "mine (16 dimensions) - mine",
        "other (16 dimensions) - other",
        "third - other",
    ]


def test_the_table_keeps_the_rows_of_earlier_calls(models: dict[str, str | Path], tmp_path: Path) -> None:
    data, out = str(write_dataset(tmp_path / "data")), tmp_path / "out"
    evaluate_tasks({"bm25": "bm25"}, [data], out)
    found = evaluate_tasks({"mine": models["mine"]}, [data], out)
    assert list(found) == ["mine"]
    assert list(json.loads((out / "results.json").read_text())["models"]) == ["bm25", "mine"]
    written = (out / "results.md").read_text()
    assert "- data-test nDCG@10, mine - bm25: -" in written
    evaluate_tasks({"mine": models["mine"]}, [data], out)
    assert (out / "results.md").read_text() == written
    (out / "results.md").write_text("what somebody wrote")
    with pytest.raises(InputError, match=r"results\.md is not as hf_dense wrote it"):
        evaluate_tasks(models, [data], out)


def test_rows_of_two_protocols_are_not_compared(models: dict[str, str | Path], tmp_path: Path) -> None:
    data, out = write_dataset(tmp_path / "data"), tmp_path / "out"
    with (data / "qrels" / "test.tsv").open("a") as stream:
        stream.write("".join(f"q{row}\tp7\t0\n" for row in range(20) if row != 7))
    evaluate_tasks({"first": models["mine"], "second": models["mine"]}, [str(data)], out)
    assert "nDCG@10, second - first" in (out / "results.md").read_text()
    assert (out / "results.png").is_file()
    evaluate_tasks({"given": models["mine"]}, [str(data)], out, protocol="candidates")
    evaluate_tasks({"whole": models["mine"]}, [str(data)], out, protocol="documents")
    evaluate_tasks({"found": models["mine"]}, [str(data)], out)
    table = (out / "results.md").read_text()
    assert [line for line in table.splitlines() if " - " in line and "p = " in line] == [
        line for line in table.splitlines() if "second - first" in line
    ]
    assert not (out / "results.png").exists()
    row = next(line for line in table.splitlines() if line.startswith("| given |"))
    assert row.count("not measured") == 2, "nDCG@10 of given candidates has a column of its own"


def test_rows_that_were_read_in_other_ways_are_told_apart(models: dict[str, str | Path], tmp_path: Path) -> None:
    task, (name, model) = str(write_dataset(tmp_path / "task")), next(iter(models.items()))
    evaluate_tasks({name: model}, [task], tmp_path / "out")
    evaluate_tasks({"other": model}, [task], tmp_path / "out", reading=Reading("bf16"))
    table = (tmp_path / "out" / "results.md").read_text()
    assert "- other on task-test was measured in bf16" in table
    assert f"- {name} on" not in table


def test_rows_outlive_a_call_that_is_killed(
    models: dict[str, str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = str(write_dataset(tmp_path / "data")), tmp_path / "out"
    evaluate_tasks({"bm25": "bm25"}, [data], out)
    with monkeypatch.context() as patched:
        patched.setattr(benchmark, "_write_tables", interrupt)
        with pytest.raises(KeyboardInterrupt):
            evaluate_tasks({"mine": models["mine"]}, [data], out)
    evaluate_tasks({"again": models["mine"]}, [data], out)
    assert list(json.loads((out / "results.json").read_text())["models"]) == ["bm25", "mine", "again"]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_another_model_or_collection_under_the_same_name(models: dict[str, str | Path], tmp_path: Path) -> None:
    data, out, other = write_dataset(tmp_path / "data"), tmp_path / "out", write_retriever(tmp_path / "other", seed=5)
    before = evaluate_tasks(models, [str(data)], out)
    with pytest.raises(InputError, match=r"mine on data-test: .* was made from another model.*--overwrite.*measured"):
        evaluate_tasks({"mine": other}, [str(data)], out)
    assert evaluate_tasks(models, [str(data)], out) == before
    replaced = evaluate_tasks({"mine": other}, [str(data)], Output(out, overwrite=True))
    assert replaced["mine"]["data-test"].metrics != before["mine"]["data-test"].metrics
    lines = (data / "corpus.jsonl").read_text().splitlines(keepends=True)
    (data / "corpus.jsonl").write_text("".join([*lines, '{"_id": "new", "title": "", "text": "new"}\n']))
    evaluate_tasks({"mine": other}, [str(data)], Output(out, overwrite=True))
    assert list(json.loads((out / "results.json").read_text())["models"]) == ["mine"]
    left = "bm25 on data-test was measured on another collection; measure it again"
    assert left in (out / "results.md").read_text()
    evaluate_tasks(models | {"mine": other}, [str(data)], Output(out, overwrite=True))
    assert list(json.loads((out / "results.json").read_text())["models"]) == ["mine", "bm25"]


@pytest.mark.slow
def test_a_row_is_of_one_model(models: dict[str, str | Path], tmp_path: Path) -> None:
    first, second, out = *(str(write_dataset(tmp_path / name)) for name in ("first", "second")), tmp_path / "out"
    other = write_retriever(tmp_path / "other", seed=5)
    evaluate_tasks(models, [first], out, dimensions=[2])
    with pytest.raises(InputError, match=r"mine on second-test: .*another model than .*other; .* another name .*\."):
        evaluate_tasks({"mine": other}, [second], out)
    assert not (out / "mine" / "second-test").exists()
    evaluate_tasks(models, [second], out, dimensions=[2])
    facts = json.loads((out / "results.json").read_text())
    assert {len(row["tasks"]) for row in facts["models"].values()} == {2}, "of the same model it goes on"
    evaluate_tasks({"mine": other}, [second], Output(out, overwrite=True))
    assert list(json.loads((out / "results.json").read_text())["models"]["mine"]["tasks"]) == ["second-test"]
    table = (out / "results.md").read_text()
    assert "- mine on first-test was measured of another model; measure it again" in table
    evaluate_tasks({"mine": other}, [first], Output(out, overwrite=True))
    assert "mine on first-test was measured of another model" not in (out / "results.md").read_text()


def test_a_folder_that_does_not_name_the_models_of_its_rows(models: dict[str, str | Path], tmp_path: Path) -> None:
    first, second, out = *(str(write_dataset(tmp_path / name)) for name in ("first", "second")), tmp_path / "out"
    evaluate_tasks(models, [first], out)
    manifest = manifest_of(out)
    del manifest.facts["models"]
    manifest.save(out)
    with pytest.raises(InputError, match="another model than"):
        evaluate_tasks({"mine": write_retriever(tmp_path / "other", seed=5)}, [second], out)


def test_rows_of_other_first_passages_are_left_out(models: dict[str, str | Path], tmp_path: Path) -> None:
    data, out, other = str(write_dataset(tmp_path / "data")), tmp_path / "out", write_retriever(tmp_path / "o", seed=5)
    evaluate_tasks({"mine": models["mine"]}, [data], out, rerankers={"other": other})
    evaluate_tasks({"mine": other}, [data], Output(out, overwrite=True))
    assert "mine + other on data-test was measured on other first passages" in (out / "results.md").read_text()


def test_first_passages_are_looked_for_where_the_folder_is_now(models: dict[str, str | Path], tmp_path: Path) -> None:
    data, out, other = str(write_dataset(tmp_path / "data")), tmp_path / "out", write_retriever(tmp_path / "o", seed=5)
    evaluate_tasks({"mine": models["mine"]}, [data], out, rerankers={"other": other})
    out = out.rename(tmp_path / "renamed")
    evaluate_tasks({"bm25": "bm25"}, [data], out)
    assert "other first passages" not in (out / "results.md").read_text()
    evaluate_tasks({"mine": other}, [data], Output(out, overwrite=True))
    assert "mine + other on data-test was measured on other first passages" in (out / "results.md").read_text()


@pytest.mark.slow
def test_a_folder_called_like_a_data_set_drops_what_mteb_drops(
    models: dict[str, str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries of ArguAna are passages too, and no hits of theirs."""
    for name in ("arguana", "mine"):
        data = write_dataset(tmp_path / name)
        asked = (data / "queries.jsonl").read_text()
        with (data / "corpus.jsonl").open("a") as stream:
            stream.write(asked.replace('"text"', '"title": "", "text"'))
    given, out = [str(tmp_path / name) for name in ("arguana", "mine")], tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(retrieval, "drops_queries", lambda label: False)
        evaluate_tasks(models, given[:1], out, rerankers={"again": models["mine"]})
    table = (out / "results.md").read_text()
    for row in ("mine", "bm25", "mine + again", "bm25 + again"):
        assert f"{row} on arguana-test was measured with queries among their own hits" in table
    with pytest.raises(InputError, match=r"another identical_ids \(none, now dropped\)"):
        evaluate_tasks(models, given, out)
    with pytest.raises(InputError, match="has queries among their own hits; measure it again"):
        FirstPassages(out / "mine" / "arguana-test", retrieval.Passages.load(given[0], "test"))
    evaluate_tasks(models, given, Output(out, overwrite=True), rerankers={"again": models["mine"]})
    for row in ("mine", "bm25", "mine + again"):
        assert all(query not in found for query, found in load_rankings(out / row / "arguana-test").items())
        assert all(query in found for query, found in load_rankings(out / row / "mine-test").items())
    assert "own hits" not in (out / "results.md").read_text()


def test_a_model_that_fails_stops_no_other(
    models: dict[str, str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, nowhere = str(write_dataset(tmp_path / "data")), tmp_path / "nowhere"
    with pytest.raises(InputError, match=r"^bad on data-test: There is no model directory .* measured is in"):
        evaluate_tasks({"bad": nowhere, **models}, [data], tmp_path / "out")
    assert list(json.loads((tmp_path / "out" / "results.json").read_text())["models"]) == ["mine", "bm25"]
    with pytest.raises(InputError, match="no model directory"):
        evaluate_tasks({"bad": nowhere}, [data], tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    for name in ("../bad", "..", ".", "", " ", "a\nb", "a\0b"):
        with pytest.raises(InputError, match="no name of a directory"):
            evaluate_tasks({name: "bm25"}, [data], tmp_path / "nothing")
    run = benchmark.run_protocol

    def full(protocol: Any, model: Any, out: Any, *, name: str, **rest: Any) -> Any:
        if name == "mine":
            raise RuntimeError("CUDA out of memory")
        return run(protocol, model, out, name=name, **rest)

    monkeypatch.setattr(benchmark, "run_protocol", full)
    with pytest.raises(InputError, match="mine on data-test: CUDA out of memory"):
        evaluate_tasks(models, [data], tmp_path / "other")
    assert (tmp_path / "other" / "bm25" / "data-test" / "result.json").is_file()


@pytest.mark.slow
def test_bm25_stands_beside_every_model_unless_it_is_refused(
    models: dict[str, str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, mine = str(write_dataset(tmp_path / "data")), f"mine={models['mine']}"

    def rows(out: str, *words: str) -> list[str]:
        main(["evaluate", *words, "--tasks", data, "--out", str(tmp_path / out)])
        facts = json.loads((tmp_path / out / "results.json").read_text())
        assert capsys.readouterr().out.count("| bm25 |") == ("bm25" in facts["models"])
        return list(facts["models"])

    assert rows("both", mine, "--rerank", f"again={models['mine']}") == ["bm25", "mine", "mine + again"]
    assert rows("both", f"other={models['mine']}", "--no_bm25") == ["bm25", "mine", "mine + again", "other"], "all stay"
    assert rows("named", mine, "bm25") == ["mine", "bm25"]
    with (Path(data) / "qrels" / "test.tsv").open("a") as stream:
        stream.write("q1\tp7\t0\nq2\tp7\t0\n")
    assert rows("candidates", mine, "--protocol", "candidates") == ["mine"]
    run = benchmark.run_protocol

    def fail(protocol: Any, model: Any, *given: Any, **named: Any) -> Any:
        if model == "bm25":
            raise MemoryError("no room for its index")
        return run(protocol, model, *given, **named)

    monkeypatch.setattr(benchmark, "run_protocol", fail)
    assert rows("failed", mine) == ["mine"], "which is no error"
    assert json.loads((tmp_path / "failed" / "results.json").read_text())["failed"] == {
        "bm25 on data-test": "no room for its index"
    }


def test_a_mistyped_model_is_said_before_bm25_is_measured(
    models: dict[str, str | Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = ["--tasks", str(write_dataset(tmp_path / "data")), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        main(["evaluate", str(tmp_path / "nowhere"), *words])
    assert "nowhere" in capsys.readouterr().err
    assert not (tmp_path / "out" / "bm25").exists()
    with pytest.raises(SystemExit):
        main(["evaluate", str(models["mine"]), str(tmp_path / "nowhere"), *words])
    said = [record.message for record in caplog.records]
    missing = f"There is no model directory {tmp_path / 'nowhere'}; there will be no row nowhere."
    assert said.count(missing) == 1
    assert said.index(missing) < said.index("mine on data-test"), "before any turn comes"
    table = (tmp_path / "out" / "results.md").read_text()
    assert "| bm25 |" in table, "beside what could be measured"
    assert table.endswith("- Not measured in the last call (results.json says why): nowhere on data-test\n"), (
        "without a row"
    )


def test_public_tasks_need_the_hub(models: dict[str, str | Path], tmp_path: Path) -> None:
    said = r"The data of SciFact \(mteb/scifact on the Hub\) cannot be loaded: Couldn't reach .* give a directory"
    with pytest.raises(InputError, match=said):
        evaluate_tasks({"bm25": "bm25"}, ["SciFact"], tmp_path / "out")


def test_public_tasks_are_measured_by_name(
    models: dict[str, str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MTEB's own loader is stood in for by local data."""
    local = build_task(write_dataset(tmp_path / "data"), "test")
    monkeypatch.setattr(task_names.mteb, "get_task", lambda name: local)
    found = evaluate_tasks(models, ["MSMARCO"], tmp_path / "out")
    assert found["bm25"]["MSMARCO"].metrics["mrr@10"] > 0.9
    table = (tmp_path / "out" / "results.md").read_text()
    assert "MSMARCO MRR@10" in table
    assert "| SimLM (published: MASTER, table 2) | 0.411 | 0.878 | 0.987 |" in table
    missing = json.loads((tmp_path / "out" / "results.json").read_text())["models"]["mine"]["beir"]
    assert missing["datasets"] == 0
    assert len(missing["missing"]) == 18


def test_public_tasks_of_several_splits_are_measured_on_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = build_task(write_dataset(tmp_path / "data"), "test")
    monkeypatch.setattr(task_names.mteb, "get_task", lambda name: task)
    for splits, measured in ((["dev", "test"], "test"), (["train", "dev", "dev2"], "dev"), (["all", "some"], "all")):
        task.metadata = task.metadata.model_copy(update={"eval_splits": splits})
        assert task_names.public_task("any") == (task, measured)


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        (["NoSuchTask"], "MTEB has no task 'NoSuchTask'"),
        (["SciFact:train"], "MTEB has no task 'SciFact:train'.* no split is chosen: leave it out"),
        (["STSBenchmark"], "is not one of retrieval"),
        (["./nowhere:test"], "There is no directory ./nowhere to evaluate on"),
        ([], "at least one model and one task"),
    ],
)
def test_tasks_that_are_none(tmp_path: Path, tasks: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        evaluate_tasks({"bm25": "bm25"}, tasks, tmp_path / "out")


def test_groups_and_means() -> None:
    names = expand(["beir"])
    assert len(names) == 13 + 12
    forums = {forum: result(at / 12) for at, forum in enumerate(GROUPS[CQADUPSTACK])}
    table = format_results({"mine": {**forums, "SciFact": result(0.5)}, "other": {"SciFact": result(0.4)}})
    head, _, mine, other, *published = table.splitlines()
    assert head == f"|  | SciFact nDCG@10 | {CQADUPSTACK} nDCG@10 |"
    assert mine == f"| mine | 0.5000 | {sum(range(12)) / 144:.4f} |"
    assert other == "| other | 0.4000 | not measured |"
    assert "| DupMAE (published: DupMAE, table 2) | 0.699 | 0.320 |" in published


def test_the_mean_over_beir_names_what_is_missing(models: dict[str, str | Path], tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "BioASQ")  # a directory called like a data set of BEIR is that data set
    found = evaluate_tasks({"bm25": "bm25"}, [str(data)], tmp_path / "out")
    found["bm25"]["SciFact"] = result(0.5)
    mean = (found["bm25"]["BioASQ-test"].metrics["ndcg@10"] + 0.5) / 2
    rest = ", ".join(name for name in BEIR if name not in ("BioASQ", "SciFact"))
    assert f"- bm25: mean nDCG@10 {mean:.4f} over 2 of BEIR's 18 data sets; missing: {rest}" in summarise(found)
    assert "| DupMAE (published: DupMAE, table 2) | 0.508 |" in (tmp_path / "out" / "results.md").read_text()


def test_published_figures_are_fractions_with_a_source() -> None:
    rows = load_published()
    assert {row["name"] for row in rows} >= {"SimLM", "MASTER", "RetroMAE", "DupMAE", "CoT-MAE", "coCondenser"}
    for row in rows:
        assert row["source"]
        assert all(0 < value < 1 for values in row["values"].values() for value in values.values())


@pytest.mark.parametrize(
    ("label", "metrics", "row"),
    [
        ("nq-test", ("answer_recall@20", "answer_recall@100"), "MASTER (published: MASTER, table 3) | 0.846 | 0.894"),
        ("NQ", ("ndcg@10", "mrr@10"), "MASTER (published: MASTER, table 4) | 0.516"),
        (
            "mind-dev",
            ("auc", "mrr", "ndcg@5", "ndcg@10"),
            "SEED-Encoder (published: SEED-Encoder, table 3) | 0.706 | 0.351 | 0.391 | 0.453",
        ),
        (
            "msmarco-documents-dev",
            ("mrr@100", "recall@100", "ndcg@10"),
            "SEED-Encoder, ANCE (published: SEED-Encoder, table 2) | 0.394",
        ),
        (
            "msmarco-dev",
            ("ndcg@10", "mrr@10", "recall@50", "recall@1000"),
            "SimLM (published: MASTER, table 2) | 0.411 | 0.878 | 0.987",
        ),
        ("trec-covid-test", ("ndcg@10",), "DupMAE (published: DupMAE, table 2) | 0.728"),
    ],
)
def test_published_rows_stand_beside_the_metrics_that_they_report(
    label: str, metrics: tuple[str, ...], row: str
) -> None:
    measured = RetrievalResult("mine", "test", dict.fromkeys(metrics, 0.5), {}, 1.0)
    assert f"| {row} |" in format_results({"mine": {label: measured}}).splitlines()
    assert "published" not in format_results({"mine": {f"other-{label}": measured}})


@pytest.mark.parametrize(
    ("label", "metrics"),
    [
        ("nq-test", ("auc", "mrr", "ndcg@5", "ndcg@10")),
        ("nq-test", ("mrr@100", "recall@100", "ndcg@10")),
        ("mind-dev", ("ndcg@10", "mrr@10", "recall@100")),
    ],
)
def test_what_another_protocol_measured_stands_beside_no_published_row(label: str, metrics: tuple[str, ...]) -> None:
    written = summarise({"mine": {label: RetrievalResult("mine", "test", dict.fromkeys(metrics, 0.5), {}, 1.0)}})
    assert "| mine |" in written
    assert "published" not in written
    assert "BEIR" not in written


def test_glue_beside_what_papers_published() -> None:
    metrics = {"cola/matthews_correlation": 0.5, "stsb/pearson": 0.7, "stsb/spearmanr": 0.6, "other/f1": 0.4}
    table = format_glue(RetrievalResult("mine", "validation", metrics, {}, 1.0))
    assert table.splitlines() == [
        "|  |  | mine | published, the metric is not named |",
        "| --- | --- | ---: | --- |",
        "| cola | matthews_correlation | 0.5000 | BERT 0.591 (MASTER, table 7); MASTER 0.607 (MASTER, table 7) |",
        "| stsb | pearson | 0.7000 | BERT 0.878 (MASTER, table 7); MASTER 0.880 (MASTER, table 7) |",
        "| stsb | spearmanr | 0.6000 | - |",
        "| other | f1 | 0.4000 | - |",
    ]


def test_a_directory_that_is_typed_by_dots_has_its_name(
    models: dict[str, str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, model = write_dataset(tmp_path / "data"), Path(models["mine"])
    below = next(path for path in model.iterdir() if path.is_dir())
    for at, typed in ((model, "."), (below, "..")):
        monkeypatch.chdir(at)
        out = tmp_path / f"of-{at.name}" / "out"
        main(["evaluate", typed, "--no_bm25", "--tasks", str(data), "--out", str(out)])
        assert (out / model.name / "data-test" / "result.json").is_file()
        assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_from_the_command_line(
    models: dict[str, str | Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_dataset(tmp_path / "data")
    given: list[Any] = ["evaluate", "bm25", f"mine={models['mine']}", "--tasks", str(data), "--out", tmp_path / "out"]
    main([str(word) for word in given])
    printed = capsys.readouterr().out
    assert "| mine |" in printed
    assert f"- {data.name}-test nDCG@10, mine - bm25: -" in printed
    assert printed.strip() == (tmp_path / "out" / "results.md").read_text().strip()
    assert (tmp_path / "out" / "results.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", "a/model", "b/model", "--tasks", str(data), "--out", str(tmp_path / "two")])
    assert "Two models are called 'model'" in capsys.readouterr().err


def test_no_other_model_is_called_bm25(models: dict[str, str | Path], tmp_path: Path) -> None:
    """It would stand in the place of BM25, which would not be measured."""
    data = write_dataset(tmp_path / "data")
    with pytest.raises(InputError, match="A model is called 'bm25', and is not BM25"):
        evaluate_tasks({"bm25": models["mine"]}, [str(data)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_that_no_directory_can_have_is_refused_at_once(models: dict[str, str | Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"called 'ä+', too long a name for a directory; name it: NAME=MODEL"):
        evaluate_tasks({"mine": models["mine"], "ä" * 130: models["mine"]}, ["nowhere"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["results.json", "results.md", "Results.png", "dimensions.png", "hf_dense.json"])
def test_no_model_is_called_as_a_file_that_is_written(tmp_path: Path, name: str) -> None:
    data = write_dataset(tmp_path / "data")
    with pytest.raises(InputError, match=f"A model is called '{name}', as a file that is written is"):
        evaluate_tasks({name: "bm25"}, [str(data)], tmp_path / "out")
    assert not (tmp_path / "out").exists()
