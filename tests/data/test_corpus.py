"""Corpora of every kind are read, and a bad one is refused in one sentence."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict
from json_lines import write_lines
from tiny_retriever import write_dataset

from hf_dense.data import corpus
from hf_dense.data.corpus import load_passages, stream_passages
from hf_dense.data.passages import read_positions
from hf_dense.errors import InputError

TEXTS = ["abc de", "fgh", "ij kl mn"]


def write_file(path: Path) -> Path:
    """Write `TEXTS` in the format of the file's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = Dataset.from_dict({"text": TEXTS})
    if path.suffix == ".parquet":
        rows.to_parquet(path)
    elif path.suffix == ".csv":
        rows.to_csv(path)
    elif path.suffix == ".txt":
        path.write_text("\n".join(TEXTS) + "\n")
    elif path.suffix == ".json":
        path.write_text(json.dumps([{"text": text} for text in TEXTS]))
    else:
        write_lines(path, ({"text": text} for text in TEXTS))
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".csv", ".txt"])
def test_a_file_is_read(tmp_path: Path, suffix: str) -> None:
    assert list(load_passages(str(write_file(tmp_path / f"corpus{suffix}")))["text"]) == TEXTS


@pytest.mark.parametrize("name", ["corpus/part-0.parquet", "corpus.jsonl", "part-0.parquet", "part-0.jsonl"])
def test_a_directory_is_read(tmp_path: Path, name: str) -> None:
    write_file(tmp_path / name)
    assert list(load_passages(str(tmp_path))["text"]) == TEXTS
    assert [row["text"] for row in stream_passages(str(tmp_path))] == TEXTS


def test_a_collection_in_beir_form_is_read(tmp_path: Path) -> None:
    rows = load_passages(str(write_dataset(tmp_path / "data", passages=9, queries=3)))
    assert len(rows) == 9
    assert {"title", "text"} <= set(rows.column_names)


def test_another_text_column_is_called_text_from_there_on(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"passage": "abc de", "id": 1}\n')
    rows = load_passages(str(path), "passage")
    assert sorted(rows.column_names) == ["id", "text"]
    assert rows[0]["text"] == "abc de"


def test_another_text_column_takes_the_place_of_one_called_text(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "raw", "cleaned": "abc de"}\n')
    assert load_passages(str(path), "cleaned")[:] == {"text": ["abc de"]}
    assert list(stream_passages(str(path), "cleaned")) == [{"text": "abc de"}]


@pytest.mark.parametrize("with_corpus", [True, False])
def test_a_hub_dataset_is_read_from_its_corpus_configuration_or_its_default(
    monkeypatch: pytest.MonkeyPatch, with_corpus: bool
) -> None:
    """Stands in for a Hub, whose datasets these tests cannot reach."""
    asked = []

    def load_builder(source: str, configuration: str, revision: None) -> Namespace:
        if not with_corpus:
            raise ValueError(f"BuilderConfig '{configuration}' not found.")
        return Namespace(repo_id=source)

    def load(*names: str, streaming: bool, revision: None) -> DatasetDict:
        assert not streaming
        asked.append(names)
        return DatasetDict({"corpus" if with_corpus else "train": Dataset.from_dict({"text": TEXTS})})

    monkeypatch.setattr(corpus, "load_dataset_builder", load_builder)
    monkeypatch.setattr(corpus, "load_dataset", load)
    assert list(load_passages("someone/docs")["text"]) == TEXTS
    assert asked == [("someone/docs", "corpus") if with_corpus else ("someone/docs",)]


@pytest.mark.parametrize("source", ["{tmp}/missing.jsonl", "./missing", "a/b/missing.jsonl"])
def test_a_missing_path_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(InputError, match=r"^The corpus .* does not exist\.$"):
        load_passages(source.format(tmp=tmp_path))


@pytest.mark.parametrize("source", ["someone/missing", "missing.jsonl", "missing"])
def test_a_name_that_is_no_dataset_is_refused(source: str) -> None:
    with pytest.raises(InputError, match="is neither a path nor a dataset that can be reached"):
        load_passages(source)


@pytest.mark.parametrize("name", ["json", "text"])
def test_a_reader_of_files_is_no_dataset(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.jsonl").write_text('{"text": "abc"}\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"'{name}' is neither a path nor a dataset that can be reached"):
        load_passages(name)


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.parquet", "corpus.csv", "corpus.txt", "corpus.json"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch()
    with pytest.raises(InputError, match="is empty"):
        load_passages(str(path))


@pytest.mark.parametrize(("name", "content"), [("corpus.csv", "text\n"), ("corpus.jsonl", "\n")])
def test_a_file_without_rows_is_refused(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError):
        load_passages(str(path))


def test_cells_of_a_csv_file_are_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "corpus.csv").write_text("id,title,text,position\n007,NA,null,1\n1.50,,3,\n")
    rows = load_passages(str(tmp_path / "corpus.csv"))
    assert rows["id"][:] == ["007", "1.50"]
    assert rows["title"][:] == ["NA", None]
    assert rows["text"][:] == ["null", "3"]
    assert read_positions(rows).tolist() == [1, 0]
    assert next(iter(stream_passages(str(tmp_path / "corpus.csv"))))["id"] == "007"


def test_a_csv_file_may_have_semicolons_for_commas(tmp_path: Path) -> None:
    (tmp_path / "corpus.csv").write_text("id;text\n007;a, b\n")
    assert load_passages(str(tmp_path / "corpus.csv"))[:] == {"id": ["007"], "text": ["a, b"]}


def test_a_csv_file_with_more_cells_than_its_header_is_refused(tmp_path: Path) -> None:
    """Else the first cell of each row is none, and all others stand under the heading before their own."""
    (tmp_path / "corpus.csv").write_text("id,text\n1,words, and more words\n2,others, too\n")
    with pytest.raises(InputError, match="have more cells than its header names"):
        load_passages(str(tmp_path / "corpus.csv"))


def test_a_directory_with_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").touch()
    with pytest.raises(InputError):
        load_passages(str(tmp_path))


@pytest.mark.parametrize("load", [load_passages, stream_passages])
@pytest.mark.parametrize(("content", "number"), [('{"text": "a"}\n\n{"text": "b', 3), ("\nhello\n", 2)])
def test_of_a_broken_file_the_line_is_named(
    tmp_path: Path, load: Callable[[str], Any], content: str, number: int
) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text(content)
    for source in (file, tmp_path):
        with pytest.raises(InputError, match=rf"Line {number} of .*corpus.jsonl is not JSON; correct or remove it"):
            list(load(str(source)))


@pytest.mark.parametrize("name", ["passages.csv", "passages.txt", "passages.jsonl"])
@pytest.mark.parametrize("load", [load_passages, stream_passages])
def test_a_text_in_another_encoding_is_refused_as_what_it_is(
    tmp_path: Path, name: str, load: Callable[[str], object]
) -> None:
    lines = ['{"text": "kůň"}'] if name.endswith("jsonl") else ["text", "kůň"]
    (tmp_path / name).write_bytes("\n".join(lines).encode("cp1250"))
    with pytest.raises(InputError, match=rf"{name} is not UTF-8; "):
        load(str(tmp_path / name))


def test_what_save_to_disk_wrote_is_to_be_written_anew(tmp_path: Path) -> None:
    rows = Dataset.from_dict({"text": TEXTS})
    rows.save_to_disk(tmp_path / "one")
    DatasetDict({"train": rows}).save_to_disk(tmp_path / "several")
    for name in ("one", "several", "several/train"):
        with pytest.raises(InputError, match="what save_to_disk wrote is written anew by to_parquet"):
            load_passages(str(tmp_path / name))


def test_a_file_of_another_kind_and_a_directory_without_corpus_are_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus.doc").write_text("abc")
    with pytest.raises(InputError, match="of no known kind"):
        load_passages(str(tmp_path / "corpus.doc"))
    with pytest.raises(InputError, match=r"holds no corpus .*; hf-dense data passages makes one of documents"):
        load_passages(str(tmp_path))


@pytest.mark.parametrize("beside", ["guide.md", "more.parquet", "rows.csv"])
def test_a_directory_of_which_a_part_alone_would_be_read_is_refused(tmp_path: Path, beside: str) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "one"}\n')
    for name in ("README.md", "LICENSE.txt", "dataset_infos.json"):
        (tmp_path / name).write_text("{}")
    assert len(load_passages(str(tmp_path))) == 1, "what is said about it is no part of it"
    Dataset.from_list([{"text": "two"}]).to_parquet(tmp_path / beside)
    with pytest.raises(InputError, match=f"would be read and ({beside}|rows.jsonl) not; name the file"):
        load_passages(str(tmp_path))
    assert len(load_passages(str(rows))) == 1


def test_an_absent_column_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"body": "abc", "id": 1}\n')
    with pytest.raises(InputError, match=r"no column 'text'; it has: body, id\. Name the right one with --text_column"):
        load_passages(str(tmp_path / "corpus.jsonl"))


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv", ".txt"])
def test_another_file_of_the_same_place_and_time_is_read_anew(tmp_path: Path, suffix: str) -> None:
    path = write_file(tmp_path / f"corpus{suffix}")
    os.utime(path, (0, 0))  # as files of many archives are
    load_passages(str(path))
    other = write_file(tmp_path / "other" / path.name).read_bytes().replace(b"fgh", b"zzz")
    path.write_bytes(other)
    os.utime(path, (0, 0))
    assert list(load_passages(str(path))["text"]) == [text.replace("fgh", "zzz") for text in TEXTS]
