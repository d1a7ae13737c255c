"""The page on Python is run, block by block, in small; only steps, and who the Hub thinks we are, are replaced."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from package_documents import write_documents
from tiny_retriever import write_embedder

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python.md"
LONG = "hf_dense.adapt("  # the notebook's test runs it


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_every_function_of_the_package_is_in_the_page() -> None:
    import hf_dense

    functions = [name for name in hf_dense.__all__ if name[0].islower() and name != "get_method"]
    assert len(functions) == 7
    for name in functions:
        assert f"`{name}" in PAGE.read_text()


@pytest.mark.slow
def test_the_page_runs(
    tmp_path: Path, hub_here: HfApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_documents(tmp_path / "my_documents", tmp_path / "numpy", 60)
    write_embedder(tmp_path / "EMBEDDER")
    world: dict[str, Any] = {}
    for block in blocks():
        text = re.sub(r"max_steps=\d+", "max_steps=2", block).replace('"me/', '"someone/')
        text = text.replace("max_length=64", "max_length=32")  # places of the small model
        code = compile(text, str(PAGE), "exec")
        if LONG not in block:
            exec(code, world)
    said = capsys.readouterr().out
    assert "| tuned |" in said
    assert len(re.findall(r"^-?\d\.\d{3}  ", said, re.MULTILINE)) == 3
    assert "/someone/retriever" in said
    assert "README.md" in hub_here.list_repo_files("someone/retriever")
