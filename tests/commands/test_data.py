"""The verbs of `hf-dense data`, one after the other, on one small collection; mistakes are one line."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path

import pytest
from json_lines import write_lines
from pyarrow import parquet
from tiny_retriever import random_words, tiny_tokenizer, write_cross_encoder, write_writer

from hf_dense.commands.data import DATA_VERBS
from hf_dense.commands.main import main
from hf_dense.data.supervision import build_collection


def write_collection(folder: Path) -> Path:
    """Documents of several sentences as a BEIR folder, and a query for each of the last twenty."""
    generator, words = random.Random(0), random_words(60)
    (folder / "qrels").mkdir(parents=True)
    texts = [" ".join(" ".join(generator.choices(words, k=8)).capitalize() + "." for _ in range(6)) for _ in range(30)]
    corpus = [{"_id": f"c{at}", "title": "", "text": text} for at, text in enumerate(texts)]
    queries = [{"_id": f"q{at}", "text": " ".join(text.split()[:4])} for at, text in enumerate(texts[10:])]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        write_lines(folder / f"{name}.jsonl", rows)
    judged = [f"q{at}\tc{at + 10}\t1" for at in range(20)]
    (folder / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    return folder


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    return write_collection(tmp_path / "data")


@pytest.mark.slow
def test_the_whole_chain(collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passages, contexts, made = (str(tmp_path / name) for name in ("passages", "contexts", "made"))
    main(["data", "passages", str(collection), "--out", passages, "--length", "20", "--processes", "1"])
    assert "passages is written: 30 documents read, " in capsys.readouterr().out
    main(["data", "contexts", passages, "--out", contexts, "--length", "20", "--processes", "1"])
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    words = tmp_path / "words"
    main(["data", "keywords", passages, "--tokenizer", str(tmp_path / "tokenizer"), "--out", str(words)])
    main(["data", "negatives", str(collection), "--out", str(tmp_path / "negatives"), "--depth", "5"])
    main(
        ["data", "negatives", str(collection), "--model", "bm25", "--out", str(tmp_path / "negatives"), "--depth", "5"]
    )
    generator = str(tmp_path / "generator")
    main(["data", "train-generator", str(collection), "--out", generator, "--max_steps", "2", "--batch_size", "2"])
    main(
        ["data", "generate", passages, "--model", generator, "--out", made, "--candidates", "2", "--output_length", "3"]
    )
    rows = parquet.read_table(Path(made) / "corpus")
    assert {"text", "queries"} <= set(rows.column_names)
    card = (Path(made) / "README.md").read_text()
    assert f"Built from `{passages}` (corpus), `{generator}` (model) by" in card
    assert parquet.read_table(Path(contexts) / "corpus").column_names[-4:] == ["neighbour", "near", "overlap", "random"]
    assert sum(parquet.read_table(file).num_rows for file in words.glob("*.parquet")) > 0
    assert parquet.read_table(tmp_path / "negatives" / "negatives").num_rows == 20


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the verbs read: documents, passages of documents, labels, a collection with lists, and tiny models."""
    root = tmp_path_factory.mktemp("inputs")
    rows = [{"id": f"d{at}", "text": f"Passage {at} says one. It says two, and some more."} for at in range(12)]
    cut = [{**row, "document": f"d{at // 3}", "position": at % 3} for at, row in enumerate(rows)]
    pairs = [{"query": f"query {at}", "positive": f"it is {at}", "negatives": ["it is none"]} for at in range(4)]
    for name, lines in (("docs", rows), ("corpus", cut), ("pairs", pairs)):
        write_lines(root / f"{name}.jsonl", lines)
    build_collection(root / "pairs.jsonl", root / "labelled")
    write_collection(root / "collection")
    write_writer(root / "writer")
    write_cross_encoder(root / "reranker")
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(root / "tokenizer")
    tokenizer.add_tokens(["more"])
    tokenizer.save_pretrained(root / "tokenizer2")
    return root


COMMANDS = {  # verb -> what it reads, its options, one of which is changed, and what is said to differ then
    "passages": ("docs.jsonl", ["--processes", "1"], ["--length", "30"], r"length \(128, now 30\)"),
    "contexts": ("corpus.jsonl", ["--processes", "1"], ["--seed", "1"], r"seed \(0, now 1\)"),
    "keywords": ("corpus.jsonl", ["--tokenizer", "tokenizer"], ["--tokenizer", "tokenizer2"], "tokenizer"),
    "labels": ("pairs.jsonl", [], ["--split", "dev"], "splits"),
    "generate": (
        "corpus.jsonl",
        ["--model", "writer", "--output_length", "3"],
        ["--template", "about {text}"],
        r"template \({text}, now about {text}\)",
    ),
    "queries": (
        "corpus.jsonl",
        ["--from", "neighbours", "generated", "--model", "writer", "--template", "{text}", "--output_length", "3"],
        ["--limit", "5"],
        r"limit \(none, now 5\)",
    ),
    "train-generator": ("collection", ["--max_steps", "2", "--batch_size", "2"], ["--learning_rate", "0.01"], "learn"),
    "negatives": ("collection", [], ["--depth", "4"], r"depth \(200, now 4\)"),
    "scores": ("labelled", ["--model", "reranker"], ["--depth", "3"], r"depth \(200, now 3\)"),
    "filter": ("collection", ["--within", "30"], ["--within", "29"], r"within \(30, now 29\)"),
}


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def change(source: Path) -> None:
    """Change one text of what is read, at its end."""
    file = source if source.is_file() else next(iter([*source.glob("corpus.jsonl"), *source.glob("corpus/*.parquet")]))
    if file.suffix == ".parquet":
        rows = parquet.read_table(file).to_pylist()
        rows[-1]["text"] += " a"
        parquet.write_table(parquet.read_table(file).from_pylist(rows), file)
    else:
        *lines, last = file.read_text().splitlines()
        row = json.loads(last)
        row["text" if "text" in row else "positive"] += " a"
        file.write_text("\n".join([*lines, json.dumps(row)]) + "\n")


SLOW = "train-generator"


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=pytest.mark.slow) if verb == SLOW else verb for verb in COMMANDS]
)
def test_an_output_is_made_once_and_replaced_only_when_that_is_asked_for(
    verb: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["cp", "-r", f"{inputs}/.", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    source, options, other, said = COMMANDS[verb]
    before = {entry.name for entry in tmp_path.iterdir()}

    def run(*more: str) -> str:
        capsys.readouterr()
        main(["data", verb, source, *options, "--out", "out", *more])
        assert {entry.name for entry in tmp_path.iterdir()} == {*before, "out"}
        return capsys.readouterr().out

    def refused(*more: str) -> str:
        made = contents(tmp_path / "out")
        with pytest.raises(SystemExit):
            run(*more)
        assert contents(tmp_path / "out") == made
        return capsys.readouterr().err

    assert "out is written" in run()
    made = contents(tmp_path / "out")
    assert "out is there already, made from the same" in run()
    assert contents(tmp_path / "out") == made
    assert re.search(f"out was made from (an)?other {said}.*--overwrite", refused(*other))
    assert "out is written" in run(*other, "--overwrite")
    assert "out is written" in run("--overwrite")
    change(Path(source))
    assert re.search("out was made from (an)?other ", refused())
    assert "out is written" in run("--overwrite")


def test_every_verb_is_tested() -> None:
    assert {*COMMANDS} == {*DATA_VERBS}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["passages", "./nowhere", "--out", "out"], "The source ./nowhere does not exist"),
        (["contexts", "./nowhere", "--out", "out"], "The corpus ./nowhere does not exist"),
        (["contexts", "./nowhere", "--out", "out", "--length", "1"], "A passage length of 1 tokens leaves no room"),
        (["keywords", "./nowhere", "--tokenizer", "t", "--out", "out"], "The corpus ./nowhere does not exist"),
        (["negatives", "./nowhere", "--out", "out"], "is not a directory"),
        (
            ["negatives", "c", "--filter_by", "m", "--out", "out"],
            "--filter_by says nothing of BM25; name a",
        ),
        (
            ["negatives", "c", "--precision", "fp32", "--out", "out"],
            "--precision says nothing of BM25; name a",
        ),
        (
            ["negatives", "c", "--batch_size", "64", "--out", "out"],
            "--batch_size says nothing of BM25; name a",
        ),
        (["labels", "./nowhere", "--out", "out"], "The source nowhere does not exist"),
        (["queries", "./nowhere", "--from", "headings", "--out", "out"], "The corpus ./nowhere does not exist"),
        (
            ["queries", "c", "--from", "generated", "--endpoint", "http://x/v1", "--out", "out"],
            "Name the model that the endpoint is to use with --model",
        ),
        (
            ["queries", "c", "--from", "generated", "--style", "title", "--template", "{text}", "--out", "out"],
            "--template stands in place of the styles",
        ),
        *(
            (
                ["queries", "c", "--from", "headings", *given, "--out", "out"],
                f"{given[0]} says nothing without {needed};",
            )
            for given, needed in (
                (("--style", "question"), "--model"),
                (("--template", "{text}"), "--model"),
                (("--candidates", "9"), "--model"),
                (("--price_in", "3"), "--endpoint"),
                (("--parallel", "2", "--model", "m"), "--endpoint"),
            )
        ),
        (["passages", "./nowhere", "--address", "x:1", "--out", "out"], "The address x:1 is of a Ray cluster; name"),
        *(
            (
                ["passages", "./nowhere", "--whole", *given, "--out", "out"],
                f"{given[0]} says how documents are cut, and",
            )
            for given in (("--length", "128"), ("--short", "0"), ("--tokenizer", "t"))
        ),
        *(
            (
                ["generate", "./nowhere", "--model", "m", "--kind", "continuation", *given, "--out", "out"],
                f"{given[0]} says nothing of continuations",
            )
            for given in (("--candidates", "5"), ("--deduplicate",))
        ),
        (["generate", "./nowhere", "--model", "m", "--out", "out"], "The corpus ./nowhere does not exist"),
        (["train-generator", "./nowhere", "--out", "out"], "is not a directory"),
        (["filter", "./nowhere", "--out", "out"], "Say what queries must do"),
        (["filter", "./nowhere", "--by", "bm25", "--out", "out"], "--by says nothing without --within"),
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


@pytest.mark.parametrize("verb", COMMANDS)
@pytest.mark.parametrize("place", [".", "proj"])
def test_a_directory_of_others_is_left_alone(
    verb: str,
    place: str,
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    subprocess.run(["cp", "-r", f"{inputs}/.", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proj").mkdir()
    for name in ("README.md", "thesis.tex", "config.json", "counts.json"):
        (tmp_path / "proj" / name).write_text("years of work")
    before = contents(tmp_path)
    source, options, _, _ = COMMANDS[verb]
    with pytest.raises(SystemExit):
        main(["data", verb, source, *options, "--out", place, "--overwrite"])
    assert contents(tmp_path) == before
    said = capsys.readouterr().err
    assert ("the working directory" if place == "." else "was not written by hf_dense") in said
