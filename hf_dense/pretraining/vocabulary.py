"""What masking needs to know of a tokenizer, and training one on a corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from string import punctuation
from unicodedata import category

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer
from transformers import BertTokenizer, PreTrainedTokenizerBase

from hf_dense.errors import InputError

_LETTERS = 1000  # characters kept; rarer ones become [UNK]
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@dataclass(frozen=True)
class Vocabulary:
    """The special tokens of a tokenizer and which tokens continue a word.

    Args:
        size: number of tokens.
        first: id of the token that heads every text ([CLS]); the bottleneck is read there.
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
        size = len(tokenizer)
        special = np.zeros(size, dtype=bool)
        special[tokenizer.all_special_ids] = True
        continues = np.zeros(size, dtype=bool)
        tokens = tokenizer.get_vocab()
        continues[list(tokens.values())] = continuing(list(tokens))
        continues &= ~special
        return cls(size=size, special=special, continues=continues, **ids)


def continuing(tokens: Sequence[str]) -> list[bool]:
    """Which tokens of a vocabulary continue the word before them.

    WordPiece marks those (`##ing`); byte-level BPE (RoBERTa, ModernBERT) and SentencePiece (XLM-RoBERTa) mark the
    others, with the space before them (`Ġword`, `▁word`). There punctuation is never part of the word it follows.

    >>> continuing(["play", "##ing", "."])
    [False, True, False]
    >>> continuing(["Ġplay", "ing", "."])
    [False, True, False]
    >>> continuing(["▁play", "ing", "."])
    [False, True, False]
    """
    for space in ("Ġ", "▁"):
        if any(token.startswith(space) and len(token) > 1 for token in tokens):
            return [not (token.startswith(space) or set(token) <= set(punctuation + "Ċ")) for token in tokens]
    return [token.startswith("##") for token in tokens]


def train_tokenizer(texts: Sequence[str], size: int, max_length: int) -> PreTrainedTokenizerBase:
    """Train a lower-casing BERT WordPiece tokenizer on a corpus.

    Args:
        texts: the texts.
        size: number of tokens wanted, special tokens included.
        max_length: longest text the tokenizer's users should make, in tokens.

    Returns:
        The tokenizer. The same texts in the same order give the same one.
    """
    normalizer = BertNormalizer(lowercase=True)
    whole, inner = _alphabet(texts, normalizer)
    # The trainer numbers letters in the order of a hash map, which differs from run to run and decides ties between
    # merges. Reserving every letter, at the start and inside of words, leaves it nothing to number.
    trainer = WordPieceTrainer(
        vocab_size=size,
        special_tokens=[*_SPECIAL, *whole, *("##" + letter for letter in inner)],
        initial_alphabet=whole,
        limit_alphabet=len(whole),
        show_progress=False,
    )
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary = tokenizer.get_vocab()
    return BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=max_length)


def _alphabet(texts: Sequence[str], normalizer: BertNormalizer) -> tuple[list[str], list[str]]:
    """The most frequent characters of normalised texts, and those of them that can continue a word."""
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text)
    counts: Counter[str] = Counter()
    alone: set[str] = set()  # characters that the normaliser sets off by spaces (Chinese)
    for character, count in raw.items():
        shown = normalizer.normalize_str(character)
        for part in shown.strip():
            counts[part] += count
        if shown.strip() and shown.startswith(" "):
            alone.update(shown.strip())
    letters = sorted(sorted(counts, key=lambda letter: (-counts[letter], letter))[:_LETTERS])
    inner = [letter for letter in letters if letter not in alone | set(punctuation) and category(letter)[0] not in "PZ"]
    return letters, inner
