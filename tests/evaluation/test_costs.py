"""What an evaluation costs is its own, whatever was measured before it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest
from tiny_retriever import write_dataset, write_embedder

from hf_dense.evaluation.costs import CostMeter
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.hub.precision import Reading


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the greatest memory is not counted anew")
def test_memory_that_was_needed_before_is_not_counted() -> None:
    much = bytearray(b"x" * 2**29)
    del much
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with CostMeter("bm25") as meter:
        pass
    assert 0 < meter.describe(0, [])["peak_memory"] < before - 2**28


def test_what_is_not_read_of_queries_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    collection, model = write_dataset(tmp_path / "data"), write_embedder(tmp_path / "model")
    reading = Reading(max_length=3)
    for out in ("first", "second"):
        caplog.clear()
        evaluate_retriever(model, collection, "test", name="mine", out=tmp_path / out, reading=reading)
        assert [line for line in caplog.messages if "queries are longer" in line] == [
            "The model reads 3 tokens of a text, and 20 of 20 queries are longer: 50 % of all tokens are not read. "
            "Shorter ones are read whole."
        ]
