"""`hf-dense search`: an index is built once, and never one of another model or corpus."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from tiny_retriever import write_dataset, write_retriever

from hf_dense.commands import search
from hf_dense.data.engines import Engine
from hf_dense.data.passage_corpus import build_passage_corpus
from hf_dense.errors import InputError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_retriever(tmp_path / "model")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "dataset", passages=50, queries=10)


def run(*words: Any) -> None:
    parser = argparse.ArgumentParser()
    search.add_arguments(parser)
    search.run(parser.parse_args(list(map(str, words))))


def hits(shown: str) -> list[str]:
    return shown.splitlines()[:-1]


def test_the_index_is_built_once(model: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = (model, "abc def", "--top_k", 3)
    run(*given, "--corpus", corpus)
    first = capsys.readouterr().out
    assert [line.split(".")[0].strip() for line in first.splitlines() if ". " in line[:4]] == ["1", "2", "3"]
    assert "50 passages ready in" in first
    built = (model / "index" / "vectors.faiss").stat().st_mtime_ns
    for again in (given, (*given, "--corpus", corpus)):
        run(*again)
        assert hits(capsys.readouterr().out) == hits(first)
    assert (model / "index" / "vectors.faiss").stat().st_mtime_ns == built


def test_an_index_of_another_corpus_or_model_is_refused_and_rebuilt_when_asked(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("abc", "--index", tmp_path / "index")
    run(model, *given, "--corpus", corpus)
    other_corpus = write_dataset(tmp_path / "smaller", passages=30, queries=10)
    other_model = write_retriever(tmp_path / "other", seed=1)
    with pytest.raises(InputError, match=r"was made from another corpus \(.*--overwrite"):
        run(model, *given, "--corpus", other_corpus)
    with pytest.raises(InputError, match=r"was made from another model \(.*--overwrite"):
        run(other_model, *given, "--corpus", corpus)
    with pytest.raises(InputError, match=r"made by another model \(.*model\)"):
        run(other_model, *given)
    run(other_model, *given, "--corpus", other_corpus, "--overwrite")
    capsys.readouterr()
    run(other_model, *given)
    assert "30 passages" in capsys.readouterr().out


def test_what_cannot_be_searched(model: Path, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.tex").write_text("years of work")
    for words, message in (
        ((model, "abc"), "name a corpus"),
        ((model / "nowhere", "abc", "--corpus", corpus), "is not a directory"),
        ((model, " ", "--corpus", corpus), "question is empty"),
        ((model, "abc", "--corpus", corpus / "nowhere"), "nowhere"),
        ((model, "abc", "--index", tmp_path / "theirs"), "no search index"),
        ((model, "abc", "--corpus", corpus, "--index", tmp_path / "theirs", "--overwrite"), "not written by hf_dense"),
    ):
        with pytest.raises(InputError, match=message):
            run(*words)
    assert not (model / "index").exists()


def test_documents_are_cut_as_a_corpus_of_them_is(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("abc", "def"):
        (folder / f"{name}.md").write_text(f"# {name}\n\n" + f"Some {name} words are {name}. " * 40)
    run(model, "abc", "--corpus", folder)
    passages = parquet.read_table(model / "index" / "passages.parquet").to_pylist()
    corpus = build_passage_corpus(str(folder), tmp_path / "corpus", engine=Engine(processes=1))
    rows = parquet.read_table(corpus / "corpus").to_pylist()
    assert passages == [{name: row[name] for name in ("id", "title", "text")} for row in rows]
    run(model, "abc", "--corpus", corpus)  # the same passages: nothing to do
    with pytest.raises(InputError, match=r"lies inside .*docs, all of which is read"):
        run(model, "abc", "--corpus", folder, "--index", folder / "index")
