"""From documents to a published corpus: what is in it, what was left out, and that it is complete or absent."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset
from json_lines import write_lines
from manifests import manifest_of
from pyarrow import parquet
from tiny_retriever import LETTERS, tiny_tokenizer

from hf_dense.data.engines import Engine
from hf_dense.data.passage_corpus import Cutting, build_passage_corpus
from hf_dense.data.passages import pretoken_counter
from hf_dense.data.shards import ShardWriter
from hf_dense.errors import InputError
from hf_dense.storage.output import Output


def write_documents(path: Path, count: int = 30, seed: int = 0) -> Path:
    """Documents of a few sentences of random words."""
    generator = random.Random(seed)

    def sentence() -> str:
        words = ["".join(generator.choices(LETTERS, k=4)) for _ in range(generator.randint(5, 12))]
        return " ".join(words).capitalize() + "."

    rows = []
    for number in range(count):
        paragraphs = [" ".join(sentence() for _ in range(3)) for _ in range(generator.randint(1, 4))]
        rows.append({"id": f"d{number}", "title": f"Title {number}", "text": "\n\n".join(paragraphs)})
    return write_lines(path, rows)


def build(tmp_path: Path, source: Path | None = None, processes: int = 1, **cutting: Any) -> list[dict[str, Any]]:
    source = source or write_documents(tmp_path / "docs.jsonl")
    output = Output(tmp_path / "out", overwrite=True, command="make it")
    out = build_passage_corpus(str(source), output, Cutting(**cutting), engine=Engine(processes=processes))
    rows: list[dict[str, Any]] = parquet.read_table(out / "corpus").to_pylist()
    return rows


def counts(tmp_path: Path) -> dict[str, int]:
    manifest = manifest_of(tmp_path / "out")
    found: dict[str, int] = manifest.facts["counts"]
    return found


def test_passages_are_consecutive_sentences_in_order(tmp_path: Path) -> None:
    rows = build(tmp_path, length=30)
    documents = [json.loads(line) for line in (tmp_path / "docs.jsonl").read_text().splitlines()]
    assert list(rows[0]) == ["id", "title", "text", "document", "position"]
    for document in documents:
        own = [row for row in rows if row["document"] == document["id"]]
        assert [row["position"] for row in own] == list(range(len(own)))
        assert [row["id"] for row in own] == [f"{document['id']}#{at}" for at in range(len(own))]
        assert {row["title"] for row in own} == {document["title"]}
        assert " ".join(row["text"] for row in own) == " ".join(document["text"].split())
    assert max(pretoken_counter()([row["text"] for row in rows])) <= 30
    assert counts(tmp_path) == {"documents read": 30, "passages": len(rows)}


def test_any_number_of_processes_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_dense.data.passage_corpus._READ", 1000)
    monkeypatch.setattr("hf_dense.data.passage_corpus.ShardWriter", partial(ShardWriter, rows=7))
    source = write_documents(tmp_path / "docs.jsonl")
    one = build(tmp_path, source, length=30, short=0.3)
    files = sorted((tmp_path / "out" / "corpus").glob("*.parquet"))
    assert len(files) == -(-len(one) // 7)
    content = [file.read_bytes() for file in files]
    (tmp_path / "out").rename(tmp_path / "before")
    assert build(tmp_path, source, processes=2, length=30, short=0.3) == one
    assert [file.read_bytes() for file in sorted((tmp_path / "out" / "corpus").glob("*.parquet"))] == content


def test_short_passages_are_closed_early(tmp_path: Path) -> None:
    plain = build(tmp_path, length=30)
    short = build(tmp_path, tmp_path / "docs.jsonl", length=30, short=0.5)
    assert len(short) > 1.1 * len(plain)
    assert " ".join(row["text"] for row in short) == " ".join(row["text"] for row in plain)


def test_titles_can_stand_in_the_text_too(tmp_path: Path) -> None:
    rows = build(tmp_path, length=30, titles="text")
    assert all(row["text"].startswith(row["title"]) for row in rows if row["position"] == 0)


def test_whole_documents_keep_their_ids(tmp_path: Path) -> None:
    rows = build(tmp_path, length=None)
    assert [row["id"] for row in rows] == [row["document"] for row in rows] == [f"d{at}" for at in range(30)]


@pytest.mark.parametrize(("repeats", "kept"), [("keep", [0, 1, 2, 3]), ("exact", [0, 2, 3]), ("near", [0, 3])])
def test_repeated_passages_are_left_out_as_asked(tmp_path: Path, repeats: str, kept: list[int]) -> None:
    words = [f"word{number}" for number in range(100)]
    texts = [
        " ".join(words),
        " ".join(words).upper() + ".",
        " ".join([*words[:-1], "other"]),
        " ".join(words[::-1]),
        "ab",
    ]
    path = tmp_path / "docs.jsonl"
    write_lines(path, ({"id": str(at), "text": text} for at, text in enumerate(texts)))
    rows = build(tmp_path, path, length=None, repeats=repeats)
    assert [int(row["id"]) for row in rows] == kept
    found = counts(tmp_path)
    assert found["passages below 4 words"] == 1
    assert found["passages"] + found.get("passages repeated", 0) + found.get("passages nearly repeated", 0) == 4


def write_pages(path: Path, pages: list[tuple[str, str]]) -> Path:
    return write_lines(path, ({"title": title, "text": text} for title, text in pages))


def test_documents_that_say_the_same_under_other_titles_are_all_found(tmp_path: Path) -> None:
    text = "Waterproof leather with a rubber sole, for wet days."
    source = write_pages(tmp_path / "docs.jsonl", [("Red shoe", text), ("Blue boot", text), ("Red shoe", text)])
    assert [row["title"] for row in build(tmp_path, source)] == ["Red shoe", "Blue boot"]
    assert counts(tmp_path)["passages repeated"] == 1


def test_what_ends_many_documents_stays_once_whatever_their_titles(tmp_path: Path) -> None:
    footer = "Copies may be passed on under the terms of the licence."
    source = write_pages(
        tmp_path / "docs.jsonl", [(f"Part {name}", f"{name} is described in this part. {footer}") for name in "abc"]
    )
    rows = build(tmp_path, source, length=14)
    assert [row["title"] for row in rows if row["text"] == footer] == ["Part a"]
    assert len(rows) == 4


def test_the_card_says_what_it_is_and_how_to_make_it_again(tmp_path: Path) -> None:
    rows = build(tmp_path, length=30)
    assert load_dataset(str(tmp_path / "out"), "corpus", split="corpus").to_list() == rows
    card = (tmp_path / "out" / "README.md").read_text()
    assert "config_name: corpus" in card
    assert "make it" in card
    assert f"| passages | {len(rows):,} |" in card
    assert "at most 30 words and punctuation marks" in card


def test_passages_keep_to_their_sections(tmp_path: Path) -> None:
    def text(word: str, sentences: int) -> str:
        return " ".join(f"The {word} number {at} stands here." for at in range(sentences))

    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "guide.md").write_text(
        f"# Guide\n\n{text('beginning', 2)}\n\n## Install\n\n### Linux\n\n{text('penguin', 8)}\n\n"
        f"### Others\n\n{text('window', 6)}\n\n```\nrun --all the things\n```\n\n## Licence\n\nIt is free.\n"
    )
    (folder / "notes.txt").write_text(text("note", 3))
    rows = build(tmp_path, folder, length=50)
    assert list(rows[0]) == ["id", "title", "section", "text", "document", "position"]
    found = [(row["id"], row["section"], row["text"]) for row in rows]
    assert [(name, section) for name, section, _ in found] == [
        ("guide.md#0", ""),
        ("guide.md#1", "Install > Linux"),
        ("guide.md#2", "Install > Linux"),
        ("guide.md#3", "Install > Others"),
        ("guide.md#4", "Licence"),
        ("notes.txt#0", ""),
    ]
    assert found[1][2].startswith("Install. Linux. The penguin number 0")
    assert found[3][2].endswith("The window number 5 stands here. run --all the things")
    assert {row["title"] for row in rows[:5]} == {"Guide"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "`section`: the headings" in card
    one = Engine(processes=1)
    dropped = build_passage_corpus(str(folder), tmp_path / "dropped", Cutting(50), code="drop", engine=one)
    assert "run --all" not in str(parquet.read_table(dropped / "corpus")["text"].to_pylist())
    with pytest.raises(InputError, match="made from another code"):
        build_passage_corpus(str(folder), tmp_path / "dropped", Cutting(50), code="fence")
    (folder / "guide.md").unlink()
    assert list(build(tmp_path, folder, length=50)[0]) == ["id", "title", "text", "document", "position"]


@pytest.mark.parametrize(
    ("cutting", "sentence"),
    [
        ({"length": 1}, "A passage length of 1 tokens leaves no room"),
        ({"short": 1.0}, "short is 1.0; it is a probability"),
        ({"titles": "above"}, "titles is 'above'; allowed: column, text"),
        ({"repeats": "some"}, "repeats is 'some'; allowed: keep, exact, near"),
        ({"tokenizer": "no/such"}, "No tokenizer can be loaded from 'no/such'"),
    ],
)
def test_bad_options_leave_nothing_behind(tmp_path: Path, cutting: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        build(tmp_path, **cutting)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs.jsonl"]


def test_a_source_of_which_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text('{"id": "1", "text": ""}\n')
    with pytest.raises(InputError, match=r"No document of .* can be read: 1 empty"):
        build(tmp_path, path)
    for name, content, advice in (
        ("old.txt", "kůň".encode("cp1250"), "1 broken UTF-8; turn .* into UTF-8"),
        ("locked.pdf", b"%PDF-1.4", "1 unreadable; see whether other programs open it, and that without a password"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=rf"No document of .*{name} can be read: {advice}"):
            build(tmp_path, tmp_path / name)
    path.write_text('{"id": "1", "text": "too few"}\n')
    with pytest.raises(InputError, match=r"No passage of .* is left: 1 documents read, 1 passages below 4 words"):
        build(tmp_path, path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs.jsonl", "locked.pdf", "old.txt"]


def test_what_is_not_a_corpus_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="was not written by hf_dense"):
        build(tmp_path)
    assert (tmp_path / "out" / "thesis.txt").read_text() == "years of work"


def test_an_output_inside_a_folder_that_is_read_whole_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    write_documents(folder / "a.jsonl")
    with pytest.raises(InputError, match=r"out lies inside .*docs, all of which is read; name a directory outside"):
        build_passage_corpus(str(folder), folder / "deep" / "out")
    assert [entry.name for entry in folder.iterdir()] == ["a.jsonl"]
    collection = tmp_path / "collection"
    collection.mkdir()
    write_documents(collection / "corpus.jsonl")
    build_passage_corpus(str(collection), collection / "passages", engine=Engine(processes=1))
    assert build_passage_corpus(str(collection), collection / "passages") == collection / "passages"


def test_columns_and_splits_that_no_source_has_are_refused(tmp_path: Path) -> None:
    folder, table = tmp_path / "docs", write_documents(tmp_path / "docs.jsonl")
    folder.mkdir()
    (folder / "a.md").write_text("# Heading\n\nWords that stand in the file.")
    for given, sentence in (
        ({"columns": {"text": "body"}}, r"The column body is of a table, and .*docs holds files of text alone; leave"),
        ({"split": "train"}, r"The split train is of a dataset of the Hub, and .*docs is none; leave it out"),
    ):
        with pytest.raises(InputError, match=sentence):
            build_passage_corpus(str(folder), tmp_path / "out", **given)
    with pytest.raises(InputError, match=r"The split test is of a dataset of the Hub, and .*docs\.jsonl is none"):
        build_passage_corpus(str(table), tmp_path / "out", split="test")
    assert not (tmp_path / "out").exists()
    both = [str(folder), str(table)]
    build_passage_corpus(both, tmp_path / "out", columns={"text": "text"}, engine=Engine(processes=1))


def test_the_card_says_nothing_of_cutting_where_documents_stay_whole(tmp_path: Path) -> None:
    build(tmp_path, length=None, short=0.9)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Every document is one passage." in card
    assert "closed earlier" not in card


def test_a_tokenizer_is_what_it_holds(tmp_path: Path) -> None:
    source = write_documents(tmp_path / "docs.jsonl")
    for name in ("a", "b", "c"):
        tokenizer = tiny_tokenizer()
        if name == "c":
            tokenizer.add_tokens(["more"])
        tokenizer.save_pretrained(tmp_path / name)

    def run(name: str) -> Path:
        cutting = Cutting(tokenizer=str(tmp_path / name))
        return build_passage_corpus(str(source), tmp_path / "out", cutting, engine=Engine(processes=1))

    run("a")
    run("b")
    with pytest.raises(InputError, match="was made from another tokenizer"):
        run("c")


KILLED = """
import os, signal, sys
from hf_dense.data import passage_corpus
from hf_dense.data.engines import Engine
passage_corpus.write_card = lambda *given, **named: os.kill(os.getpid(), signal.SIGKILL)
passage_corpus.build_passage_corpus(sys.argv[1], sys.argv[2], engine=Engine(processes=1))
"""


@pytest.mark.slow
def test_a_killed_process_leaves_no_output(tmp_path: Path) -> None:
    source = write_documents(tmp_path / "docs.jsonl")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(source), str(tmp_path / "out")], env=dict(os.environ), check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert build(tmp_path, source)


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hf_dense.data.shards.parquet.ParquetWriter", full)
    with pytest.raises(InputError, match=r"There is no room left to write .*out"):
        build(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs.jsonl"]
