"""The stages one by one: mine, fine-tune on lists, train a re-ranker, score, distil, re-rank."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer
from tiny_retriever import write_dataset, write_encoder, write_retriever

EXAMPLES = Path(__file__).parents[2] / "examples"
FEW = ("--max_steps", "3", "--per_device_train_batch_size", "4", "--use_cpu", "true", "--disable_tqdm", "true")
LISTS = ("--passages", "3", "--depth", "10")


def run(*words: str | Path) -> str:
    done = subprocess.run([sys.executable, *map(str, words)], env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_stage_by_stage(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data")
    retriever, encoder = write_retriever(tmp_path / "retriever"), write_encoder(tmp_path / "encoder")
    verb = ("-m", "hf_dense.commands.main", "data")
    mined, scores = tmp_path / "mined", tmp_path / "scores"
    run(*verb, "negatives", data, "--model", retriever, "--depth", "10", "--out", mined)
    tune = (EXAMPLES / "finetune.py", "--model", retriever, "--collection", data, *FEW, *LISTS)
    assert "fine-tuned on 20 lists for " in run(*tune, "--lists", mined, "--out", tmp_path / "r2")
    train = (EXAMPLES / "train_reranker.py", "--base", encoder, "--collection", data, "--lists", mined, *FEW)
    run(*train, "--passages", "3", "--max_length", "32", "--kept", "2", "--out", tmp_path / "ce")
    reranker = tmp_path / "ce" / "model"
    assert CrossEncoder(str(reranker)).predict([("a", "b")]).shape == (1,)
    run(*verb, "scores", data, "--lists", mined, "--model", reranker, "--depth", "10", "--out", scores)
    distilled = tmp_path / "distilled"
    run(*tune, "--lists", scores, "--distillation", "kl", "--out", distilled)
    assert SentenceTransformer(str(distilled / "model")).similarity_fn_name == "dot"
