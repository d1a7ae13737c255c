"""Sentences of a text."""

from __future__ import annotations


def split_sentences(text: str) -> list[str]:
    """Sentences of one English paragraph, stripped, none empty; dotted names (`binascii.Error`) stay whole.

    >>> split_sentences("Raises binascii.Error, e.g. for odd padding. See b64encode.")
    ['Raises binascii.Error, e.g. for odd padding.', 'See b64encode.']
    """
    from sentencex import segment  # here, so that who splits no sentences can do without it

    sentences: list[str] = []
    for piece in segment("en", text):
        if sentences and not sentences[-1][-1].isspace():
            sentences[-1] += piece  # the segmenter split inside a word
        else:
            sentences.append(piece)
    return [stripped for sentence in sentences if (stripped := sentence.strip())]
