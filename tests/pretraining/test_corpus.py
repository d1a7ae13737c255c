"""From the passages of a corpus to rows of token ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from datasets import Dataset
from tiny_pretraining import write_corpus
from tiny_retriever import tiny_tokenizer

from hf_dense.data.corpus import load_passages, stream_passages
from hf_dense.errors import InputError
from hf_dense.modeling.bottleneck_declaration import View
from hf_dense.pretraining.corpus import add_sources, first_queries, hold_out, joined_columns, tokenize


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


def test_a_row_without_a_document_is_one_of_its_own() -> None:
    texts = [f"text {row}" for row in range(200)]
    corpus = Dataset.from_dict({"text": texts, "document": [None] * 200})
    named = Dataset.from_dict({"text": texts})
    train, held = hold_out(corpus, 0.2, seed=0)
    expected = hold_out(named, 0.2, seed=0)
    assert held is not None
    assert expected[1] is not None
    assert list(train["text"]) == list(expected[0]["text"])
    assert list(held["text"]) == list(expected[1]["text"])
    mixed = Dataset.from_dict({"text": texts[:6], "document": ["d", None, "d", None, "e", None]})
    assert list(add_sources(mixed, ["text"], siblings=True)["document"]) == [0, 1, 0, 2, 3, 4]
    counted = Dataset.from_dict({"text": texts[:3], "document": [1, None, 1]})
    assert list(add_sources(counted, ["text"], siblings=True)["document"]) == [0, 1, 0]


def test_nothing_is_held_out_at_zero(tmp_path: Path) -> None:
    corpus = read(tmp_path)
    train, held = hold_out(corpus, 0.0, seed=0)
    assert held is None
    assert len(train) == len(corpus)


def test_the_first_queries_of_a_passage_are_read(tmp_path: Path) -> None:
    place = str(write_corpus(tmp_path / "corpus.jsonl", passages=20))
    corpus, reads = load_passages(place), ["text", "queries"]
    assert first_queries(corpus, None, reads) is corpus
    few = first_queries(corpus, 2, reads)
    assert [row["queries"] for row in few] == [row["queries"][:2] for row in corpus]
    assert few.remove_columns("queries")[:] == corpus.remove_columns("queries")[:]
    assert [row["queries"] for row in first_queries(stream_passages(place), 2, reads)] == list(few["queries"])
    many = first_queries(corpus, 9, reads)
    assert many[:] == {name: corpus[:][name] for name in many.column_names}, "fewer than asked for are all of them"
    one = Dataset.from_dict({"text": ["a b"], "query": ["c d"]})
    assert first_queries(one, 1, reads) is one


def test_lists_and_texts_of_other_writers_of_parquet_are_read(tmp_path: Path) -> None:
    """Some have large lists and views of strings where pandas has lists and strings."""
    texts, queries = ["abc de f", "abc f"], [["abc", "de"], ["f f"]]
    table = pyarrow.table(
        {
            "text": pyarrow.array(texts, pyarrow.string_view()),
            "queries": pyarrow.array(queries, pyarrow.large_list(pyarrow.large_string())),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "corpus.parquet")
    plain = Dataset.from_dict({"text": texts, "queries": queries})
    read, wanted = (
        tokenize(add_sources(rows, ["text", "queries"]), tiny_tokenizer())
        for rows in (load_passages(str(tmp_path / "corpus.parquet")), plain)
    )
    assert read.with_format(None)[:] == wanted.with_format(None)[:]


def test_neighbours_are_built_from_document_and_position(tmp_path: Path) -> None:
    corpus = read(tmp_path, passages=20)
    rows = add_sources(corpus, ["text", "neighbour"])
    assert rows.column_names == ["text", "neighbour"]
    assert len(rows) == 20
    partner = {row["text"]: row["neighbour"] for row in rows}
    assert all(partner[partner[text]] == text for text in partner)
    document_of = dict(zip(corpus["text"], corpus["document"], strict=True))
    assert all(document_of[text] == document_of[neighbour] != text for text, neighbour in partner.items())


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


def test_a_title_is_as_short_as_it_may_be_where_it_stands_before_its_text() -> None:
    views = {"encoder": View(sources=("titled",)), "decoder": View(sources=("titled",))}
    texts = {"title": ["a", "", None, "b", ""], "text": ["cd", "ef", "gh", "i", "j"]}
    rows = tokenize(Dataset.from_dict(texts), tiny_tokenizer(), joined_columns(views))
    assert [len(row["title"]) for row in rows] == [1, 0, 0, 1]
    assert [len(row["text"]) for row in rows] == [2, 2, 2, 1]
    assert rows["length"][:].tolist() == [3, 2, 2, 2]


def test_what_is_read_alone_too_has_two_tokens_of_its_own() -> None:
    views = {"encoder": View(sources=("titled",)), "decoder": View(sources=("first_half",))}
    texts = {"title": ["a", "b"], "text": ["cd", "e"]}
    assert joined_columns(views) == ["title"]
    assert len(tokenize(Dataset.from_dict(texts), tiny_tokenizer(), joined_columns(views))) == 1
    assert joined_columns({"encoder": View(sources=("title", "text"))}) == []


def test_no_row_may_be_left() -> None:
    assert len(tokenize(Dataset.from_dict({"text": ["a", "b", ""]}), tiny_tokenizer())) == 0
