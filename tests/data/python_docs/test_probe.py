"""The small part of the standard library's documentation that every machine has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hf_dense.data.collections import content_hash, load_corpus, load_qrels, load_queries
from hf_dense.data.python_docs import probe
from hf_dense.data.python_docs.collection import Collection
from hf_dense.data.python_docs.docstrings import SourceFile
from hf_dense.data.python_docs.probe import draw_part, open_probe
from hf_dense.errors import InputError
from hf_dense.storage.places import Lock


def whole(size: int = 60) -> Collection:
    """Every passage answers a query; every third also that of the next."""
    corpus = tuple({"id": f"p{row}", "text": f"text {row}"} for row in range(size))
    queries = tuple({"id": f"q{row}", "text": f"query {row}"} for row in range(size))
    qrels: dict[str, list[Any]] = {"train": [], "dev": [], "test": []}
    for row in range(size):
        split = ("train", "dev", "test")[row % 3]
        for passage in [row, row + 1][: 2 if row % 3 == 0 else 1]:
            qrels[split].append({"query-id": f"q{row}", "corpus-id": f"p{passage}", "score": 1})
    return Collection(corpus, queries, {split: tuple(rows) for split, rows in qrels.items()}, {})


@pytest.mark.parametrize(("queries", "passages"), [(9, 30), (9, 3), (200, 2000)])
def test_a_part_holds_all_that_is_relevant_and_is_always_the_same(queries: int, passages: int) -> None:
    part, again = (draw_part(whole(), queries, passages) for _ in range(2))
    assert part == again
    assert len(part.queries) == min(queries, 60)
    assert {row["query-id"] for row in part.qrels["dev"]} == {query["id"] for query in part.queries}
    relevant, kept = {row["corpus-id"] for row in part.qrels["dev"]}, {row["id"] for row in part.corpus}
    assert relevant <= kept
    assert len(kept) == min(max(passages, len(relevant)), 60)
    assert list(part.qrels) == ["dev"]


def test_it_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = '"""Module number {n} explained.\n\nThe body of number {n} says something of its own.\n"""\n'
    files = [SourceFile(f"m{n}", tmp_path / f"m{n}.py") for n in range(9)]
    for n, file in enumerate(files):
        file.path.write_text(code.format(n=f"n{n}x"))
    monkeypatch.setattr(probe, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(probe, "find_sources", lambda packages: (files, {"python": "3.99"}))
    place = open_probe()
    assert place.parent == tmp_path / "home" / "hf_dense"
    assert place.name.startswith("python_docs-3.99-")
    assert (len(load_corpus(place)), len(load_queries(place)), len(load_qrels(place, "dev"))) == (9, 9, 9)
    before = content_hash(place)
    monkeypatch.setattr(probe, "read_documents", None)
    assert open_probe() == place
    assert content_hash(place) == before


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, beside a documentation of one module."""
    file = SourceFile("m", tmp_path / "m.py")
    file.path.write_text('"""A module explained.\n\nThe body of it says something of its own.\n"""\n')
    monkeypatch.setattr(probe, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(probe, "find_sources", lambda packages: ([file], {"python": "3.99"}))
    return tmp_path / "home"


def test_a_run_waits_for_another_that_builds_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = open_probe()
    partial = place.with_name(f"{place.name}.partial")
    partial.mkdir()
    other, waited = Lock(partial, place), []

    def release(seconds: float) -> None:
        waited.append(seconds)
        other.release()

    monkeypatch.setattr(time, "sleep", release)
    assert open_probe() == place
    assert len(waited) == 1
    assert "this one waits for it" in caplog.text
    assert [each.name for each in home.glob("hf_dense/*")] == [place.name]


def test_a_cache_that_may_not_be_written_is_said(home: Path) -> None:
    home.write_text("")
    with pytest.raises(InputError, match="set HF_HOME"):
        open_probe()


def test_another_documentation_is_another_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SourceFile("m", tmp_path / "m.py")
    monkeypatch.setattr(probe, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(probe, "find_sources", lambda packages: ([file], {"python": "3.99"}))
    places = set()
    for word in ("first", "second"):
        file.path.write_text(f'"""The {word} module explained.\n\nThe body of it says something of its own.\n"""\n')
        places.add(open_probe())
    assert len(places) == 2
    assert all(place.is_dir() for place in places)
