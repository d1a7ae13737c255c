"""Corpora of every kind are read, and a bad one is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict
from tiny_pretraining import write_corpus
from tiny_retriever import tiny_tokenizer, write_dataset

from hf_dense.data.corpus import load_passages
from hf_dense.errors import InputError
from hf_dense.pretraining import corpus as corpus_module
from hf_dense.pretraining.corpus import add_sources, hold_out, tokenize

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
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".csv", ".txt"])
def test_a_file_is_read(tmp_path: Path, suffix: str) -> None:
    assert list(load_passages(str(write_file(tmp_path / f"corpus{suffix}")))["text"]) == TEXTS


@pytest.mark.parametrize("name", ["corpus/part-0.parquet", "corpus.jsonl", "part-0.parquet", "part-0.jsonl"])
def test_a_directory_is_read(tmp_path: Path, name: str) -> None:
    write_file(tmp_path / name)
    assert list(load_passages(str(tmp_path))["text"]) == TEXTS


def test_a_collection_in_beir_form_is_read(tmp_path: Path) -> None:
    corpus = load_passages(str(write_dataset(tmp_path / "data", passages=9, queries=3)))
    assert len(corpus) == 9
    assert {"title", "text"} <= set(corpus.column_names)


def test_another_text_column_is_called_text_from_there_on(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"passage": "abc de", "id": 1}\n')
    corpus = load_passages(str(path), "passage")
    assert sorted(corpus.column_names) == ["id", "text"]
    assert corpus[0]["text"] == "abc de"


@pytest.mark.parametrize("with_corpus", [True, False])
def test_a_hub_dataset_is_read_from_its_corpus_configuration_or_its_default(
    monkeypatch: pytest.MonkeyPatch, with_corpus: bool
) -> None:
    """Stands in for a Hub, whose datasets these tests cannot reach."""
    asked = []

    def load_builder(source: str, configuration: str) -> None:
        if not with_corpus:
            raise ValueError(f"BuilderConfig '{configuration}' not found.")

    def load(*names: str, streaming: bool) -> DatasetDict:
        assert not streaming
        asked.append(names)
        return DatasetDict({"corpus" if with_corpus else "train": Dataset.from_dict({"text": TEXTS})})

    monkeypatch.setattr(corpus_module, "load_dataset_builder", load_builder)
    monkeypatch.setattr(corpus_module, "load_dataset", load)
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


def test_a_directory_with_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").touch()
    with pytest.raises(InputError):
        load_passages(str(tmp_path))


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"text": "abc"}\n{"text": \n')
    with pytest.raises(InputError):
        load_passages(str(tmp_path / "corpus.jsonl"))


def test_a_file_of_another_kind_and_a_directory_without_corpus_are_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus.doc").write_text("abc")
    with pytest.raises(InputError, match="of no known kind"):
        load_passages(str(tmp_path / "corpus.doc"))
    with pytest.raises(InputError, match="holds no corpus"):
        load_passages(str(tmp_path))


def test_an_absent_column_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"body": "abc", "id": 1}\n')
    with pytest.raises(InputError, match=r"no column 'text'; it has: body, id\. Name the right one with --text_column"):
        load_passages(str(tmp_path / "corpus.jsonl"))


def read(path: Path, **changes: Any) -> Dataset:
    return load_passages(str(write_corpus(path / "corpus.jsonl", **changes)))


def test_whole_documents_are_held_out(tmp_path: Path) -> None:
    corpus = read(tmp_path, passages=300, per_document=3)
    train, held = hold_out(corpus, 0.2, seed=0)
    assert held is not None
    assert sorted([*train["text"], *held["text"]]) == sorted(corpus["text"])
    assert not set(train["document"]) & set(held["document"])
    assert 0.1 < len(set(held["document"])) / 100 < 0.3
    _, again = hold_out(corpus, 0.2, seed=0)
    _, other = hold_out(corpus, 0.2, seed=1)
    assert again is not None
    assert other is not None
    assert list(again["text"]) == list(held["text"])
    assert set(other["document"]) != set(held["document"])


def test_equal_texts_stay_on_one_side_where_documents_are_unknown() -> None:
    corpus = Dataset.from_dict({"text": [f"text {row % 50}" for row in range(200)]})
    train, held = hold_out(corpus, 0.3, seed=0)
    assert held is not None
    assert len(held) % 4 == 0
    assert not set(train["text"]) & set(held["text"])


def test_nothing_is_held_out_at_zero(tmp_path: Path) -> None:
    corpus = read(tmp_path)
    train, held = hold_out(corpus, 0.0, seed=0)
    assert held is None
    assert len(train) == len(corpus)


def test_neighbours_are_built_from_document_and_position(tmp_path: Path) -> None:
    corpus = read(tmp_path, passages=20)
    rows = add_sources(corpus, ["text", "neighbour"])
    assert rows.column_names == ["text", "neighbour"]
    assert len(rows) == 20
    partner = {row["text"]: row["neighbour"] for row in rows}
    assert all(partner[partner[text]] == text for text in partner)
    places = dict(zip(corpus["text"], corpus["document"], strict=True))
    assert all(places[text] == places[neighbour] != text for text, neighbour in partner.items())


def test_neighbours_that_are_there_are_kept() -> None:
    corpus = Dataset.from_dict({"text": ["a b"], "neighbour": ["c d"], "id": [1]})
    assert add_sources(corpus, ["text", "neighbour"]).to_list() == [{"text": "a b", "neighbour": "c d"}]


def test_neighbours_that_cannot_be_known_are_refused() -> None:
    corpus = Dataset.from_dict({"text": ["a b"], "document": ["d"]})
    with pytest.raises(InputError, match=r"needs the column 'neighbour'; .* give the columns document and position"):
        add_sources(corpus, ["text", "neighbour"])


def test_another_missing_source_is_refused() -> None:
    with pytest.raises(InputError, match=r"needs the column 'query'; the corpus has: text\."):
        add_sources(Dataset.from_dict({"text": ["a b"]}), ["text", "query"])


def test_every_source_is_tokenized_without_special_tokens() -> None:
    tokenizer = tiny_tokenizer()
    rows = tokenize(Dataset.from_dict({"text": ["abc d", "ef"], "neighbour": ["gh", "ij k"]}), tokenizer)
    assert sorted(rows.column_names) == ["length", "neighbour", "text"]
    assert tokenizer.convert_ids_to_tokens(rows[0]["text"].tolist()) == ["a", "##b", "##c", "d"]
    assert rows["length"][:].tolist() == [6, 5]


def test_rows_with_a_text_shorter_than_two_tokens_are_left_out() -> None:
    texts = {"text": ["abc", "a", "de", None, ""], "neighbour": ["f", "gh", "ij", "kl", "mn"]}
    rows = tokenize(Dataset.from_dict(texts), tiny_tokenizer())
    assert len(rows) == 1
    assert len(rows[0]["text"]) == 2


def test_no_row_may_be_left() -> None:
    assert len(tokenize(Dataset.from_dict({"text": ["a", "b", ""]}), tiny_tokenizer())) == 0
