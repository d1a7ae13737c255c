"""What the table leaves out, as it was measured on something else, is on no card either."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_retriever import write_cross_encoder, write_dataset, write_retriever

from hf_dense.errors import InputError
from hf_dense.evaluation.benchmark import TABLE_FILE, evaluate_tasks
from hf_dense.evaluation.measured import measured_of
from hf_dense.evaluation.reranking import evaluate_reranker
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.storage.output import Output


def drop_judgements(collection: Path) -> None:
    qrels = collection / "qrels" / "test.tsv"
    qrels.write_text("".join(qrels.read_text().splitlines(keepends=True)[:-3]))


@pytest.mark.slow
def test_a_collection_that_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    collections = [write_dataset(tmp_path / name) for name in ("one", "two")]
    mine, other, out = write_retriever(tmp_path / "mine"), write_retriever(tmp_path / "other", seed=1), tmp_path / "out"
    evaluate_tasks({"mine": mine, "other": other}, list(map(str, collections)), out)
    assert [task for task, _, _ in measured_of(mine, out)] == ["one", "two"]
    drop_judgements(collections[0])
    evaluate_tasks({"other": other}, [str(collections[0])], Output(out, overwrite=True))
    left = "mine on one-test was measured on another collection; measure it again"
    assert left in (out / TABLE_FILE).read_text()
    assert [task for task, _, _ in measured_of(mine, out)] == ["two"]
    assert f"{out / 'mine' / 'one-test'} was measured on another collection: left out" in caplog.text
    assert [task for task, _, _ in measured_of(other, out)] == ["one", "two"]
    with pytest.raises(InputError, match="one-test was measured on another collection; measure it again with"):
        measured_of(mine, out / "mine" / "one-test")


def test_first_passages_that_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also of stages that lie beside each other, as a pipeline has them."""
    collection, out = write_dataset(tmp_path / "data"), tmp_path / "evaluation" / "test"
    first, reranker = write_retriever(tmp_path / "first"), write_cross_encoder(tmp_path / "reranker")
    evaluate_retriever(first, collection, "test", name="first", out=out / "first")
    evaluate_reranker(reranker, out / "first", collection, name="reranker", out=out / "reranker")
    assert len(measured_of(reranker, out)) == 1
    other = write_retriever(tmp_path / "other", seed=1)
    evaluate_retriever(other, collection, "test", name="first", out=Output(out / "first", overwrite=True))
    with pytest.raises(InputError, match="reranker was measured on other first passages; measure it again with"):
        measured_of(reranker, out)
