"""Passages are shown as they were cut, where an adaptation works with less of them, and never another's text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from datasets import Dataset

from hf_dense.search.index import Hit, update_index
from hf_dense.serving.answers import Answers, served_arms
from hf_dense.serving.passages import WholePassages, home_of

WHOLE = "Doors have locks. A lock keeps others out."


@pytest.fixture
def cut(adapted: Path) -> Path:
    """The adaptation, whose passages were longer by a sentence when they were cut."""
    rows = [{"_id": "p2", "title": "threading", "text": WHOLE}, {"_id": "p4", "title": "io", "text": "Other words."}]
    (adapted / "passages").mkdir()
    (adapted / "passages" / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return adapted


def test_whole_passages_are_found(cut: Path) -> None:
    first, second = Answers(served_arms(cut)).find("locks", "BM25")
    assert (first.id, first.title, first.text) == ("p2", "threading", WHOLE)
    assert second.text == "Waiting for threads & locks.", "one that was cut no further"


def test_passages_of_an_adaptation_that_was_replaced_are_read_again(cut: Path, corpus: Dataset) -> None:
    answers = Answers(served_arms(cut))
    assert answers.find("locks", "BM25")[0].text == WHOLE
    file = cut / "passages" / "corpus.jsonl"
    file.write_text(file.read_text().replace("Doors have locks.", "Doors have a bolt."))
    update_index(cut / "base", corpus.select([2, 4]), cut / "arms" / "base" / "index")
    assert [hit.text for hit in answers.find("locks", "BM25")] == ["Doors have a bolt. A lock keeps others out."]


def test_no_text_of_another_passage(cut: Path) -> None:
    hit = Hit(1.0, "p4", "io", "Files are read.")
    assert WholePassages(cut / "arms" / "base" / "index").of([hit]) == [hit]


def test_an_index_of_its_own_is_whole(retriever: Path) -> None:
    hit = Hit(1.0, "p2", "", "A lock keeps others out.")
    assert WholePassages(retriever / "index").of([hit]) == [hit]
    assert home_of(retriever / "index") == retriever


def test_the_index_of_the_retriever_is_whole_where_a_document_lost_a_sentence_since(cut: Path) -> None:
    hit = Hit(1.0, "p2", "", "A lock keeps others out.")
    assert WholePassages(cut / "arms" / "base" / "index").of([hit])[0].text == WHOLE
    assert WholePassages(cut / "retriever" / "index").of([hit]) == [hit]
