"""`hf-dense adapt` as it is typed: documents in, verdict and retriever out; killed, and the same again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from package_documents import write_documents, write_word_embedder
from sentence_transformers import SentenceTransformer

from hf_dense.commands.main import main
from hf_dense.data.collections import load_corpus
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.experiments.adaptation.verdict import is_ahead
from hf_dense.search.index import SearchIndex

pytestmark = pytest.mark.slow

BUDGET = 120  # seconds


def command(place: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    given = ["adapt", "documents", "--base", "EMBEDDER", "--budget", f"{BUDGET}s", "--out", "out", *words]
    return [sys.executable, "-m", "hf_dense.commands.main", *given], {**os.environ, "HF_HOME": str(place / "home")}


def adapt(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line, environment = command(place, *words)
    return subprocess.run(line, cwd=place, env=environment, capture_output=True, text=True, check=False)


def folder_of(arm: str) -> str:
    return "-".join(re.findall(r"[a-z0-9-]+", arm.lower()))


def files(folder: Path) -> dict[str, tuple[int, int]]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With `out`, made by a run that was killed while it pre-trained, and by one that went on."""
    root = tmp_path_factory.mktemp("adapt")
    write_documents(root / "documents", root / "numpy", 120)
    write_word_embedder(root / "EMBEDDER", root / "documents")
    line, environment = command(root)
    with (root / "first.log").open("w") as log:
        first = subprocess.Popen(line, cwd=root, env=environment, stdout=log, stderr=log)
    deadline = time.time() + 300
    while not list((root / "out" / "pretrained").glob("*/checkpoint-*")):
        assert first.poll() is None, (root / "first.log").read_text()[-500:]
        assert time.time() < deadline
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    plan = (root / "out" / "plan" / "plan.json").read_bytes()
    done = adapt(root)
    assert done.returncode == 0, done.stderr
    assert (root / "out" / "plan" / "plan.json").read_bytes() == plan, "it goes on with the plan that was made"
    (root / "said.txt").write_text(done.stdout)
    return root


def test_the_verdict_says_what_the_figures_say(place: Path) -> None:
    said, facts = (place / "said.txt").read_text(), json.loads((place / "out" / "results.json").read_text())
    names = [arm["name"] for arm in facts["arms"]]
    longer = ["fine-tuned longer"] * (facts["plan"]["longer"] > 0)
    assert names[:-2] == ["BM25", "base", "fine-tuned", *longer, "RetroMAE, fine-tuned"]
    assert names[-2].endswith(", distilled")
    assert names[-1].endswith(" + BM25")
    for sentence in facts["verdict"]["sentences"]:
        assert sentence in said
        assert sentence in (place / "out" / "report.html").read_text().replace("&#x27;", "'")
    assert "were made of the documents" in said
    assert said.strip().splitlines()[-1].startswith("Try: hf-dense search "), "what comes next"
    found = facts["verdict"]["found"]
    by_name = {arm["name"]: arm for arm in facts["arms"]}
    alone = max((by_name[name] for name in ("fine-tuned", *longer)), key=lambda arm: arm["dev"]["ndcg@10"])
    difference = by_name["RetroMAE, fine-tuned"]["metrics"]["ndcg@10"] - alone["metrics"]["ndcg@10"]
    assert found["difference"] == pytest.approx(difference)
    dev = {name: RetrievalResult.load(place / "out" / "arms" / folder_of(name) / "dev") for name in names}
    sure = [name for name in names if name in ("base", names[-1]) or is_ahead(dev[name], dev["base"])]
    assert facts["verdict"]["best"] == max(sure, key=lambda name: by_name[name]["dev"]["ndcg@10"]), "dev chooses"
    assert [arm["name"] for arm in facts["arms"] if "kept" in arm] == names[:-1] * facts["plan"]["kept"], "as planned"


def test_the_retriever_is_plain_and_has_its_index(place: Path) -> None:
    retriever = place / "out" / "retriever"
    embedder, model = SentenceTransformer(str(place / "EMBEDDER")), SentenceTransformer(str(retriever))
    assert model.similarity_fn_name == embedder.similarity_fn_name
    assert model.prompts == embedder.prompts
    index = SearchIndex.load(retriever / "index")
    facts = json.loads((place / "out" / "results.json").read_text())
    best = next(arm for arm in facts["arms"] if arm["name"] == facts["verdict"]["best"])
    assert index.weight == best["weight"]
    whole = load_corpus(place / "out" / "passages")
    assert index.passages["text"][:] == whole["text"][:], "nothing is taken out of what is searched"
    assert load_corpus(place / "out" / "collection")["text"][:] != whole["text"][:]
    assert len(index.search("how to use an array", 3, weight=1)) == 3
    assert index.search("array", 3)
    assert (retriever / "README.md").read_text().count("pre-training") or "RetroMAE" not in best["name"]


def test_the_same_again_does_nothing_and_something_else_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(place / "out")
    again = adapt(place)
    assert again.returncode == 0, again.stderr
    assert files(place / "out") == before
    assert (place / "said.txt").read_text().endswith(again.stdout)
    assert "fine-tuned" in again.stdout
    refusals: Sequence[tuple[Sequence[str], str]] = [
        (["--budget", "95s"], "another budget (2m, now 1m35s)"),
        (["--seed", "1"], "another seed"),
        (["--method", "dupmae"], "another method"),
        (["--base", str(place / "home")], "is not a model directory"),
        (["--queries", "nothing.jsonl"], "There is no file nothing.jsonl"),
        (["--keep", "nothing"], "There is no collection nothing"),
    ]
    monkeypatch.chdir(place)
    for words, sentence in refusals:
        with pytest.raises(SystemExit) as stopped:
            main(command(place, *words)[0][3:])
        said = capsys.readouterr()
        assert (stopped.value.code, said.out) == (2, ""), words
        assert sentence in said.err
    assert files(place / "out") == before


def test_the_index_follows_the_documents(place: Path, tmp_path: Path) -> None:
    """On a copy, as the other tests look at what was made."""
    retriever, documents = tmp_path / "retriever", tmp_path / "documents"
    shutil.copytree(place / "out" / "retriever", retriever)
    shutil.copytree(place / "documents", documents)
    (documents / "zebras.md").write_text(
        "# Zebras\n\nA zebra has stripes, and nobody here has written of zebras before.\n"
    )
    before = len(load_corpus(place / "out" / "passages"))
    words = ["search", str(retriever), "who has stripes", "--corpus", str(documents), "--update"]
    done = subprocess.run(
        [sys.executable, "-m", "hf_dense.commands.main", *words], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{before:,} passages kept, 1 encoded, 0 removed" in done.stdout, "cut as the adaptation cut them"
