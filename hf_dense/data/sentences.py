"""Sentences of a text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hf_dense.data.languages import Language

_UNSPACED: Final = ("。", "！", "？", "｡")  # noqa: RUF001  # stops that no space follows


def split_sentences(text: str, language: Language | None = None) -> list[str]:
    """Sentences of one paragraph, stripped, none empty; dotted names (`binascii.Error`) stay whole.

    Abbreviations are those of the text's language (see `language_of`); Chinese and Japanese stops need no space behind
    them.

    Args:
        text: the paragraph.
        language: of the texts around it, for one that is too short to tell; English where none is given.

    >>> split_sentences("Raises binascii.Error, e.g. for odd padding. See b64encode.")
    ['Raises binascii.Error, e.g. for odd padding.', 'See b64encode.']
    >>> split_sentences("可以退货。")
    ['可以退货。']
    """
    from sentencex import segment  # here, so that who splits no sentences can do without it, and without bm25s

    from hf_dense.data.languages import ENGLISH, language_of

    sentences: list[str] = []
    for piece in segment(language_of([text], language or ENGLISH).code, text):
        if sentences and not sentences[-1][-1].isspace() and not sentences[-1].endswith(_UNSPACED):
            sentences[-1] += piece  # the segmenter split inside a word
        else:
            sentences.append(piece)
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def join_sentences(sentences: Iterable[str]) -> str:
    """Sentences as one text, with a space between them but behind stops that none follows.

    >>> join_sentences(["See below.", "可以退货。", "三天之内。"])
    'See below. 可以退货。三天之内。'
    """
    spaced = (sentence if sentence.endswith(_UNSPACED) else f"{sentence} " for sentence in sentences)
    return "".join(spaced).rstrip()
