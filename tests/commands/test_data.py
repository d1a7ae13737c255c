"""The verbs of `hf-dense data`, one after the other, on one small collection; mistakes are one line."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from pyarrow import parquet
from tiny_retriever import random_words, tiny_tokenizer

from hf_dense.commands.main import main


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """Documents of several sentences as a BEIR folder, and a query for each of the first twenty."""
    generator, words = random.Random(0), random_words(60)
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    texts = [" ".join(" ".join(generator.choices(words, k=8)).capitalize() + "." for _ in range(6)) for _ in range(30)]
    for name, rows in (("corpus", texts), ("queries", [" ".join(text.split()[:4]) for text in texts[:20]])):
        lines = (json.dumps({"_id": f"{name[0]}{at}", "title": "", "text": text}) for at, text in enumerate(rows))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    judged = [f"q{at}\tc{at}\t1" for at in range(20)]
    (folder / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    return folder


def test_the_whole_chain(collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passages, contexts, made = (str(tmp_path / name) for name in ("passages", "contexts", "made"))
    main(["data", "passages", str(collection), "--out", passages, "--length", "20", "--processes", "1"])
    assert '"passages": ' in capsys.readouterr().out
    main(["data", "contexts", passages, "--out", contexts, "--length", "20", "--processes", "1"])
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    words = tmp_path / "words.parquet"
    main(["data", "keywords", passages, "--tokenizer", str(tmp_path / "tokenizer"), "--out", str(words)])
    main(["data", "negatives", str(collection), "--out", str(tmp_path / "negatives"), "--depth", "5"])
    generator = str(tmp_path / "generator")
    main(["data", "train-generator", str(collection), "--out", generator, "--max_steps", "2", "--batch_size", "2"])
    main(
        ["data", "generate", passages, "--model", generator, "--out", made, "--candidates", "2", "--output_length", "3"]
    )
    rows = parquet.read_table(Path(made) / "corpus")
    assert {"text", "queries"} <= set(rows.column_names)
    assert "hf-dense" not in (Path(made) / "README.md").read_text().split("by\n")[0]
    assert parquet.read_table(Path(contexts) / "corpus").column_names[-4:] == ["neighbour", "near", "overlap", "random"]
    assert parquet.read_table(words).num_rows > 0
    assert parquet.read_table(tmp_path / "negatives" / "negatives").num_rows == 20


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["passages", "./nowhere", "--out", "out"], "The source ./nowhere does not exist"),
        (["contexts", "./nowhere", "--out", "out"], "The corpus ./nowhere does not exist"),
        (["keywords", "./nowhere", "--out", "out"], "name the tokenizer of the pre-training with --tokenizer"),
        (["negatives", "./nowhere", "--out", "out"], "is not a directory"),
        (["labels", "./nowhere", "--out", "out"], "The source nowhere does not exist"),
        (["generate", "./nowhere", "--model", "m", "--out", "out"], "The corpus ./nowhere does not exist"),
        (["train-generator", "./nowhere", "--out", "out"], "is not a directory"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["data", *arguments])
    assert caught.value.code == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert [line for line in errors if line.startswith("error: ")] == errors[-1:]
    assert sentence in errors[-1]
    assert not any(tmp_path.iterdir())
