"""A retriever with its index, and an adaptation as `hf-dense adapt` leaves it, both tiny."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from datasets import Dataset
from tiny_retriever import write_retriever

from hf_dense.experiments.adaptation.run import KIND
from hf_dense.search.index import build_index
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

EVIL = "<img src=x onerror=alert(1)> {{value}} ${alert(2)} <script>alert(3)</script> threads"


@pytest.fixture(scope="session")
def corpus() -> Dataset:
    texts = [
        "Waiting for threads & locks.",
        EVIL,
        "A lock keeps others out.",
        "Sorting <b>arrays</b>.",
        "Files are read.",
    ]
    titles = ["threading", "<i>evil</i>", "", "numpy", "io"]
    return Dataset.from_dict({"id": [f"p{row}" for row in range(5)], "title": titles, "text": texts})


@pytest.fixture(scope="session")
def made(corpus: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `adapted` and `retriever`."""
    place = tmp_path_factory.mktemp("served")
    build_index(write_retriever(place / "retriever", 3), corpus, place / "retriever" / "index")
    given = {"budget": "30m", "method": "dupmae", "length": 64, "precision": "auto"}
    sources = {"documents": Source("my documents", "a"), "base": Source("me/embedder", "b")}
    sources |= {"teacher": Source("bm25", "c"), "kept": Source("python_docs", "d")}
    with Output(place / "adapted").occupy(KIND, given, sources, seed=0, claims=["results.json"]) as work:
        (work.path / "arms" / "fine-tuned" / "training").mkdir(parents=True)
        base = write_retriever(work.path / "base", 0)
        tuned = write_retriever(work.path / "arms" / "fine-tuned" / "training" / "model", 1)
        build_index(base, corpus, work.path / "arms" / "base" / "index")
        build_index(tuned, corpus, work.path / "arms" / "fine-tuned" / "index")
        old = Path("arms/elsewhere/out")
        rows = [("BM25", 0.0, "base"), ("base", 1.0, "base"), ("fine-tuned", 1.0, "arms/fine-tuned/training/model")]
        rows.append(("fine-tuned + BM25", 0.5, "arms/fine-tuned/training/model"))
        rows.append(("gone", 1.0, "arms/gone/training/model"))
        arms = [{"name": name, "weight": weight, "model": str(old / model)} for name, weight, model in rows]
        facts = {"arms": arms, "verdict": {"best": "fine-tuned + BM25"}}
        (work.path / "results.json").write_text(json.dumps(facts))
        work.complete()
    for encoder in place.rglob("*-encoder"):
        shutil.rmtree(encoder)
    return place


@pytest.fixture
def adapted(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "adapted", tmp_path / "adapted"))


@pytest.fixture
def retriever(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "retriever", tmp_path / "retriever"))
