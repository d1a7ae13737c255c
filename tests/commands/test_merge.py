"""`hf-dense merge`: one point, or the best of several."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from tiny_retriever import write_dataset, write_retriever

from hf_dense.commands.main import main


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("inputs")
    for seed, name in enumerate(("base", "tuned")):
        write_retriever(root / name, seed)
    for name, passages in (("own", 40), ("other", 50)):
        write_dataset(root / name, passages=passages)
        shutil.copy(root / name / "qrels" / "test.tsv", root / name / "qrels" / "dev.tsv")
    return root


def merge(inputs: Path, *words: str) -> int:
    names = {path.name: str(path) for path in inputs.iterdir()}
    try:
        main(["merge", names["base"], names["tuned"], *(word.format(**names) for word in words)])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_the_best_point(inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--collection", "{own}", "--keep", "{other}:test", "--weights", "1", "--out", str(tmp_path / "out")]
    for _ in range(2):
        assert merge(inputs, *words) == 0
        out = capsys.readouterr().out
        assert "| own (own, dev): nDCG@10 | own: against w = 0 | kept (other, test): nDCG@10 |" in out
        assert "Chosen: w = " in out
        assert f"The model is in {tmp_path / 'out' / 'model'}" in out


def test_one_point_is_written_without_measuring(inputs: Path, tmp_path: Path) -> None:
    assert merge(inputs, "--weight", "0.5", "--out", str(tmp_path / "out")) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"model", "hf_dense.json"}
    assert SentenceTransformer(str(tmp_path / "out" / "model")).similarity_fn_name == "dot"


@pytest.mark.parametrize("name", ["model/model.safetensors", "merge.md"])
def test_what_is_gone_is_made_again(name: str, inputs: Path, tmp_path: Path) -> None:
    words = ["--collection", "{own}", "--keep", "{other}:test", "--weights", "1", "--out", str(tmp_path / "out")]
    assert merge(inputs, *words) == 0
    (tmp_path / "out" / name).unlink()
    assert merge(inputs, *words) == 0
    assert (tmp_path / "out" / name).is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Name the collection that w is chosen on (--collection), or the w that is wanted (--weight)."),
        (["--weight", "0.5", "--collection", "{own}"], "--weight is written without measuring"),
        (
            ["--weight", "0.5", "--weights", "0.1", "0.2"],
            "--weight is written without measuring; leave it out, or --weights",
        ),
        (["--weight", "2"], "A weight is 2; weights are from 0, the base, to 1"),
        (["--collection", "{own}", "--weights", "0", "-1"], "A weight is -1"),
        (["--collection", "{own}", "--split", "test", "--keep", "{other}"], "choose on another than test"),
        (
            ["--collection", "{own}", "--split", "later", "--keep", "{other}"],
            "no relevance judgements for split 'later'",
        ),
        (["--collection", "{own}", "--keep", "{own}"], "is the collection that is tuned for"),
        (["--collection", "nowhere", "--keep", "{other}"], "nowhere is not a directory"),
    ],
)
def test_mistakes(
    words: list[str], sentence: str, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert merge(inputs, *words, "--out", str(tmp_path / "out")) == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()
