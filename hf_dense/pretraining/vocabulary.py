"""What masking needs to know of a tokenizer, and training one on a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import punctuation

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from hf_dense.data.tokenizers import vocabulary_size
from hf_dense.errors import InputError


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
            InputError: it has no [CLS], [SEP], [MASK] or padding token.
        """
        ids = {}
        for role, attribute in (("first", "cls"), ("last", "sep"), ("mask", "mask"), ("pad", "pad")):
            ids[role] = getattr(tokenizer, f"{attribute}_token_id")
            if ids[role] is None:
                raise InputError(
                    f"The tokenizer {tokenizer.name_or_path or type(tokenizer).__name__!r} has no {attribute} token; "
                    "pre-training needs [CLS], [SEP], [MASK] and [PAD]: use an encoder's tokenizer or train one."
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
    others, with the space before them (`Ġword`, `▁word`). There punctuation is never part of the word it follows. Which
    mark it is the most tokens say: texts about tokenizers put the others into any vocabulary.

    >>> continuing(["play", "##ing", "."])
    [False, True, False]
    >>> continuing(["Ġplay", "ing", "."])
    [False, True, False]
    >>> continuing(["▁play", "ing", "."])
    [False, True, False]
    >>> continuing(["play", "##ing", "##s", "▁play", "Ġplay"])
    [False, True, True, False, False]
    """
    mark = max(("##", "Ġ", "▁"), key=lambda mark: sum(token.startswith(mark) and token != mark for token in tokens))
    if mark == "##":
        return [token.startswith(mark) for token in tokens]
    return [not (token.startswith(mark) or set(token) <= set(punctuation + "Ċ")) for token in tokens]
