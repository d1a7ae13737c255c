"""What masking needs to know of a tokenizer, and training one on a corpus."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer
from transformers import BertTokenizer, PreTrainedTokenizerBase

from hf_dense.errors import InputError

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
        continues: (size,) True for tokens that continue the word before them (`##ing`).
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
                    "pre-training needs [CLS], [SEP], [MASK] and [PAD]: use a BERT-like tokenizer or train one."
                )
        size = len(tokenizer)
        continues = np.zeros(size, dtype=bool)
        for token, index in tokenizer.get_vocab().items():
            continues[index] = token.startswith("##")
        special = np.zeros(size, dtype=bool)
        special[tokenizer.all_special_ids] = True
        return cls(size=size, special=special, continues=continues, **ids)


def train_tokenizer(texts: Iterable[str], size: int, max_length: int) -> PreTrainedTokenizerBase:
    """Train a lower-casing BERT WordPiece tokenizer on a corpus.

    Args:
        texts: the texts.
        size: number of tokens wanted, special tokens included.
        max_length: longest text the tokenizer's users should make, in tokens.

    Returns:
        The tokenizer. The same texts in the same order give the same one.
    """
    trainer = WordPieceTrainer(vocab_size=size, special_tokens=_SPECIAL, show_progress=False)
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary = tokenizer.get_vocab()
    return BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=max_length)
