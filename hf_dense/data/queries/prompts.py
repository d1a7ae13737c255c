"""What a language model is asked for, and the query in what it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from hf_dense.errors import InputError

# Short, and what is asked stands last: small models repeat long instructions, or forget those before a text.
_PROMPT: Final = "Text: {{text}}\n\nWrite {}. Only write the {}."
_ASKED: Final = {
    "question": 'one search query, as a question, that this text about "{title}" answers',
    "keywords": 'two to six keywords that one would type into a search engine to find this text about "{title}"',
    "title": 'a short title for this part of "{title}"',
}
STYLES: Final = {style: _PROMPT.format(asked, style) for style, asked in _ASKED.items()}
UNTITLED: Final = "its subject"  # what the styles call a text without a title
LONGEST: Final = {"keywords": 12, "title": 16}  # words and punctuation marks; what is longer is not what was asked for
_THOUGHTS: Final = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)
_MARKER: Final = re.compile(r"^(?:[-*•#>]+|\d+[.)])\s+")
_LABEL: Final = re.compile(r"^(?:search )?(?:question|quer(?:y|ies)|keywords?|title)\s*:\s*", re.IGNORECASE)
# What speaks of the text, or to its reader, is no query for those who have not seen it.
_ABOUT_TEXT: Final = re.compile(
    r"\b(?:this|the (?:given|above|provided)) (?:text|passage|article|question|query)\b|\bthe passage\b"
    r"|^the text\b|^text:|\b(?:of|in|by|from|to) the text\W*$|\bas an ai\b|^(?:i'm|i am) (?:ready|sorry)\b",
    re.IGNORECASE,
)
_QUOTES: Final = "\"'`*“”„«»\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK} "


def prompts(styles: Sequence[str], template: str | None) -> Mapping[str, str]:
    """The prompt of each style, in one order however they are named: the first of equal queries is the one that stays.

    One's own prompt in their place is of the style "".

    Raises:
        InputError: an unknown style, or none.
    """
    if template is not None:
        return {"": template}
    unknown = [style for style in styles if style not in STYLES]
    if unknown or not styles:
        raise InputError(f"The style is {unknown[0] if unknown else 'none'!r}; allowed: {', '.join(STYLES)}.")
    return {style: prompt for style, prompt in STYLES.items() if style in styles}


def query_of(answer: str) -> str:
    r"""The query in what a model wrote: its first line that says something, without marks, labels and quotes.

    "" where there is none, or it speaks of the text that the model was shown.

    >>> query_of('<think>Hm.</think>Here is a question:\n\n1. **"Who wrote it?"**\nIt asks who.')
    'Who wrote it?'
    >>> query_of("Keywords: red, green")
    'red, green'
    """
    for line in _THOUGHTS.sub("", answer).splitlines():
        found = _LABEL.sub("", _MARKER.sub("", line.strip()).strip(_QUOTES)).strip(_QUOTES)
        if found and not found.endswith(":"):
            if _ABOUT_TEXT.search(found):
                return ""
            return " ".join(found.rstrip(".,;").split())
    return ""
