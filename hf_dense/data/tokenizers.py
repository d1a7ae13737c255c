"""Training a tokenizer on a corpus."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from string import punctuation
from unicodedata import category, normalize

import regex  # type: ignore[import-untyped]
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer
from transformers import BertTokenizer, PreTrainedTokenizerBase

from hf_dense.errors import InputError

_ENDLESS = re.compile(r"(\w{1000})(?=\w)")  # for which the trainer would take a time that grows by the square
_MOST = 1_000_000  # tokens
_LETTERS = 1000  # characters kept; rarer ones become [UNK]
_SIGNED = regex.compile(  # a sign that makes another letter of one: vowels of Hindi or Thai, the voice of Japanese
    r"[\p{Mn}--[\p{Zinh}\p{Arabic}\p{Hebrew}\p{Greek}\p{Cyrillic}]]|[\p{Hiragana}\p{Katakana}]\p{Mn}", regex.VERSION1
)
_FEW = 0.01  # share of the characters
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def vocabulary_size(tokenizer: PreTrainedTokenizerBase) -> int:
    """The rows that an embedding needs: one above the greatest id, of which some may be of no token."""
    return max(tokenizer.get_vocab().values()) + 1


def rows_read(tokenizer: PreTrainedTokenizerBase) -> int:
    """The rows of an embedding that texts are read by: special tokens that are put into none need none.

    A tokenizer of Gemma has one for images, and an encoder for texts alone has no row for it.
    """
    special = {id for id, token in tokenizer.added_tokens_decoder.items() if token.special}
    put = {*tokenizer("")["input_ids"], tokenizer.pad_token_id}
    return max(id for id in tokenizer.get_vocab().values() if id in put or id not in special) + 1


def train_tokenizer(texts: Sequence[str], size: int, max_length: int) -> PreTrainedTokenizerBase:
    """Train a lower-casing BERT WordPiece tokenizer on a corpus.

    It takes accents off, as BERT's does, but not where they are vowels of Hindi or Thai, or tell が from か.

    Args:
        texts: the texts.
        size: number of tokens wanted, special tokens included.
        max_length: longest text the tokenizer's users should make, in tokens.

    Returns:
        The tokenizer. The same texts in the same order give the same one.

    Raises:
        InputError: the number of tokens is below 1, or above a million.
    """
    if not 0 < size <= _MOST:
        raise InputError(f"The vocabulary is to have {size} tokens (vocab_size); a tokenizer has from 1 to {_MOST:,}.")
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text)
    strip_accents = False if _has_signs(raw) else None  # None: as BERT's, which lower case brings along
    normalizer = BertNormalizer(lowercase=True, strip_accents=strip_accents)
    whole, inner = _alphabet(raw, normalizer)
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
    tokenizer.train_from_iterator((_ENDLESS.sub(r"\1 ", text) for text in texts), trainer)
    vocabulary = tokenizer.get_vocab()
    return BertTokenizer(vocab=vocabulary, do_lower_case=True, strip_accents=strip_accents, model_max_length=max_length)


def _has_signs(raw: Counter[str]) -> bool:
    """Whether signs that make other letters are more than a few of the characters of texts."""
    signs = sum(count for character, count in raw.items() if _SIGNED.search(normalize("NFD", character)))
    return signs > _FEW * raw.total()


def _alphabet(raw: Counter[str], normalizer: BertNormalizer) -> tuple[list[str], list[str]]:
    """The most frequent characters of texts, normalised, and those of them that can continue a word."""
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
