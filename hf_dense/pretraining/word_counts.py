"""How often the words of a corpus occur, as a table that keyword masks read (MASTER)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from hf_dense.data.corpus import load_passages
from hf_dense.data.passages import load_tokenizer
from hf_dense.errors import InputError
from hf_dense.pretraining.keywords import TABLE, Keywords, spell
from hf_dense.pretraining.vocabulary import Vocabulary
from hf_dense.storage.fingerprints import fingerprint_rows, fingerprint_tokenizer
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

_ROWS: Final = 2000  # read at once


def build_word_counts(corpus: str, tokenizer: str, out: str | os.PathLike[str] | Output) -> Path:
    """Count the whole words of a corpus in one pass, and write the table into a directory.

    Args:
        corpus: what `load_passages` reads: a directory, a file, a Hub dataset.
        tokenizer: directory or Hub id; its tokens make up the words, and pre-training with another one is refused.
        out: the directory.

    Returns:
        The directory.

    Raises:
        InputError: the corpus or the tokenizer is not there, or the corpus has no words.
    """
    output, rows, loaded = Output.of(out), load_passages(corpus), load_tokenizer(tokenizer)
    vocabulary = Vocabulary.of(loaded)
    sources = {
        "corpus": Source(corpus, fingerprint_rows(rows, ["text"])),
        "tokenizer": Source(tokenizer, fingerprint_tokenizer(loaded)),
    }
    with output.stage("word counts", {}, sources) as work:
        if not work.done:
            spelled: dict[int, str] = {}
            counted = Keywords.of(_tokens(rows, loaded, vocabulary, spelled), vocabulary)
            if not len(counted.words):
                raise InputError("The corpus has no words to count.")
            counted.save(work.result / TABLE, spelled, vocabulary)
            work.facts |= {"passages": counted.total, "words": len(counted.words)}
    return output.path


def _tokens(
    rows: Dataset, tokenizer: PreTrainedTokenizerBase, vocabulary: Vocabulary, spelled: dict[int, str]
) -> Iterator[NDArray[np.int32]]:
    """Token ids of every passage that has any; the spelling of its words is added to `spelled`, by their hashes."""
    for start in tqdm(range(0, len(rows), _ROWS), desc="Counting words", unit=f"x{_ROWS} passages"):
        texts = [text or "" for text in rows[start : start + _ROWS]["text"]]
        found = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        part = [np.array(tokens, dtype=np.int32) for tokens in found if tokens]
        if part:
            spelled.update(spell(part, vocabulary, tokenizer, spelled.keys()))
        yield from part
