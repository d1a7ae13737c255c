"""Texts of the time before Unicode: Windows-1252, told from other encodings by the language that it gives words of."""

# ruff: noqa: RUF001

from __future__ import annotations

import re
from functools import cache
from typing import Final

from hf_dense.data.languages import Language, language_of

WINDOWS: Final = "cp1252"
_COMMON: Final = "äöüßé\xa0\xad‹›„“”‚‘’´·–—…•€™§°"  # which all Latin encodings of Windows, and ISO, have at one place
# By name of a language, those besides that it has and that stand for others in encodings of other languages.
_LETTERS: Final = {
    "dutch": "áàâçèêëïíîóôúû",
    "english": "áâçëíîóô",
    "french": "àâæçèêëîïñôœùûÿ",
    "german": "ëçôâ",
    "italian": "àçèìíîòóùú",
    "norwegian": "æøåèêóòô",
    "portuguese": "ªºáàâãçèêíóôõú",
    "spanish": "ªºáàçíñóú",
    "swedish": "åà",
}
_SIGNS: Final = "«»£©®±²³µ×½¼¾¿¡"  # which they have besides
# A sign between two letters, which is a letter of another encoding; a word without any letter of ASCII.
_BROKEN: Final = re.compile(rf"[^\W\d_][‹›„“”‚‘…•€™§°{_SIGNS}][^\W\d_]|\b[äöüßé]{{2,}}\b", re.IGNORECASE)
_IN_UTF8: Final = re.compile(rb"[\xc2\xc3][\x80-\xbf]|\xe2\x80")  # letters and quotes, of a text that was cut or joined
_UNTOLD: Final = Language("", "", "")


def windows_text(content: bytes) -> str | None:
    """What bytes that are no UTF-8 say in Windows-1252 (and Latin-1); None where they may be in another encoding.

    They are taken for that where they are letters and signs that all Latin encodings have at the same place, or of the
    language that they give words of, by six of its stop words; no sign stands among letters; and nothing is in UTF-8.

    >>> text = "Die Tür ist für uns zu groß, und das ist nicht gut, weil sie auf die Straße geht."
    >>> windows_text(text.encode("cp1252")) == text, windows_text(text.encode("cp850"))
    (True, None)
    """
    if _IN_UTF8.search(content):
        return None
    try:
        text = content.decode(WINDOWS)
    except UnicodeDecodeError:
        return None
    language = language_of(text.splitlines(), otherwise=_UNTOLD)
    return text if _known(language.name).issuperset(text) and not _BROKEN.search(text) else None


@cache
def _known(language: str) -> frozenset[str]:
    """The letters and signs of a language."""
    more = _LETTERS[language] + _SIGNS if language in _LETTERS else ""
    return frozenset([*"\t\n\v\f\r", *map(chr, range(32, 127)), *_COMMON, *_COMMON.upper(), *more, *more.upper()])
