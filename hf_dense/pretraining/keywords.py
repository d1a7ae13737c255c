"""How telling each word is, counted over the corpus (MASTER's keyword masks)."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet
from transformers import PreTrainedTokenizerBase

from hf_dense.errors import InputError
from hf_dense.pretraining.masking import Bits, Ints, word_hashes, word_index
from hf_dense.pretraining.vocabulary import Vocabulary
from hf_dense.storage.files import replaced_file

TABLE: Final = "word_counts.parquet"  # in a directory of word counts

Floats = NDArray[np.float64]
_ROWS = 2000  # texts counted at once
_TOKENS = 2**20  # of them, padded to the longest
_PARTS = 64  # counts joined at once


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
        """Count the words of a corpus of token ids (one array per passage, no special tokens), in one pass."""
        parts: list[Keywords] = []
        for part in (some for rows in batched(texts, _ROWS) for some in _cut(rows)):
            parts.append(cls(*_count(part, vocabulary), len(part)))
            if len(parts) == _PARTS:
                parts = [cls.joined(parts)]
        return cls.joined(parts)

    @classmethod
    def joined(cls, parts: Sequence[Keywords]) -> Keywords:
        """The counts of several corpora together."""
        words, inverse = np.unique(
            np.concatenate([np.empty(0, np.uint64), *(part.words for part in parts)]), return_inverse=True
        )
        occurrences, passages = (
            np.bincount(inverse, weights=np.concatenate([np.empty(0), *columns]), minlength=len(words)).astype(np.int64)
            for columns in ([part.occurrences for part in parts], [part.passages for part in parts])
        )
        return cls(words, occurrences, passages, sum(part.total for part in parts))

    def save(self, path: str | os.PathLike[str], spelled: Mapping[int, str], vocabulary: Vocabulary) -> None:
        """Write a Parquet table: `word`, `hash`, `occurrences`, `passages`; complete or not at all.

        Args:
            spelled: the words by their hashes.
            vocabulary: of the tokenizer whose tokens make up the words.
        """
        columns = {
            "word": [spelled[int(word)] for word in self.words],
            "hash": self.words,
            "occurrences": self.occurrences,
            "passages": self.passages,
        }
        notes = {"total": str(self.total), "vocabulary": _fingerprint(vocabulary)}
        with replaced_file(path) as partial:
            parquet.write_table(pa.table(columns).replace_schema_metadata(notes), partial)

    @classmethod
    def load(cls, path: str | os.PathLike[str], vocabulary: Vocabulary) -> Keywords:
        """Read what `save` wrote.

        Args:
            path: of the table, or the directory of word counts that holds it.
            vocabulary: of the tokenizer that pre-training reads with.

        Raises:
            InputError: there is no such table, or it was counted with another tokenizer.
        """
        try:
            table = parquet.read_table(table_of(path))
            notes = table.schema.metadata or {}
            total = int(notes[b"total"])
        except (OSError, pa.ArrowException, KeyError) as error:
            raise InputError(f"{path} is not a table of word counts; make one with hf-dense data keywords.") from error
        if notes.get(b"vocabulary") != _fingerprint(vocabulary).encode():
            raise InputError(f"The words of {path} were counted with another tokenizer; count them with this one.")
        words, occurrences, passages = (table.column(name).to_numpy() for name in ("hash", "occurrences", "passages"))
        return cls(words, occurrences, passages, total)

    @cached_property
    def _parts(self) -> tuple[np.uint64, NDArray[np.int32]]:
        """The words cut into about as many parts as there are, by their first bits: by how many bits to shift a hash
        for the number of its part, and (parts,) where each begins."""
        bits = max(len(self.words).bit_length() - 1, 1)
        shift = np.uint64(64 - bits)
        counts = np.bincount((self.words >> shift).astype(np.int64), minlength=1 << bits)
        return shift, (counts.cumsum() - counts).astype(np.int32)

    def find(self, hashes: Bits) -> Ints:
        """(words,) the first row whose word is not below a hash, or the last row.

        Hashes are even, so that a part holds a word or two: much faster than halving millions of words.
        """
        shift, starts = self._parts
        at: Ints = np.minimum(starts[hashes >> shift], len(self.words) - 1).astype(np.int64)
        late = np.arange(len(hashes))
        while len(late):
            late = late[(self.words[at[late]] < hashes[late]) & (at[late] < len(self.words) - 1)]
            at[late] += 1
        return at

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
        at = self.find(hashes.reshape(-1)).reshape(hashes.shape)
        known = self.words[at] == hashes
        exists = np.arange(hashes.shape[1]) <= word.max(axis=1, keepdims=True)
        if kind == "keywords:inverse_count":
            return np.where(exists, 1 / np.where(known, self.occurrences[at], 1), 0.0)
        rarity = np.log(self.total / np.where(known, self.passages[at], 1)).clip(min=_LEAST)
        return np.where(exists, _repetitions(hashes, exists) * rarity, 0.0)


def table_of(path: str | os.PathLike[str]) -> Path:
    """The table of word counts in a directory of them; or what is named, where that is no directory."""
    place = Path(path)
    return place / TABLE if place.is_dir() else place


def batched(texts: Iterable[NDArray[np.int32]], size: int) -> Iterator[list[NDArray[np.int32]]]:
    """Consecutive texts, so many at a time."""
    iterator = iter(texts)
    while part := list(islice(iterator, size)):
        yield part


def _cut(texts: Sequence[NDArray[np.int32]]) -> Iterator[Sequence[NDArray[np.int32]]]:
    """Consecutive texts, as many at a time as are padded to no more than `_TOKENS`."""
    size = max(1, _TOKENS // max(1, *map(len, texts)))
    return (texts[at : at + size] for at in range(0, len(texts), size))


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


def spell(
    texts: Sequence[NDArray[np.int32]], vocabulary: Vocabulary, tokenizer: PreTrainedTokenizerBase, known: Set[int]
) -> dict[int, str]:
    """The words of some texts by their hashes, those that are not `known`."""
    found: dict[int, str] = {}
    for ids, word, hashes in (_words_of(part, vocabulary) for part in _cut(texts)):
        for row in range(len(ids)):
            for at, code in enumerate(hashes[row, : int(word[row].max(initial=-1)) + 1].tolist()):
                if code not in known and code not in found:
                    found[code] = str(tokenizer.decode(ids[row][word[row] == at])).strip()
    return found


def _fingerprint(vocabulary: Vocabulary) -> str:
    """What tells vocabularies apart, as far as words go."""
    digest = zlib.crc32(vocabulary.continues.tobytes() + vocabulary.special.tobytes())
    return f"{vocabulary.size}-{digest:08x}"


def _words_of(texts: Sequence[NDArray[np.int32]], vocabulary: Vocabulary) -> tuple[Ints, Ints, Bits]:
    """Padded ids, word of each token (both (texts, length)), and the hash of each word (texts, words)."""
    length = max(len(text) for text in texts)
    ids = np.full((len(texts), length), vocabulary.pad, dtype=np.int64)
    present = np.arange(length) < np.array([len(text) for text in texts])[:, None]
    ids[present] = np.concatenate(texts)
    word = word_index(ids, present & ~vocabulary.special[ids], vocabulary.continues)
    return ids, word, word_hashes(ids, word)


def _count(texts: Sequence[NDArray[np.int32]], vocabulary: Vocabulary) -> tuple[Bits, Ints, Ints]:
    """The distinct words of some texts, their occurrences, and the number of texts that hold them."""
    _, word, hashes = _words_of(texts, vocabulary)
    exists = np.arange(hashes.shape[1]) <= word.max(axis=1, keepdims=True)
    words, inverse = np.unique(hashes[exists], return_inverse=True)
    rows = np.nonzero(exists)[0]
    holding = np.unique(np.stack([inverse, rows]), axis=1)[0]
    return words, np.bincount(inverse, minlength=len(words)), np.bincount(holding, minlength=len(words))
