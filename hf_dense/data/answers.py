"""Whether a passage holds the answer to a question, by DPR's rule."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

import regex  # type: ignore[import-untyped]

_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def has_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether the tokens of an answer stand in the text, one after the other.

    Source: `has_answer` and `SimpleTokenizer` of DPR (Karpukhin et al., 2020), `match_type` string: both are brought
    to NFD and cut into words and single marks, in lower case. Deviation: an answer without tokens is in no text.

    Args:
        text: of the passage.
        answers: strings of which one is enough.

    >>> has_answer("It was Köln's cathedral, built in 1248.", ["1200", "KÖLN"])
    True
    >>> has_answer("A cathedral", ["cat", "cathedral A", "", "…"])
    False
    """
    tokens = _spaced_tokens(text)
    return any(answer in tokens for answer in map(_spaced_tokens, answers) if answer.strip())


@lru_cache(maxsize=10_000)
def _spaced_tokens(text: str) -> str:
    """Tokens with a space before and after each: no token holds one, so runs of tokens are substrings."""
    tokens = (token.lower() for token in _TOKEN.findall(unicodedata.normalize("NFD", text)))
    return f" {' '.join(tokens)} "
