"""Every dataset script builds what it says, from small sources of the form that it expects."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pyarrow import parquet
from tiny_retriever import tiny_tokenizer
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from hf_dense.commands.main import main

SCRIPTS = Path(__file__).parents[2] / "dataset_scripts"


def run(name: str, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script in this process."""
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    namespace = {"__name__": "__main__"}
    exec((SCRIPTS / f"{name}.py").read_text(), namespace)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(folder / "corpus").to_pylist()
    return rows


def test_my_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# Title\n\nA sentence of some words. Another sentence of words.\n")
    run("my_documents", str(tmp_path / "docs"), "--out", str(tmp_path / "out"), monkeypatch=monkeypatch)
    (row,) = rows_of(tmp_path / "out")
    assert (row["title"], row["text"]) == ("Title", "A sentence of some words. Another sentence of words.")


def test_wikipedia_nq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "psgs_w100.tsv"
    source.write_text('id\ttext\ttitle\n1\t"one two ""three"" four"\tA\n2\tone two three four\tB\n')
    run("wikipedia_nq", str(source), "--out", str(tmp_path / "out"), monkeypatch=monkeypatch)
    assert [(row["id"], row["title"]) for row in rows_of(tmp_path / "out")] == [("1", "A"), ("2", "B")]
    assert "license: cc-by-sa-3.0" in (tmp_path / "out" / "README.md").read_text()


HUB = """
import json, sys
from pathlib import Path
from datasets import Dataset
from hf_dense.commands.main import main
name, rows, script, *arguments = sys.argv[1:]
repository, _, configuration = name.partition(":")
Path("data").mkdir()
Dataset.from_list(json.loads(rows)).to_parquet("data/train.parquet")
config = [{"config_name": configuration or "default", "data_files": "train.parquet"}]
Path("data/README.md").write_text("---\\n" + json.dumps({"configs": config}) + "\\n---\\n")
from huggingface_hub import create_repo, upload_folder
create_repo(repository, repo_type="dataset")
upload_folder(repo_id=repository, folder_path="data", repo_type="dataset")
sys.argv = [script, *arguments]
exec(Path(script).read_text(), {"__name__": "__main__"})
from pyarrow import parquet
print(json.dumps([[row["id"], row["title"], row["text"]] for row in parquet.read_table("out/corpus").to_pylist()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "dataset"),
    [
        ("msmarco_passages", "Tevatron/msmarco-passage-corpus"),
        ("wikipedia_books", "wikimedia/wikipedia:20231101.en"),
    ],
)
def test_scripts_that_read_the_hub(script: str, dataset: str, hub_client: Callable[..., Any], tmp_path: Path) -> None:
    key = "docid" if script == "msmarco_passages" else "id"
    rows = [{key: str(at), "title": f"T{at}", "text": f"text number {at} of the set"} for at in range(3)]
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "novel.txt").write_text("It was the best of times.")
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    books = [str(tmp_path / "books"), "--tokenizer", str(tmp_path / "tokenizer")]
    more = books if script == "wikipedia_books" else []
    found = hub_client(HUB, dataset, json.dumps(rows), str(SCRIPTS / f"{script}.py"), *more, "--out", "out")
    suffix = "#0" if script == "wikipedia_books" else ""
    expected = [[f"{row[key]}{suffix}", row["title"], row["text"]] for row in rows]
    if script == "wikipedia_books":
        expected.append(["novel.txt#0", "novel", "It was the best of times."])
    assert found == expected


@pytest.mark.parametrize(("script", "column"), [("generated_queries", "queries"), ("continuations", "continuation")])
def test_generated_texts(script: str, column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    special = {"vocab_size": len(tiny_tokenizer()), "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    torch.manual_seed(0)
    if script == "continuations":
        GPT2LMHeadModel(GPT2Config(**special, n_embd=16, n_layer=1, n_head=2, n_positions=512)).save_pretrained(
            tmp_path / "m"
        )
    else:
        t5 = T5Config(**special, d_model=16, d_ff=32, d_kv=8, num_layers=1, num_heads=2, decoder_start_token_id=2)
        T5ForConditionalGeneration(t5).save_pretrained(tmp_path / "m")
    tiny_tokenizer().save_pretrained(tmp_path / "m")
    (tmp_path / "docs.jsonl").write_text('{"id": "1", "text": "one two three four five"}\n')
    main(["data", "passages", str(tmp_path / "docs.jsonl"), "--out", str(tmp_path / "corpus"), "--processes", "1"])
    given = [str(tmp_path / "corpus"), "--model", str(tmp_path / "m"), "--out", str(tmp_path / "out")]
    run(script, *given, "--output_length", "3", monkeypatch=monkeypatch)
    (row,) = rows_of(tmp_path / "out")
    assert row[column]
