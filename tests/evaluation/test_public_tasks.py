"""MTEB's tasks by name, through its own loader: a local Hub serves small data under the names that MTEB asks for.

Figures are compared with those of every passage scored by plain products of vectors, and pytrec_eval.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytrec_eval
from json_lines import write_lines
from sentence_transformers import SentenceTransformer
from tiny_retriever import random_words, write_dataset, write_retriever

from hf_dense.errors import InputError
from hf_dense.evaluation import tasks as task_names
from hf_dense.evaluation.benchmark import evaluate_tasks
from hf_dense.evaluation.reranking import evaluate_reranker
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.retrieval import Passages, build_task
from hf_dense.evaluation.runner import run_protocol
from hf_dense.evaluation.tasks import CQADUPSTACK, GROUPS

Qrels = dict[str, dict[str, int]]
REPOSITORIES = {
    "SciFact": "mteb/scifact",
    "NFCorpus": "mteb/nfcorpus",
    "ArguAna": "mteb/arguana",
    "MSMARCO": "mteb/msmarco",
    "TRECDL2019": "whybe-choi/trec-dl-2019",
    "CQADupstackAndroidRetrieval": "mteb/CQADupstackAndroidRetrieval",
    "CQADupstackEnglishRetrieval": "mteb/cqadupstack-english",
}
MISSING = "NFCorpus"  # at first
TASKS = ["SciFact", MISSING, "ArguAna", "MSMARCO", "TRECDL2019", CQADUPSTACK]
FORUMS = GROUPS[CQADUPSTACK]
NAMES = ("mine", "mine + other")
PASSAGES, QUERIES = 130, 12  # more passages than are re-ranked

RUN = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from huggingface_hub import create_repo, upload_folder
from hf_dense.commands.main import main

here, missing, *tasks = sys.argv[1:]

def publish(folder):
    repository = "/".join(folder.parts[-2:])
    create_repo(repository, repo_type="dataset", exist_ok=True)
    upload_folder(repo_id=repository, folder_path=folder, repo_type="dataset")

def evaluate(*tasks):
    said, shown = io.StringIO(), io.StringIO()
    options = ["--rerank", f"other={here}/other", "--out", f"{here}/out"]
    with redirect_stderr(said), redirect_stdout(shown):
        try:
            main(["evaluate", f"mine={here}/mine", "--no_bm25", *options, "--tasks", *tasks])
        except SystemExit:
            pass
    written = {str(path): path.stat().st_mtime_ns for path in Path(here, "out").rglob("result.json")}
    errors = [line for line in said.getvalue().splitlines() if line.startswith("error: ")]
    return {"errors": errors, "table": shown.getvalue(), "written": written}

for folder in sorted(Path(here, "hub").glob("*/*")):
    if folder != Path(missing):
        publish(folder)
first = evaluate(*tasks)
publish(Path(missing))
second = evaluate(*tasks)
print(json.dumps({"first": first, "second": second, "damaged": evaluate("SCIDOCS")}))
"""


def write_repository(folder: Path, judgements: str, qrels: dict[str, Qrels], seed: int, own_ids: bool = False) -> None:
    """A dataset as MTEB publishes them; with `own_ids` every query is a passage, of the same id (ArguAna)."""
    words = random_words(2 * PASSAGES, seed)
    corpus = [{"_id": f"p{at}", "title": words[2 * at], "text": words[2 * at + 1]} for at in range(PASSAGES)]
    queries = [{"_id": f"q{at}", "text": words[2 * at]} for at in range(QUERIES)]
    if own_ids:
        queries = [{"_id": row["_id"], "text": f"{row['title']} {row['text']}"} for row in corpus[:QUERIES]]
    files: dict[str, list[dict[str, Any]]] = {"corpus.jsonl": corpus, "queries.jsonl": queries}
    configurations = {"corpus": {"corpus": "corpus.jsonl"}, "queries": {"queries": "queries.jsonl"}, judgements: {}}
    for split, judged in qrels.items():
        name = configurations[judgements][split] = f"qrels/{split}.jsonl"
        files[name] = [
            {"query-id": query, "corpus-id": passage, "score": grade}
            for query, graded in judged.items()
            for passage, grade in graded.items()
        ]
    card = ["---", "configs:"]
    for configuration, splits in configurations.items():
        card += [f"- config_name: {configuration}", "  data_files:"]
        card += [line for split, file in splits.items() for line in (f"  - split: {split}", f"    path: {file}")]
    (folder / "qrels").mkdir(parents=True)
    (folder / "README.md").write_text("\n".join([*card, "---", ""]))
    for name, rows in files.items():
        write_lines(folder / name, rows)


def draw_qrels(seed: int, grades: list[int], ids: str = "q") -> Qrels:
    """Up to seven judgements a query, the best of its own passage; where that is the query itself, of the next."""
    draw = random.Random(seed)
    qrels = {}
    for at in range(QUERIES):
        others = draw.sample([number for number in range(PASSAGES) if number != at], 6)
        own = at if ids == "q" else (at + 1) % PASSAGES
        qrels[f"{ids}{at}"] = {f"p{number}": draw.choice(grades) for number in others} | {f"p{own}": max(grades)}
    return qrels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two retrievers, and what the Hub is to hold."""
    folder = tmp_path_factory.mktemp("public")
    write_retriever(folder / "mine")
    write_retriever(folder / "other", seed=5)
    for seed, (task, repository) in enumerate(REPOSITORIES.items()):
        splits = {"MSMARCO": ("train", "dev", "test")}.get(task, ("test",))
        grades, ids = [0, 1, 2, 3] if task == "TRECDL2019" else [1], "p" if task == "ArguAna" else "q"
        qrels = {split: draw_qrels(100 * at + seed, grades, ids) for at, split in enumerate(splits)}
        judgements = "qrels" if task == "TRECDL2019" else "default"  # MTEB takes either name
        write_repository(folder / "hub" / repository, judgements, qrels, seed, own_ids=task == "ArguAna")
    write_repository(folder / "hub" / "mteb" / "scidocs", "default", {"test": draw_qrels(0, [1])}, 0)
    (folder / "hub" / "mteb" / "scidocs" / "corpus.jsonl").write_text('{"_id": "p0", "text": "cut o')
    for seed, forum in enumerate(FORUMS):
        if forum not in REPOSITORIES:
            name = forum.removeprefix("CQADupstack").removesuffix("Retrieval").lower()
            repository = folder / "hub" / "mteb" / f"cqadupstack-{name}"
            write_repository(repository, "default", {"test": draw_qrels(seed, [1])}, seed)
    return folder


@pytest.fixture(scope="module")
def ran(folder: Path, hub_url: str) -> dict[str, Any]:
    """`hf-dense evaluate` twice, one task's data being published in between, then on damaged data."""
    settings = {
        "HF_ENDPOINT": hub_url,
        "HF_TOKEN": "hf_anything",
        "HF_HOME": str(folder / "home"),
        "HF_DATASETS_CACHE": str(folder / "home" / "datasets"),
        "HF_HUB_OFFLINE": "0",
    }
    command = [sys.executable, "-c", RUN, str(folder), str(folder / "hub" / REPOSITORIES[MISSING]), *TASKS]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def read(folder: Path, task: str, split: str) -> tuple[dict[str, str], dict[str, str], Qrels]:
    """Passages, queries and judgements of a repository."""
    place = folder / "hub" / REPOSITORIES[task]
    corpus, queries, judged = (
        [json.loads(line) for line in (place / name).read_text().splitlines()]
        for name in ("corpus.jsonl", "queries.jsonl", f"qrels/{split}.jsonl")
    )
    qrels: Qrels = {}
    for row in judged:
        qrels.setdefault(row["query-id"], {})[row["corpus-id"]] = row["score"]
    passages = {row["_id"]: f"{row['title']} {row['text']}" for row in corpus}
    return passages, {row["_id"]: row["text"] for row in queries}, qrels


def score_all(model: Path, passages: dict[str, str], queries: dict[str, str]) -> dict[str, dict[str, float]]:
    """Every passage for every query, but the query itself."""
    retriever = SentenceTransformer(str(model), device="cpu")
    scores = retriever.encode([*queries.values()]) @ retriever.encode([*passages.values()]).T
    return {
        query: {passage: float(score) for passage, score in zip(passages, row, strict=True) if passage != query}
        for query, row in zip(queries, scores, strict=True)
    }


def best(rankings: dict[str, dict[str, float]], depth: int) -> dict[str, dict[str, float]]:
    return {
        query: dict(sorted(ranking.items(), key=lambda pair: -pair[1])[:depth]) for query, ranking in rankings.items()
    }


def measure(qrels: Qrels, rankings: dict[str, dict[str, float]]) -> dict[str, float]:
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recip_rank", "recall.100,1000"})
    deep, shallow = evaluator.evaluate(rankings), evaluator.evaluate(best(rankings, 10))
    sums = {
        "ndcg@10": sum(scores["ndcg_cut_10"] for scores in deep.values()),
        "mrr@10": sum(scores["recip_rank"] for scores in shallow.values()),
        "recall@100": sum(scores["recall_100"] for scores in deep.values()),
        "recall@1000": sum(scores["recall_1000"] for scores in deep.values()),
    }
    return {metric: value / len(qrels) for metric, value in sums.items()}


@pytest.mark.slow
@pytest.mark.parametrize("task", REPOSITORIES)
def test_figures_of_public_tasks_are_those_of_a_plain_computation(folder: Path, ran: dict[str, Any], task: str) -> None:
    """MS MARCO by its judgements of dev; ArguAna without the argument that is asked about; re-ranked ones too."""
    split = "dev" if task == "MSMARCO" else "test"
    passages, queries, qrels = read(folder, task, split)
    searched, other = (score_all(folder / model, passages, queries) for model in ("mine", "other"))
    again = {}
    for query, found in best(searched, 100).items():  # and below them what was below them
        lower = {passage: score - 1000 for passage, score in searched[query].items() if passage not in found}
        again[query] = lower | {passage: other[query][passage] for passage in found}
    for name, rankings in zip(NAMES, (searched, again), strict=True):
        result = RetrievalResult.load(folder / "out" / name / task)
        expected = measure(qrels, rankings)
        assert result.split == split
        assert {metric: result.metrics[metric] for metric in expected} == pytest.approx(expected, abs=1e-6), name
        assert 0 < expected["ndcg@10"] < 1
    (own,) = json.loads((folder / "out" / "mine" / task / "scores.json").read_text())["scores"][split]
    assert own["ndcg_at_10"] == pytest.approx(measure(qrels, searched)["ndcg@10"], abs=1e-5), "MTEB's own"


@pytest.mark.slow
def test_forums_are_shown_by_their_mean_and_ms_marco_by_mrr(folder: Path, ran: dict[str, Any]) -> None:
    head, _, mine, again, *_ = (line.strip("| ").split(" | ") for line in ran["second"]["table"].splitlines())
    web = {"MSMARCO": ("MRR@10", "Recall@50", "Recall@1000")}
    assert head == [f"{task} {metric}" for task in TASKS for metric in web.get(task, ("nDCG@10",))]
    for name, *values in (mine, again):
        forums = [RetrievalResult.load(folder / "out" / name / forum).metrics["ndcg@10"] for forum in FORUMS]
        marco = RetrievalResult.load(folder / "out" / name / "MSMARCO").metrics
        assert values[head.index(f"{CQADUPSTACK} nDCG@10")] == f"{sum(forums) / 12:.4f}"
        at = head.index("MSMARCO MRR@10")
        assert values[at : at + 3] == [f"{marco[metric]:.4f}" for metric in ("mrr@10", "recall@50", "recall@1000")]


@pytest.mark.slow
def test_a_task_that_is_missing_leaves_the_others(folder: Path, ran: dict[str, Any]) -> None:
    first, second = ran["first"], ran["second"]
    (error,) = first["errors"]
    assert error.startswith(f"error: mine on {MISSING}: The data of {MISSING} (mteb/nfcorpus on the Hub) cannot be")
    assert error.endswith(f"What could be measured is in {folder / 'out'}.")
    assert len(first["written"]) == len(NAMES) * (len(REPOSITORIES) - 1 + len(FORUMS) - 2)
    assert second["errors"] == []
    assert second["written"].items() >= first["written"].items(), "what was done is not done again"
    added = {Path(path).parent for path in second["written"].keys() - first["written"].keys()}
    assert added == {folder / "out" / name / MISSING for name in NAMES}


@pytest.mark.slow
def test_damaged_data_are_named(ran: dict[str, Any]) -> None:
    (error,) = ran["damaged"]["errors"]
    assert error.startswith("error: mine on SCIDOCS: The data of SCIDOCS (mteb/scidocs on the Hub) cannot be loaded: ")


@pytest.mark.slow
def test_a_task_is_loaded_once_for_all_that_measure_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = {name: build_task(write_dataset(tmp_path / name), "test") for name in ("SciFact", "NFCorpus")}
    asked = []

    def get_task(name: str) -> Any:
        asked.append(name)
        return tasks[name]

    monkeypatch.setattr(task_names.mteb, "get_task", get_task)
    models = {"mine": folder / "mine", "bm25": "bm25"}
    evaluate_tasks(models, [*tasks], tmp_path / "out", rerankers={"other": folder / "other"})
    assert asked == ["SciFact", "NFCorpus"]
    with pytest.raises(InputError, match="MTEB has no task 'Nowhere'"):
        evaluate_tasks(models, ["Nowhere"], tmp_path / "out")
    assert asked == ["SciFact", "NFCorpus", "Nowhere"], "what failed once is not tried for the other model"


def test_corpora_may_lack_titles(folder: Path, tmp_path: Path) -> None:
    task = build_task(write_dataset(tmp_path / "data"), "test")
    data = task.dataset["default"]["test"]
    evaluate_tasks({"bm25": "bm25"}, [str(tmp_path / "data")], tmp_path / "out")
    first, untitled = tmp_path / "out" / "bm25" / "data-test", tmp_path / "untitled"
    titled = evaluate_reranker(folder / "other", first, tmp_path / "data", name="t", out=tmp_path / "titled")
    data["corpus"] = data["corpus"].remove_columns("title")
    run_protocol(Passages(task, "test"), folder / "mine", untitled, name="untitled")
    result = evaluate_reranker(folder / "other", untitled, task, name="again", out=tmp_path / "again")
    assert result.per_query.keys() == titled.per_query.keys()
    assert result.metrics["mrr@10"] != titled.metrics["mrr@10"]


def test_an_evaluation_of_something_else_is_not_re_ranked(folder: Path, tmp_path: Path) -> None:
    small, large = write_dataset(tmp_path / "small", passages=30), write_dataset(tmp_path / "large")
    evaluate_tasks({"mine": folder / "mine"}, [str(large)], tmp_path / "out")
    first = tmp_path / "out" / "mine" / "large-test"
    with pytest.raises(InputError, match=r"is an evaluation of something else: .* measured on another"):
        evaluate_reranker(folder / "other", first, small, name="again", out=tmp_path / "again")
