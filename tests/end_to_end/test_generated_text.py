"""The chain on real text: train writers, let them write, pre-train on what they wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import parquet

from hf_dense.commands.main import main
from hf_dense.data.corpus import load_passages
from hf_dense.data.python_docs.collection import build_python_docs

pytestmark = pytest.mark.slow


def run(*words: str | Path) -> None:
    main([str(word) for word in words])


def test_master_and_query_as_context_read_what_was_written(tmp_path: Path) -> None:
    docs = build_python_docs(tmp_path / "docs", packages=["numpy"], length=48, progress=False)
    load_passages(str(docs)).select(range(300)).to_parquet(tmp_path / "some.parquet")
    few = ("--max_steps", "20")
    run("data", "train-generator", docs, "--out", tmp_path / "asks", *few)
    run("data", "train-generator", docs, "--kind", "continuation", "--out", tmp_path / "goes_on", *few)
    given = ("--output_length", "12", "--out")
    run("data", "generate", tmp_path / "some.parquet", "--model", tmp_path / "asks", *given, tmp_path / "asked")
    more = ("--kind", "continuation", "--model", tmp_path / "goes_on", "--input_length", "32")
    run("data", "generate", tmp_path / "asked", *more, *given, tmp_path / "both")
    rows = parquet.read_table(tmp_path / "both" / "corpus").to_pylist()
    assert len(rows) == 300
    assert sum(map(len, (row["queries"] for row in rows))) > 1000
    assert sum(bool(row["continuation"]) for row in rows) > 150
    for method in ("master", "query_cotmae", "query_cocondenser"):
        out = tmp_path / method
        given = ("--corpus", tmp_path / "both", "--out", out, "--max_steps", "12", "--logging_steps", "2")
        quick = ("--save_strategy", "no", "--eval_strategy", "no", "--use_cpu", "true", "--disable_tqdm", "true")
        run("pretrain", "--config", method, "--config", "demo", *given, *quick)
        history = json.loads((out / "trainer_state.json").read_text())["log_history"]
        losses = [row["loss"] for row in history if "loss" in row]
        assert losses[-1] < losses[0], method
