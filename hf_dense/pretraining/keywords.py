"""How telling each word is, counted over the corpus (MASTER's keyword masks)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hf_dense.pretraining.masking import Bits, Ints, word_hashes, word_index
from hf_dense.pretraining.vocabulary import Vocabulary

Floats = NDArray[np.float64]
_ROWS = 2000  # texts counted at once


@dataclass(frozen=True)
class Keywords:
    """Counts of whole words.

    Args:
        words: (words,) sorted hashes of the words (`word_hashes`).
        occurrences: (words,) how often each occurs in the corpus.
        passages: (words,) in how many passages.
        total: number of passages.
    """

    words: Bits
    occurrences: Ints
    passages: Ints
    total: int

    @classmethod
    def of(cls, texts: Iterable[NDArray[np.int32]], vocabulary: Vocabulary) -> Keywords:
        """Count the words of a corpus of token ids (one array per passage, no special tokens)."""
        rows = list(texts)
        parts = [_count(rows[start : start + _ROWS], vocabulary) for start in range(0, len(rows), _ROWS)]
        words, inverse = np.unique(np.concatenate([words for words, _, _ in parts]), return_inverse=True)
        occurrences, passages = (
            np.bincount(inverse, weights=np.concatenate(column), minlength=len(words)).astype(np.int64)
            for column in list(zip(*parts, strict=True))[1:]
        )
        return cls(words, occurrences, passages, len(rows))

    def weigh(self, kind: str, ids: Ints, word: Ints) -> Floats:
        """The weight of every word of a batch.

        Args:
            kind: `keywords:tfidf`: occurrences in the text times log(passages / passages with the word); or
                `keywords:inverse_count`: one over occurrences in the corpus. An unknown word counts as seen once.
            ids: (rows, length) token ids.
            word: (rows, length) from `word_index`.

        Returns:
            (rows, words), positive for words, 0 where a row has fewer.
        """
        hashes = word_hashes(ids, word)
        at = np.searchsorted(self.words, hashes).clip(max=len(self.words) - 1)
        known = self.words[at] == hashes
        exists = np.arange(hashes.shape[1]) <= word.max(axis=1, keepdims=True)
        if kind == "keywords:inverse_count":
            return np.where(exists, 1 / np.where(known, self.occurrences[at], 1), 0.0)
        rarity = np.log(self.total / np.where(known, self.passages[at], 1)).clip(min=_LEAST)
        return np.where(exists, _repetitions(hashes, exists) * rarity, 0.0)


_LEAST = 1e-6  # a word of every passage still has some weight


def _repetitions(hashes: Bits, exists: NDArray[np.bool_]) -> Ints:
    """(rows, words) how often the word occurs in its row."""
    rows = np.broadcast_to(np.arange(len(hashes))[:, None], hashes.shape)
    order = np.lexsort((hashes.reshape(-1), rows.reshape(-1), ~exists.reshape(-1)))
    row, word = rows.reshape(-1)[order], hashes.reshape(-1)[order]
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = (row[1:] != row[:-1]) | (word[1:] != word[:-1])
    group = starts.cumsum() - 1
    counts = np.empty(len(order), dtype=np.int64)
    counts[order] = np.bincount(group)[group]
    return counts.reshape(hashes.shape)


def _count(texts: list[NDArray[np.int32]], vocabulary: Vocabulary) -> tuple[Bits, Ints, Ints]:
    """The distinct words of some texts, their occurrences, and the number of texts that hold them."""
    length = max(len(text) for text in texts)
    ids = np.full((len(texts), length), vocabulary.pad, dtype=np.int64)
    present = np.arange(length) < np.array([len(text) for text in texts])[:, None]
    ids[present] = np.concatenate(texts)
    word = word_index(ids, present & ~vocabulary.special[ids], vocabulary.continues)
    hashes = word_hashes(ids, word)
    exists = np.arange(hashes.shape[1]) <= word.max(axis=1, keepdims=True)
    words, inverse = np.unique(hashes[exists], return_inverse=True)
    rows = np.nonzero(exists)[0]
    holding = np.unique(np.stack([inverse, rows]), axis=1)[0]
    return words, np.bincount(inverse, minlength=len(words)), np.bincount(holding, minlength=len(words))
