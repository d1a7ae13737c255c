"""Batches of the greatest size that a corpus can fill, for what they take to be measured."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from hf_dense.pretraining.corpus import tokenize
from hf_dense.pretraining.sampler import SiblingSampler
from hf_dense.pretraining.stream import PassageStream

_HEAD: Final = 64  # rows of a stream that are looked at
_MOST_OF_A_STREAM: Final = 2**14  # rows of a batch: nobody knows how many there are


def longest_rows(rows: Dataset, max_length: int) -> Callable[[int], list[dict[str, Any]]]:
    """As many rows as wanted like the longest one, its texts repeated until they fill `max_length` tokens.

    Args:
        rows: of token ids, with their `length`; several texts in one column (generated queries) stay as they are.
        max_length: longest text in tokens.
    """
    row = rows[int(np.argmax(rows["length"][:]))]
    filled = {name: np.resize(ids, max_length) if _is_text(ids) else ids for name, ids in row.items()}
    return lambda size: [filled] * size


def most_rows(rows: Dataset | PassageStream, siblings: bool) -> int:
    """Rows of the largest batch: all, or two of every document that has several where they are read in pairs."""
    if isinstance(rows, PassageStream):
        return _MOST_OF_A_STREAM
    return len(SiblingSampler(rows["length"][:], rows["document"][:], 2, seed=0)) if siblings else len(rows)


def head_rows(stream: PassageStream, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """The first rows of a stream as token ids, with their `length`."""
    stream.cut(batch=1, step=1)
    rows = Dataset.from_list([row for _, batch in islice(stream, _HEAD) for row in batch])
    return tokenize(rows, tokenizer, stream.joined)


def _is_text(ids: Any) -> bool:
    return isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype != object
