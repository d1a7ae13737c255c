"""The other spans of a passage's document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from datasets import Dataset
from pyarrow import parquet

from hf_dense.data.contexts import CONTEXTS, add_contexts, document_contexts, write_contexts
from hf_dense.data.passages import pretoken_counter
from hf_dense.errors import InputError

COUNT = pretoken_counter()


def passages(count: int, sentences: int = 4) -> list[str]:
    return [" ".join(f"Passage {at} says sentence {number}." for number in range(sentences)) for at in range(count)]


def corpus(documents: dict[str, int]) -> Dataset:
    rows = [
        {"id": f"{name}#{at}", "text": f"In {name}. {text}", "document": name, "position": at}
        for name, count in documents.items()
        for at, text in enumerate(passages(count))
    ]
    return Dataset.from_list(rows[::-1])


def test_every_context_is_what_its_name_says() -> None:
    texts = passages(250)
    found = document_contexts(texts, "key", 24, COUNT)
    for at in range(250):
        assert found["neighbour"][at] == texts[at + 1 if at < 249 else 248]
        assert texts.index(found["near"][at]) in (at - 1, at + 1)
        assert 0 < abs(texts.index(found["random"][at]) - at) <= 100
        overlap = found["overlap"][at]
        assert COUNT([overlap])[0] <= 24
        joined = " ".join(texts)
        assert overlap in joined
        own, other = f"Passage {at} says", f"Passage {at + 1 if at < 249 else 248} says"
        assert overlap.startswith(own) if at < 249 else overlap.endswith("sentence 0.") or own in overlap
        assert other in overlap
        shared = overlap.count(own)
        assert 1 <= shared <= 2
    assert len({texts.index(text) - at for at, text in enumerate(found["random"])}) > 50


@pytest.mark.parametrize(
    ("texts", "length"),
    [
        (passages(5, sentences=1), 24),
        (["a b c d e f g h i j k l."] * 2 + [" ".join("mnopqrstuvwxyz") + "."] * 2, 8),
        ([f"{'x' * 40}{at}, {'y' * 40}{at}, {'z' * 40}{at}." for at in range(3)], 4),
        (["One. " + "very " * 60 + "long.", "very " * 60 + "long. Two."], 10),
        (["Wenige " * 3 + "Worte.", "语" * 30, "文" * 30], 5),
    ],
)
def test_an_overlap_leaves_its_passage_and_keeps_its_length(texts: list[str], length: int) -> None:
    def count(given: Sequence[str]) -> list[int]:
        return [sum(len(word) // 5 + 1 for word in text.split()) for text in given]

    for counter in (COUNT, count):
        for at, overlap in enumerate(document_contexts(texts, "key", length, counter)["overlap"]):
            assert 2 <= counter([overlap])[0] <= length
            assert overlap not in texts[at]
            words = overlap.split()
            assert words[-1 if at == len(texts) - 1 else 0] in texts[at]


def test_rows_come_back_in_order_with_their_other_columns() -> None:
    added = add_contexts(corpus({"b": 3, "a": 2, "single": 1}), length=50)
    assert added["id"][:] == ["a#0", "a#1", "b#0", "b#1", "b#2"]
    assert added.column_names == ["id", "text", "document", "position", *CONTEXTS]
    for row in added:
        for name in CONTEXTS[:2]:
            assert row[name].startswith(f"In {row['document']}.")
            assert row[name] != row["text"]


def test_contexts_do_not_depend_on_processes_or_other_documents() -> None:
    alone = add_contexts(corpus({"b": 3}), length=50)
    together = add_contexts(corpus({"a": 5, "b": 3, "c": 4}), length=50, processes=2)
    assert [row for row in together if row["document"] == "b"] == list(alone)
    assert (
        add_contexts(corpus({"b": 30}), length=50, seed=1)["random"][:]
        != (add_contexts(corpus({"b": 30}), length=50, seed=2)["random"][:])
    )


def test_passages_without_a_document_are_no_contexts_of_each_other() -> None:
    rows = {"text": ["a b", "c d", "e f", "g h"], "document": [None, "d", None, "d"], "position": [0, 0, 1, 1]}
    found = add_contexts(Dataset.from_dict(rows), length=8)
    assert found["text"][:] == ["c d", "g h"]
    with pytest.raises(InputError, match="No document has two passages"):
        add_contexts(Dataset.from_dict({**rows, "document": [None] * 4}), length=8)


def test_what_has_no_contexts_is_refused() -> None:
    with pytest.raises(InputError, match="need the corpus column 'document'; it has: text"):
        add_contexts(Dataset.from_dict({"text": ["a"]}))
    with pytest.raises(InputError, match="No document has two passages"):
        add_contexts(corpus({"a": 1, "b": 1}))


def test_a_corpus_with_contexts_is_published_form(tmp_path: Path) -> None:
    parquet.write_table(corpus({"a": 2, "b": 3}).data.table, tmp_path / "corpus.parquet")
    for name in ("out", "again"):
        write_contexts(str(tmp_path / "corpus.parquet"), tmp_path / name, length=30)
    files = [(tmp_path / name / "corpus" / "part-00000.parquet").read_bytes() for name in ("out", "again")]
    assert files[0] == files[1]
    rows = parquet.read_table(tmp_path / "out" / "corpus").to_pylist()
    assert {*CONTEXTS, "text"} <= set(rows[0])
    assert "| passages with contexts | 5 |" in (tmp_path / "out" / "README.md").read_text()
