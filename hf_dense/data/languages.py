"""In which language texts are written, of those that BM25 has stop words, and a stemmer, of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from bm25s import stopwords

_TEXTS, _LETTERS = 500, 1_000  # that are read: so many texts, and of each its beginning
_KINDS, _SHARE, _MARGIN = 6, 0.15, 1.5  # different stop words, their share of all words, and of English's


class Language(NamedTuple):
    """A language that BM25 knows.

    Args:
        name: as PyStemmer has it.
        code: of its stop words in bm25s.
        tag: as MTEB has it, with its script.
    """

    name: str
    code: str
    tag: str


ENGLISH: Final = Language("english", "en", "eng-Latn")
LANGUAGES: Final = {
    ENGLISH: stopwords.STOPWORDS_EN,
    Language("dutch", "nl", "nld-Latn"): stopwords.STOPWORDS_DUTCH,
    Language("french", "fr", "fra-Latn"): stopwords.STOPWORDS_FRENCH,
    Language("german", "de", "deu-Latn"): stopwords.STOPWORDS_GERMAN,
    Language("italian", "it", "ita-Latn"): stopwords.STOPWORDS_ITALIAN,
    Language("norwegian", "no", "nob-Latn"): stopwords.STOPWORDS_NORWEGIAN,
    Language("portuguese", "pt", "por-Latn"): stopwords.STOPWORDS_PORTUGUESE,
    Language("russian", "ru", "rus-Cyrl"): stopwords.STOPWORDS_RUSSIAN,
    Language("spanish", "es", "spa-Latn"): stopwords.STOPWORDS_SPANISH,
    Language("swedish", "sv", "swe-Latn"): stopwords.STOPWORDS_SWEDISH,
}
"""With their stop words; those that bm25s and MTEB's BM25 have both, and a stemmer for."""
_NUMBERED: Final = list(LANGUAGES)  # English first
_SPOKEN: Final = {  # by number, as tuples are slow to look up
    word: [number for number, language in enumerate(_NUMBERED) if word in LANGUAGES[language]]
    for word in set(chain.from_iterable(LANGUAGES.values()))
}


def language_of(texts: Sequence[str], otherwise: Language = ENGLISH) -> Language:
    """The language of most of the stop words in a sample of texts.

    `otherwise` where it is another one, or several, or is not told: six different stop words of the language must be
    there, which make three in twenty of all words, and half as many again as those of English, of which bm25s has
    fewer.

    >>> language_of(["The cat is on the table, and the dog is under it."] * 9).name
    'english'
    >>> language_of(["Die Katze liegt auf dem Tisch, und der Hund ist unter ihm."] * 9).name
    'german'
    """
    sample = (texts[at] for at in range(0, len(texts), max(1, len(texts) // _TEXTS)))
    words = Counter(word for text in sample for word in text[:_LETTERS].lower().split())
    kinds, found = [0] * len(_NUMBERED), [0] * len(_NUMBERED)
    for word, times in words.items():
        for number in _SPOKEN.get(word, ()):
            kinds[number] += 1
            found[number] += times
    best = max(range(len(found)), key=found.__getitem__)
    least = max(_SHARE * words.total(), _MARGIN * found[0] if best else 0)
    return _NUMBERED[best] if kinds[best] >= _KINDS and found[best] >= least else otherwise
