"""Sentences as queries: one of a passage asks for the passage that it is taken out of (Inverse Cloze Task)."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

import numpy as np
import regex  # type: ignore[import-untyped]
from datasets import Dataset
from tqdm.auto import tqdm

from hf_dense.data.languages import ENGLISH, Language, language_of
from hf_dense.data.passages import MIN_WORDS, UNSPACED, count_words, words_as_typed
from hf_dense.data.python_docs.prose import letter_share
from hf_dense.data.queries.openings import is_dependent
from hf_dense.data.queries.passages import Document, Query
from hf_dense.data.sentences import join_sentences, split_sentences

_WORD: Final = regex.compile(rf"[[\p{{L}}\p{{M}}]--[{UNSPACED}]]{{3,}}", regex.VERSION1)
_PAIR: Final = regex.compile(rf"[\p{{L}}&&[{UNSPACED}]]\p{{M}}*[\p{{L}}&&[{UNSPACED}]]", regex.VERSION1)
_LETTERS: Final = 0.75  # share of letters, below which a sentence is code or a row of a table
_FEWEST, _MOST = 5, 32  # words of a query
_RARE: Final = 0.001  # share of the passages that a rare word stands in at most
_RARE_ANYWAY: Final = 10  # passages that it may stand in, however small the corpus is
_TWICE: Final = 2  # passages that it stands in at least: what stands in one is often misspelt
_SAMPLE: Final = 500  # texts that tell the language
_ENDED: Final = regex.compile(r"[\p{SB=ST}\p{SB=AT}][\p{Pe}\p{Pf}\"']*$")


@dataclass(frozen=True)
class Counted:
    """What stands in how many passages of a corpus.

    Args:
        passages: how many there are.
        words: in how many each word of three letters and more stands, whatever its case (see `_words`).
        repeated: hashes of the sentences that stand in several.
        language: of most of its texts.
    """

    passages: int
    words: Mapping[str, int]
    repeated: Set[int]
    language: Language = ENGLISH


class SentenceQueries:
    """Makes a query of a sentence of each passage: one that holds a rare word, taken out of the passage.

    Source: Lee et al., 2019, section 4. Deviations: the sentence is always taken out (there in 90 % of the passages);
    it is drawn from those that stand in no other passage, that hold a word that few passages have, and that read by
    themselves.

    Args:
        counted: what the corpus holds, see `count_corpus`.
        seed: of the draws.
    """

    def __init__(self, counted: Counted, seed: int) -> None:
        self.counted = counted
        self.most = max(_RARE_ANYWAY, int(counted.passages * _RARE))
        self.seed = seed

    def make(self, document: Document) -> list[Query]:
        """A query of each passage that was chosen, where one of its sentences will do."""
        made = []
        for at in document.left:
            if document.chosen[at] and (found := self._sentence(document, at)):
                sentence, rest = found
                document.texts[at] = rest
                made.append(Query("sentences", sentence.rstrip(".。।"), at, {at: 1}))
        return made

    def _sentence(self, document: Document, at: int) -> tuple[str, str] | None:
        """A sentence of a passage, and the passage without it."""
        text = document.texts[at]
        language = language_of([text], self.counted.language)
        sentences = split_sentences(text, language)
        order = list(range(len(sentences)))
        random.Random(f"{self.seed}:{document.ids[at]}").shuffle(order)
        for place in order:
            rest = join_sentences([*sentences[:place], *sentences[place + 1 :]])
            alone = sum(sentences[place] in text for text in document.texts) == 1
            if (
                alone
                and hash(sentences[place]) not in self.counted.repeated
                and count_words(rest) >= MIN_WORDS
                and sentences[place] not in rest
                and self._asks(sentences[place], language)
            ):
                return sentences[place], rest
        return None

    def _asks(self, sentence: str, language: Language) -> bool:
        return (
            _FEWEST <= len(words_as_typed(sentence)) <= _MOST
            and letter_share(sentence) >= _LETTERS
            and bool(_ENDED.search(sentence))
            and not is_dependent(sentence, language)
            and any(_TWICE <= self.counted.words.get(word, 0) <= self.most for word in _words(sentence))
        )


def count_corpus(corpus: Dataset) -> Counted:
    """Count the words and the sentences of a corpus."""
    words, hashes = Counter[str](), array("q")
    texts = corpus.select_columns(["text"])
    sample = texts.select(range(0, len(texts), max(1, len(texts) // _SAMPLE)))
    language = language_of([text or "" for text in sample["text"]])
    with tqdm(total=len(corpus), desc="Counting words", unit=" passages") as bar:
        for batch in texts.iter(1_000):
            for text in batch["text"]:
                words.update(_words(text or ""))
                hashes.extend(
                    {hash(sentence) for sentence in split_sentences(" ".join((text or "").split()), language)}
                )
            bar.update(len(batch["text"]))
    found, counts = np.unique(np.frombuffer(hashes, dtype=np.int64), return_counts=True)
    return Counted(len(corpus), words, frozenset(found[counts > 1].tolist()), language)


def _words(text: str) -> set[str]:
    """The words of three letters and more; of scripts without spaces between words, all pairs of letters."""
    return {word.casefold() for word in (*_WORD.findall(text), *_PAIR.findall(text, overlapped=True))}
