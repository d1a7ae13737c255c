"""Texts of the time before Unicode: Windows-1252, told from other encodings by the language that it gives words of."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from hf_dense.data.languages import Language, language_of

WINDOWS: Final = "cp1252"
# Beside ASCII, by name of a language. German and English have those alone that Windows-1250 has at the same place.
_LETTERS: Final = {
    "dutch": "áàâäçéèêëïíîóôöúûü",
    "english": "áâäçéëíîóôöü",
    "french": "àâæçéèêëîïñôöœùûüÿ",
    "german": "äöüßéëçôâ",
    "italian": "àçèéìíîòóùú",
    "norwegian": "æøåéèêóòôäöü",
    "portuguese": "ªºáàâãçéèêíóôõúü",
    "spanish": "ªºáàçéíñóúü",
    "swedish": "åäöéàü",
}
_SIGNS: Final = "\xa0\xad«»‹›„“”‚‘’´·–—…•€£§©®™°±²³µ×½¼¾¿¡"  # noqa: RUF001
_IN_WORDS: Final = "\xad’´·–—"  # noqa: RUF001  # the others between two letters are letters of another encoding
_BROKEN: Final = re.compile(rf"[^\W\d_][{''.join(set(_SIGNS) - set(_IN_WORDS) - {chr(0xA0)})}][^\W\d_]")
_UNTOLD: Final = Language("", "", "")


def windows_text(content: bytes) -> str | None:
    """What bytes that are no UTF-8 say in Windows-1252 (and Latin-1); None where they may be in another encoding.

    They are taken for that where the words are of a language that is written so, by six of its stop words at the least,
    and have no letter that this language lacks, nor a sign among their letters.

    >>> text = "Die Tür ist für uns zu groß, und das ist nicht gut, weil sie auf die Straße geht."
    >>> windows_text(text.encode("cp1252")) == text, windows_text(text.encode("cp850"))
    (True, None)
    """
    try:
        text = content.decode(WINDOWS)
    except UnicodeDecodeError:
        return None
    language = language_of(text.splitlines(), otherwise=_UNTOLD)
    known = _known(language.name)
    return text if known and known.issuperset(text) and not _BROKEN.search(text) else None


@cache
def _known(language: str) -> frozenset[str]:
    """The letters and signs of a language; none of one that is not written in Windows-1252."""
    letters = _LETTERS.get(language, "")
    ascii_ = [*"\t\n\v\f\r", *map(chr, range(32, 127))]
    return frozenset([*ascii_, *_SIGNS, *letters, *letters.upper()]) if letters else frozenset()
