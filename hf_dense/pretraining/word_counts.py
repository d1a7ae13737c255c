"""How often the words of a corpus occur, as a table that keyword masks read (MASTER)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from hf_dense.errors import InputError
from hf_dense.pretraining.keywords import Keywords, spell
from hf_dense.pretraining.vocabulary import Vocabulary

_ROWS = 2000


def build_word_counts(corpus: Dataset, tokenizer: PreTrainedTokenizerBase, out: str | os.PathLike[str]) -> Keywords:
    """Count the whole words of a corpus in one pass and write them to the Parquet file `out`.

    Args:
        corpus: column `text`; read a piece at a time.
        tokenizer: whose tokens make up the words; pre-training with another one is refused.

    Returns:
        The counts.

    Raises:
        InputError: the corpus has no words.
    """
    vocabulary = Vocabulary.of(tokenizer)
    spelled: dict[int, str] = {}

    def ids() -> Iterator[NDArray[np.int32]]:
        for start in tqdm(range(0, len(corpus), _ROWS), desc="Counting words", unit=f"x{_ROWS} passages"):
            texts = corpus[start : start + _ROWS]["text"]
            found = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
            part = [np.array(tokens, dtype=np.int32) for tokens in found if tokens]
            if part:
                spelled.update(spell(part, vocabulary, tokenizer, spelled.keys()))
            yield from part

    counted = Keywords.of(ids(), vocabulary)
    if not len(counted.words):
        raise InputError("The corpus has no words to count.")
    counted.save(Path(out), spelled, vocabulary)
    return counted
