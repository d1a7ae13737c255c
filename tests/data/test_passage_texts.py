"""Texts that are read when they are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_retriever import write_dataset

from hf_dense.data.collections import load_corpus
from hf_dense.data.passage_texts import PassageTexts


def test_texts_are_those_of_a_list(tmp_path: Path) -> None:
    corpus = load_corpus(write_dataset(tmp_path / "beir", passages=300))
    texts = PassageTexts(corpus)
    expected = [f"{row['title']} {row['text']}".strip() for row in corpus]
    assert list(texts) == texts[:] == expected
    assert len(texts) == 300
    assert [texts[0], texts[299], texts[-1]] == [expected[0], expected[299], expected[-1]]
    assert texts[290:400] == expected[290:]
    assert texts[np.array([7, 3])] == texts[[7, 3]] == [expected[7], texts[np.int64(3)]] == [expected[7], expected[3]]
    assert list(PassageTexts(corpus.select_columns(["text"]))) == [row["text"].strip() for row in corpus]
    with pytest.raises(IndexError):
        texts[300]
