"""Vectors that are cut: a row for each number of dimensions, never mistaken for the whole model's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from manifests import manifest_of
from matplotlib.image import imread
from sentence_transformers import SentenceTransformer
from tiny_retriever import write_dataset, write_hybrid, write_retriever

from hf_dense.commands.main import main
from hf_dense.errors import InputError
from hf_dense.evaluation.benchmark import evaluate_tasks
from hf_dense.evaluation.measured import measured_of
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.retrieval import Passages
from hf_dense.evaluation.runner import run_protocol
from hf_dense.hub.fingerprints import retriever_fingerprint
from hf_dense.hub.loading import load_retriever
from hf_dense.storage.output import Output

ROWS = ["mine", "mine (16 dimensions)", "mine (2 dimensions)"]


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_retriever(tmp_path_factory.mktemp("models") / "mine", similarity="cosine")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data")


@pytest.mark.slow
def test_every_number_of_dimensions_has_a_row_and_a_point(mine: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = evaluate_tasks({"bm25": "bm25", "mine": mine}, [str(data)], out, dimensions=[16, 2])
    assert list(found) == ["bm25", *ROWS]
    results = [found[row]["data-test"] for row in ROWS]
    assert len({json.dumps(result.per_query["ndcg@10"]) for result in results}) == 3
    assert [result.origin["dimensions"] for result in results] == [32, 16, 2]
    assert [result.origin["bytes_per_passage"] for result in results] == [128, 64, 8]
    assert "vectors" not in results[0].origin["settings"]
    assert results[2].origin["settings"]["vectors"] == "cut to 2 dimensions"
    lines = (out / "results.md").read_text().splitlines()
    assert [line.split(" | ")[0][2:] for line in lines if line.startswith("| mine")] == ROWS
    assert any("data-test nDCG@10, mine (16 dimensions) - mine:" in line for line in lines)
    assert imread(out / "dimensions.png").shape[0] > 300


def test_cut_vectors_are_ranked_as_those_of_the_library(mine: Path, data: Path, tmp_path: Path) -> None:
    found = run_protocol(Passages.load(data, "test"), mine, tmp_path / "one", name="x", dimensions=2)
    loaded = SentenceTransformer(str(mine), truncate_dim=2)
    own = run_protocol(Passages.load(data, "test"), loaded, tmp_path / "two", name="x")
    assert own.per_query == found.per_query


def test_a_result_is_bound_to_its_dimensions(mine: Path, data: Path, tmp_path: Path) -> None:
    out, protocol = tmp_path / "out", Passages.load(data, "test")
    model = load_retriever(mine)
    whole = retriever_fingerprint(model)
    cut = run_protocol(protocol, model, out, name="x", dimensions=2)
    assert retriever_fingerprint(model) == whole, "a model that was given is as it was"
    assert run_protocol(protocol, mine, out, name="x", dimensions=2) == cut
    for dimensions in (None, 4):
        with pytest.raises(InputError, match="was made from another model"):
            run_protocol(protocol, mine, out, name="x", dimensions=dimensions)
    manifest = manifest_of(out)
    assert manifest.made_from["dimensions"] == 2
    with pytest.raises(InputError, match="holds no evaluation of"):
        measured_of(mine, out)


def test_rows_of_a_model_that_was_replaced_are_left_out(mine: Path, data: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", write_retriever(tmp_path / "other", seed=5, similarity="cosine")
    evaluate_tasks({"mine": mine}, [str(data)], out, dimensions=[2])
    evaluate_tasks({"mine": other}, [str(data)], Output(out, overwrite=True))
    assert "mine (2 dimensions) on data-test was measured of another model" in (out / "results.md").read_text()
    assert not (out / "dimensions.png").exists()


@pytest.mark.parametrize(
    ("dimensions", "sentence"),
    [
        ([16, 32], "32 dimensions were asked for, and the vectors of .*mine have 32; name fewer, but at least 1"),
        ([-1], "-1 dimensions were asked for"),
        ([4, 4], "hold a number twice"),
    ],
)
def test_dimensions_that_are_none(mine: Path, data: Path, tmp_path: Path, dimensions: list[int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        evaluate_tasks({"bm25": "bm25", "mine": mine}, [str(data)], tmp_path / "out", dimensions=dimensions)
    assert not (tmp_path / "out").exists(), "before anything is measured"


def test_hybrid_vectors_are_not_cut(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Dimensions are cut from dense vectors, and .*hybrid makes none"):
        evaluate_tasks({"x": write_hybrid(tmp_path, 8, 4)}, [str(data)], tmp_path / "out", dimensions=[4])


@pytest.mark.slow
def test_a_model_that_cannot_be_cut_costs_no_other(
    mine: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = {"whole": write_hybrid(tmp_path, 8, 4), "mine": mine}
    found = evaluate_tasks(models, [str(data)], tmp_path / "out", dimensions=[16])
    assert list(found) == ["whole", "mine", "mine (16 dimensions)"]
    assert "whole gets no row of 16 dimensions: Dimensions are cut from dense vectors" in caplog.text
    with pytest.raises(InputError, match=r"^gone on data-test: .*gone"):
        evaluate_tasks({"gone": tmp_path / "gone", "mine": mine}, [str(data)], tmp_path / "other", dimensions=[16])
    assert (tmp_path / "other" / "mine (16 dimensions)" / "data-test" / "result.json").is_file()


def test_from_the_command_line(mine: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ["evaluate", f"mine={mine}", "--no_bm25", "--tasks", str(data), "--out", str(out), "--dimensions"]
    main([*words, "16", "2"])
    assert capsys.readouterr().out.count("dimensions) |") == 2
    place = out / "mine (2 dimensions)" / "data-test"
    assert RetrievalResult.load(place).origin["dimensions"] == 2
    with pytest.raises(SystemExit, match="2"):
        main([*words, "99"])
    assert "99 dimensions were asked for" in capsys.readouterr().err
