"""Texts of the time before Unicode: Windows-1252, told from other encodings by the language that it gives words of."""

# ruff: noqa: RUF001

from __future__ import annotations

import re
from typing import Final

from hf_dense.data.languages import Language, language_of

WINDOWS: Final = "cp1252"
_COMMON: Final = "äöüßé°"  # which all Latin encodings of Windows, and ISO, have at the same place
# By name of a language, those besides that it has and that stand for others in encodings of other languages.
_LETTERS: Final = {
    "dutch": "áàâçèêëïíîóôúû",
    "english": "áâçëíîóôúý",
    "french": "àâæçèêëîïñôœùûÿ",
    "german": "àâçëîô",
    "italian": "àçèìíîòóùú",
    "norwegian": "æøåèêóòô",
    "portuguese": "ªºáàâãçèêíóôõú",
    "spanish": "ªºáàçíñóú",
    "swedish": "åà",
}
_BESIDE_WORDS: Final = "‹›„“”‘…•€™§«»£©®±²³µ×½¼¾¿¡"
_SIGNS: Final = f"{_BESIDE_WORDS}\xa0\xad’´·–—"
# What is a letter of another encoding: a sign between two, a capital behind a small one, a word without one of ASCII.
_BROKEN: Final = re.compile(rf"[^\W\d_][{_BESIDE_WORDS}][^\W\d_]|[a-zß-ÿ][À-Þ]|\bß")
_ALONE: Final = re.compile(r"\b[À-ÿ]+\b")
_ACCENTED: Final = re.compile("[À-ÿ]")
_IN_UTF8: Final = re.compile(rb"[\xc2\xc3][\x80-\xbf]|\xe2\x80")  # letters and quotes, of a text that was cut or joined
_UNTOLD: Final = Language("", "", "")


def windows_text(content: bytes) -> str | None:
    """What bytes that are no UTF-8 say in Windows-1252 (and Latin-1); None where they may be in another encoding.

    They are taken for that where they are letters that all Latin encodings have at the same place; or letters and signs
    of the language that they give words of, by six of its stop words, and the signs stand where signs do.

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
    language = language_of(text.splitlines(), otherwise=_UNTOLD).name
    if language in ("", "english") and _ALONE.search(text):
        return None
    is_told = language in _LETTERS and (language == "english" or _ACCENTED.search(text))  # else signs may be letters
    known = _COMMON + _LETTERS[language] + _SIGNS if is_told else _COMMON
    others = {letter for letter in set(text) if not letter.isascii() or not (letter.isprintable() or letter.isspace())}
    return text if others <= {*known, *known.upper()} and not _BROKEN.search(text) else None
