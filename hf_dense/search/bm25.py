"""BM25: a lexical index of passages, by the stems of their language; pairs of letters where no spaces are."""

from __future__ import annotations

import json
import logging
import os
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import bm25s
import numpy as np
import regex  # type: ignore[import-untyped]
import Stemmer

from hf_dense.data.languages import ENGLISH, LANGUAGES, Language, language_of
from hf_dense.data.passages import UNSPACED
from hf_dense.search.dense import Floats, Indices
from hf_dense.storage.arrays import check_array
from hf_dense.storage.files import write_text

logging.getLogger("bm25s").setLevel(logging.WARNING)  # on the level that it sets itself it says each of its steps

RUN: Final = regex.compile(rf"[{UNSPACED}\u30fc]+")  # of letters, with the mark of long vowels
_MARK: Final = regex.compile(r"\p{M}")
WORD: Final = regex.compile(r"[\p{L}\p{N}_][\p{L}\p{N}\p{M}_]*")  # with the signs of vowels in it
_LANGUAGE: Final = "language.json"  # beside what bm25s writes


class LexicalIndex:
    """BM25 over texts, its index on disk and mapped into memory.

    Attributes:
        size: how many texts.
        language: of the texts, whose stop words are left out, and whose stems are compared.
    """

    def __init__(self, retriever: bm25s.BM25, size: int, language: Language) -> None:
        self.retriever = retriever
        self.size = size
        self.language = language

    @classmethod
    def build(cls, texts: Iterable[str], folder: Path) -> LexicalIndex:
        """Index texts, in `folder`."""
        read = list(map(parted, texts))
        language = language_of(read)
        tokens = _tokenize(read, language)
        if not tokens.vocab:  # no text has a word, which bm25s cannot index: each has one that nobody asks for
            tokens = tokens._replace(ids=[[0]] * len(tokens.ids), vocab={"": 0})
        retriever = bm25s.BM25()
        retriever.index(tokens, show_progress=False)
        retriever.save(folder, show_progress=False)
        for array in Path(folder).glob("*.npy"):
            check_array(array)
        write_text(Path(folder) / _LANGUAGE, json.dumps(language.name))
        return cls.load(folder)

    @classmethod
    def load(cls, folder: Path) -> LexicalIndex:
        """Open what `build` wrote."""
        retriever = bm25s.BM25.load(folder, mmap=True)
        name = json.loads((Path(folder) / _LANGUAGE).read_text(encoding="utf-8"))
        language = next(known for known in LANGUAGES if known.name == name)
        return cls(retriever, int(retriever.scores["num_docs"]), language)

    def search(self, queries: list[str], depth: int) -> tuple[Floats, Indices]:
        """(queries, depth) scores of the best texts, best first, and their indices."""
        words, depth = words_of(queries, self.language), min(depth, self.size)
        threads = os.cpu_count() or 1
        indices, scores = self.retriever.retrieve(words, k=depth, show_progress=False, n_threads=threads)
        return scores, indices

    def find(self, queries: Sequence[str], depth: int) -> tuple[Floats, Indices]:
        """As `search`, with -1 in place of texts that share no word with the query."""
        scores, indices = self.search(list(queries), depth)
        return scores, np.where(scores > 0, indices, -1)

    def scores(self, query: str, indices: Indices) -> Floats:
        """(indices,) scores of some texts, 0 where they share no word with the query."""
        (words,) = words_of([query], self.language)
        found: Floats = self.retriever.get_scores(words)[indices] if words else np.zeros(len(indices), np.float32)
        return found


def composed(text: str) -> str:
    """A text whose letters and accents are one character each, and words whole, as people type them.

    Files of macOS have accents apart; soft hyphens say where a line may end in a word.

    >>> len("u\u0308ber"), len(composed("u\u0308ber"))
    (5, 4)
    """
    return unicodedata.normalize("NFC", text).replace("\u00ad", "")


def spelt(text: str) -> str:
    """A text whose words with marks in them are the numbers of their signs, as bm25s takes marks for ends of words.

    The vowels of Hindi, Bengali or Tamil are such marks, those of vocalised Arabic, and accents that no letter has.

    >>> spelt("साल 2"), spelt("über")
    ('2360_2366_2354 2', 'über')
    """
    if not _MARK.search(text):
        return text
    words: str = WORD.sub(lambda word: _numbers(word.group()) if _MARK.search(word.group()) else word.group(), text)
    return words


def _numbers(word: str) -> str:
    return "_".join(str(ord(sign)) for sign in word.lower())


def parted(text: str) -> str:
    """A composed text, of scripts without spaces (Chinese, Japanese, Thai, ...) pairs of letters in place of the words.

    As Lucene's analyser of these languages reads them; else a sentence would be one word, which no question has. Words
    with marks are `spelt`.

    >>> parted("u\u0308ber 退货政策"), parted("iPhone手机")
    ('über  退货 货政 政策 ', 'iPhone 手机 ')
    """
    return spelt(RUN.sub(_pairs, composed(text)))


def _pairs(run: regex.Match[str]) -> str:
    letters = [sign for sign in run.group() if sign.isalpha()]  # bm25s takes marks of vowels for ends of words
    return f" {' '.join(map(''.join, pairwise(letters)))} "


def words_of(queries: Sequence[str], language: Language = ENGLISH) -> list[list[str]]:
    """The words of queries as an index of a language knows them: stems, without stop words."""
    words: list[list[str]] = _tokenize(list(map(parted, queries)), language, return_ids=False)
    return words


def _tokenize(texts: list[str], language: Language, **options: Any) -> Any:
    """What bm25s makes of texts, which are `parted`."""
    stemmer = Stemmer.Stemmer(language.name)
    return bm25s.tokenize(texts, stopwords=language.code, stemmer=stemmer, show_progress=False, **options)
