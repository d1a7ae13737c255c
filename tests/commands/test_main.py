from __future__ import annotations

from pathlib import Path

import pytest
from tiny_retriever import write_dataset, write_retriever

from hf_dense import __version__
from hf_dense.commands.main import main


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_retriever(tmp_path / "model")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "dataset", passages=50, queries=10)


def test_search_builds_the_index_once_and_answers(
    model: Path, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["search", str(model), "abc def", "--corpus", str(dataset), "--top_k", "3"])
    first = capsys.readouterr().out
    assert [line.split(".")[0].strip() for line in first.splitlines() if ". " in line[:4]] == ["1", "2", "3"]
    assert "50 passages indexed and loaded in" in first

    built = (model / "index" / "vectors.faiss").stat().st_mtime_ns
    main(["search", str(model), "abc def", "--top_k", "3"])
    second = capsys.readouterr().out
    assert (model / "index" / "vectors.faiss").stat().st_mtime_ns == built
    assert second.splitlines()[:-1] == first.splitlines()[:-1]
    assert "50 passages loaded in" in second


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{model}", "abc"], "--corpus"),
        (["{model}/nowhere", "abc", "--corpus", "{dataset}"], "is not a directory"),
        (["{model}", " ", "--corpus", "{dataset}"], "question is empty"),
        (["{model}", "abc", "--corpus", "{dataset}/nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: list[str], message: str, model: Path, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["search", *(argument.format(model=model, dataset=dataset) for argument in arguments)])
    assert stopped.value.code == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in ((["--version"], __version__), (["--help"], "search")):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 0
        assert expected in capsys.readouterr().out


def test_a_verb_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2
    assert "VERB" in capsys.readouterr().err
