"""What masking needs to know of a tokenizer, and training one on a corpus."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from string import punctuation
from typing import Final
from unicodedata import category

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from hf_dense.data.tokenizers import vocabulary_size
from hf_dense.errors import InputError

_UNSPACED: Final = re.compile(  # Thai, Lao, Myanmar, Khmer, Han, Hiragana, Katakana
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u31f0-\u31ff\u3400-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f"
    "\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff]"
)
_CUT: Final = b"\xbf\xbf"  # ends a character of which a token has the first bytes alone


@dataclass(frozen=True)
class Vocabulary:
    """The special tokens of a tokenizer and which tokens continue a word.

    Args:
        size: number of ids.
        first: id of the token that heads every text ([CLS]).
        last: id of the token that ends every text ([SEP]).
        mask: id of [MASK].
        pad: id of the padding token.
        special: (size,) True for special tokens, which are never hidden or scored inside a text.
        continues: (size,) True for tokens that continue the word before them (see `continuing`).
    """

    size: int
    first: int
    last: int
    mask: int
    pad: int
    special: NDArray[np.bool_]
    continues: NDArray[np.bool_]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> Vocabulary:
        """Read a tokenizer.

        Raises:
            InputError: it has no [CLS], [SEP], [MASK] or padding token, or puts no [CLS] before a text.
        """
        ids, name = {}, tokenizer.name_or_path or type(tokenizer).__name__
        for role, attribute in (("first", "cls"), ("last", "sep"), ("mask", "mask"), ("pad", "pad")):
            ids[role] = getattr(tokenizer, f"{attribute}_token_id")
            if ids[role] is None:
                raise InputError(
                    f"The tokenizer {name!r} has no {attribute} token; "
                    "pre-training needs [CLS], [SEP], [MASK] and [PAD]: use an encoder's tokenizer or train one."
                )
        if tokenizer("a")["input_ids"][:1] != [ids["first"]]:  # else it is given other texts later
            raise InputError(
                f"The tokenizer {name!r} puts no {tokenizer.cls_token} before a text, as pre-training does; give it a "
                "post-processor that does (tokenizers.processors.TemplateProcessing)."
            )
        tokens, size = tokenizer.get_vocab(), vocabulary_size(tokenizer)
        special = np.zeros(size, dtype=bool)
        special[tokenizer.all_special_ids] = True
        continues = np.zeros(size, dtype=bool)
        continues[list(tokens.values())] = continuing(list(tokens))
        continues &= ~special
        return cls(size=size, special=special, continues=continues, **ids)


def continuing(tokens: Sequence[str]) -> list[bool]:
    """Which tokens of a vocabulary continue the word before them.

    WordPiece marks those (`##ing`); byte-level BPE (RoBERTa, ModernBERT) and SentencePiece (XLM-RoBERTa) mark the
    others, with the space before them (`Ġword`, `▁word`). There punctuation is never part of the word it follows, and
    a token of a script without spaces (Chinese, Japanese, Thai, ...) is a word, as a text of it would be one word
    otherwise. Which mark it is the most tokens say: texts about tokenizers put the others into any vocabulary.

    >>> continuing(["play", "##ing", "."])
    [False, True, False]
    >>> continuing(["Ġplay", "ing", "."])
    [False, True, False]
    >>> continuing(["▁play", "ing", "."])
    [False, True, False]
    >>> continuing(["play", "##ing", "##s", "▁play", "Ġplay"])
    [False, True, True, False, False]
    >>> continuing(["▁play", "ing", "東京", "、"])
    [False, True, False, False]
    """
    mark = max(("##", "Ġ", "▁"), key=lambda mark: sum(token.startswith(mark) and token != mark for token in tokens))
    if mark == "##":
        return [token.startswith(mark) for token in tokens]
    plain = set(punctuation + "Ċ")
    return [not (token.startswith(mark) or set(token) <= plain or _begins(token, mark)) for token in tokens]


def _begins(token: str, mark: str) -> bool:
    """Whether a token begins with a character of a script without spaces, or with punctuation beyond ASCII."""
    first = _first(token) if mark == "Ġ" else token[:1]
    return not first.isascii() and bool(_UNSPACED.match(first) or category(first).startswith("P"))


def _first(token: str) -> str:
    """The first character of a token of byte-level BPE, whose characters stand for bytes."""
    known = _bytes()
    raw = b"".join(known.get(character, character.encode()) for character in token)
    return (raw + _CUT).decode(errors="replace")[0]


@cache
def _bytes() -> dict[str, bytes]:
    """The bytes that the characters of byte-level BPE stand for."""
    return {character: bytes([code]) for code, character in bytes_to_unicode().items()}
