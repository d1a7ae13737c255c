"""Word counts and weights against plain loops."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from tiny_pretraining import tiny_vocabulary, token_rows
from tiny_retriever import tiny_tokenizer

from hf_dense.pretraining import keywords as keywords_module
from hf_dense.pretraining.keywords import Keywords, spell
from hf_dense.pretraining.masking import Ints, word_index

VOCABULARY = tiny_vocabulary()
TEXTS = [row["text"].tolist() for row in token_rows(200, longest=30, seed=3)]


def words_of(text: list[int]) -> list[tuple[int, ...]]:
    """Whole words as tuples of tokens."""
    words: list[tuple[int, ...]] = []
    for token in text:
        if words and VOCABULARY.continues[token]:
            words[-1] += (token,)
        else:
            words.append((token,))
    return words


def padded(texts: list[list[int]]) -> tuple[Ints, Ints]:
    ids = np.full((len(texts), max(map(len, texts)) + 2), VOCABULARY.pad)
    for row, text in enumerate(texts):
        ids[row, 1 : len(text) + 1] = text
    maskable = ~VOCABULARY.special[ids]
    return ids, word_index(ids, maskable, VOCABULARY.continues)


OCCURRENCES = Counter(word for text in TEXTS for word in words_of(text))
PASSAGES = Counter(word for text in TEXTS for word in set(words_of(text)))
UNKNOWN = [VOCABULARY.size - 1] * 3  # a continuation that no text holds three times in a row


@pytest.mark.parametrize("kind", ["keywords:tfidf", "keywords:inverse_count"])
def test_weights_are_those_of_plain_counting(kind: str) -> None:
    keywords = Keywords.of([np.array(text, dtype=np.int32) for text in TEXTS], VOCABULARY)
    assert keywords.total == len(TEXTS)
    assert keywords.occurrences.sum() == sum(OCCURRENCES.values())
    texts = [*TEXTS[:20], UNKNOWN]
    weights = keywords.weigh(kind, *padded(texts))
    for row, text in enumerate(texts):
        words = words_of(text)
        if kind == "keywords:inverse_count":
            expected = [1 / (OCCURRENCES[word] or 1) for word in words]
        else:
            expected = [words.count(word) * math.log(len(TEXTS) / (PASSAGES[word] or 1)) for word in words]
        assert weights[row, : len(words)] == pytest.approx(expected)
        assert not weights[row, len(words) :].any()


def test_one_long_text_does_not_pad_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    ids = np.flatnonzero(~VOCABULARY.special).astype(np.int32)
    texts = [generator.choice(ids, size) for size in (*generator.integers(1, 30, size=300), 5000)]
    padded_sizes: list[int] = []

    def words_of(*given: Any) -> Any:
        found = plain(*given)
        padded_sizes.append(found[0].size)
        return found

    plain = keywords_module._words_of
    monkeypatch.setattr(keywords_module, "_words_of", words_of)
    whole, spelled = Keywords.of(texts, VOCABULARY), spell(texts, VOCABULARY, tiny_tokenizer(), set())
    monkeypatch.setattr(keywords_module, "_TOKENS", 2**14)
    padded_sizes.clear()
    parts = Keywords.of(texts, VOCABULARY)
    assert spell(texts, VOCABULARY, tiny_tokenizer(), set()) == spelled
    assert max(padded_sizes) <= 2**14
    assert parts.total == whole.total == 301
    for name in ("words", "occurrences", "passages"):
        assert (getattr(parts, name) == getattr(whole, name)).all()


def test_the_tokens_padded_at_once_are_bounded() -> None:
    texts = [np.zeros(5, np.int32)] * 1999 + [np.zeros(20_000, np.int32)]
    cut = list(keywords_module._cut(texts))
    assert sum(map(len, cut)) == 2000
    assert max(len(part) * max(map(len, part)) for part in cut) <= 2**20
    assert len(list(keywords_module._cut([np.zeros(512, np.int32)] * 2000))) == 1


@pytest.mark.parametrize("count", [1, 2, 3, 1000])
def test_words_are_found_where_halving_finds_them(count: int) -> None:
    generator = np.random.default_rng(count)
    words = np.unique(generator.integers(0, 2**64, size=count, dtype=np.uint64))
    none = np.zeros(len(words), dtype=np.int64)
    given = np.concatenate([words, words + np.uint64(1), generator.integers(0, 2**64, size=500, dtype=np.uint64)])
    given = np.concatenate([given, np.array([0, 2**64 - 1], dtype=np.uint64)])
    expected = np.searchsorted(words, given).clip(max=len(words) - 1)
    assert Keywords(words, none, none, 1).find(given).tolist() == expected.tolist()


def test_a_word_of_every_passage_can_still_be_drawn() -> None:
    texts = [np.array([5, 6 + row % 3], dtype=np.int32) for row in range(9)]
    weights = Keywords.of(texts, VOCABULARY).weigh("keywords:tfidf", *padded([texts[0].tolist()]))
    assert 0 < weights[0, 0] < weights[0, 1]
