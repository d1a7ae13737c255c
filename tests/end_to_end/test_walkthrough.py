"""The walk-through as it is printed: a hundred documents and a ready embedder in, a published retriever out."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from package_documents import write_documents
from sentence_transformers import SentenceTransformer
from tiny_retriever import write_embedder

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "walkthrough.md"


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").replace(" me/", " someone/").splitlines()  # who the Hub thinks we are
    return [shlex.split(line) for line in lines if line.strip()]


def test_every_command_of_the_page_in_its_order(tmp_path: Path, hub_url: str) -> None:
    write_documents(tmp_path / "my_documents", tmp_path / "numpy", 100)
    write_embedder(tmp_path / "EMBEDDER")
    settings = {
        "HF_ENDPOINT": hub_url,
        "HF_TOKEN": "hf_anything",
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "0",
    }
    said = {}
    for words in commands():
        assert words[0] == "hf-dense"
        command = [sys.executable, "-m", "hf_dense.commands.main", *words[1:]]
        done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **settings}, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)
        said[words[1]] = done.stdout
    build = tmp_path / "build"
    for row in ("bm25", "base", "tuned", "pretrained", "merged"):
        assert f"| {row} |" in said["evaluate"]
    assert re.search(
        r"## Against base\n.*^\| merged \| nDCG@10 \|", (build / "report" / "report.md").read_text(), re.M | re.S
    )
    retriever, embedder = (
        SentenceTransformer(str(path)) for path in (build / "merged" / "model", tmp_path / "EMBEDDER")
    )
    for kept in ("similarity_fn_name", "prompts", "max_seq_length"):
        assert getattr(retriever, kept) == getattr(embedder, kept), kept
    assert [type(module) for module in retriever] == [type(module) for module in embedder]
    assert len(re.findall(r"^ *\d\. -?\d\.\d{3} ", said["search"], re.MULTILINE)) == 5
    card = ModelCard.load(build / "merged" / "model" / "README.md")
    assert card.data.license == "mit", "the embedder's"
    assert {result.dataset_split for result in card.data.eval_results} == {"dev"}, "what w was chosen on"
    assert "pre-training" in card.text
