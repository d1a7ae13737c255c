"""Word counts as a table that pre-training reads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from datasets import Dataset
from pyarrow import parquet
from tiny_retriever import spaced_tokenizer, tiny_tokenizer

from hf_dense.errors import InputError
from hf_dense.pretraining.keywords import Keywords
from hf_dense.pretraining.vocabulary import Vocabulary
from hf_dense.pretraining.word_counts import build_word_counts

TEXTS = ["ab cd ab", "cd ef", "gh ab"] * 900  # more than are counted at once


def test_words_are_spelled_and_counted(tmp_path: Path) -> None:
    build_word_counts(Dataset.from_dict({"text": TEXTS}), tiny_tokenizer(), tmp_path / "words.parquet")
    rows = parquet.read_table(tmp_path / "words.parquet").to_pylist()
    occurrences = Counter(word for text in TEXTS for word in text.split())
    passages = Counter(word for text in TEXTS for word in set(text.split()))
    assert {row["word"]: row["occurrences"] for row in rows} == occurrences
    assert {row["word"]: row["passages"] for row in rows} == passages


def test_the_table_is_what_counting_gives(tmp_path: Path) -> None:
    counted = build_word_counts(Dataset.from_dict({"text": TEXTS}), tiny_tokenizer(), tmp_path / "words.parquet")
    again = Keywords.load(tmp_path / "words.parquet", Vocabulary.of(tiny_tokenizer()))
    assert again.total == counted.total == len(TEXTS)
    for name in ("words", "occurrences", "passages"):
        assert getattr(again, name).tolist() == getattr(counted, name).tolist()


def test_another_tokenizers_words_are_refused(tmp_path: Path) -> None:
    build_word_counts(Dataset.from_dict({"text": TEXTS}), tiny_tokenizer(), tmp_path / "words.parquet")
    other = Vocabulary.of(spaced_tokenizer(TEXTS, "bytes"))
    with pytest.raises(InputError, match="were counted with another tokenizer"):
        Keywords.load(tmp_path / "words.parquet", other)


def test_no_table_and_no_words(tmp_path: Path) -> None:
    (tmp_path / "words.parquet").write_text("no table")
    with pytest.raises(InputError, match="is not a table of word counts; make one with hf-dense data keywords"):
        Keywords.load(tmp_path / "words.parquet", Vocabulary.of(tiny_tokenizer()))
    with pytest.raises(InputError, match="The corpus has no words to count"):
        build_word_counts(Dataset.from_dict({"text": [""]}), tiny_tokenizer(), tmp_path / "none.parquet")
    assert not (tmp_path / "none.parquet").exists()
