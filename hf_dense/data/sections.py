"""Sections of a document as what passages are cut from: each by itself, but short ones with what stands beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from hf_dense.data.passages import CountTokens
from hf_dense.data.readers.page import PATH_MARK

_EMPTY_LINES: Final = re.compile(r"\n\s*\n")
_SHORT: Final = 0.25  # of a passage: what is shorter is joined


@dataclass(frozen=True)
class Part:
    """What passages are cut from, none of which goes beyond it.

    Args:
        section: path of its headings; of several sections, what they have in common.
        paragraphs: in their order, with single spaces.
    """

    section: str
    paragraphs: list[str]


def join_short(sections: Sequence[tuple[str, str]], length: int, count_tokens: CountTokens) -> list[Part]:
    """Sections in reading order, each a part, but a short one with its neighbour where both fit one passage.

    Args:
        sections: path and text of each.
        length: tokens of a passage; a quarter of it is short.
        count_tokens: texts -> number of tokens of each.

    >>> sections = [("", "a b."), ("A", "c d e f g h i."), ("A > B", "j."), ("A > C", "k."), ("D", "l m n o p q.")]
    >>> parts = join_short(sections, 8, lambda texts: [len(text.split()) for text in texts])
    >>> [(part.section, part.paragraphs) for part in parts]
    [('', ['a b.']), ('A', ['c d e f g h i.', 'j.']), ('', ['k.', 'l m n o p q.'])]
    """
    paths = [path for path, _ in sections]
    paragraphs = [[" ".join(part.split()) for part in _EMPTY_LINES.split(text)] for _, text in sections]
    if len(sections) < 2:
        return [Part(path, found) for path, found in zip(paths, paragraphs, strict=True)]
    parts: list[Part] = []
    size = 0  # of the last part
    for path, found, added in zip(
        paths, paragraphs, count_tokens([" ".join(found) for found in paragraphs]), strict=True
    ):
        if parts and size + added <= length and min(size, added) < _SHORT * length:
            parts[-1] = Part(_common(parts[-1].section, path), parts[-1].paragraphs + found)
            size += added
        else:
            parts.append(Part(path, found))
            size = added
    return parts


def _common(first: str, second: str) -> str:
    """The path down to which two are the same."""
    pairs = zip(first.split(PATH_MARK), second.split(PATH_MARK), strict=False)
    return PATH_MARK.join(one for one, other in takewhile(lambda pair: pair[0] == pair[1], pairs))
