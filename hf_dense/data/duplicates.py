"""Finding passages that say the same, word for word or nearly, among any number of them.

Signatures are made row by row, anywhere; which rows repeat an earlier one is then a matter of sorting 72 bytes a
passage. Own code, as the libraries for it hold their index as Python objects, ten times the memory.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import Final

import numpy as np
import regex  # type: ignore[import-untyped]
from numpy.typing import NDArray

from hf_dense.data.passages import UNSPACED

SHINGLE: Final = 5  # words
BANDS: Final = 8
_ROWS = 12  # minima in a band

Hashes = NDArray[np.uint64]

_WORD: Final = regex.compile(r"[\p{L}\p{M}\p{N}_]+")  # a vowel of Hindi is a mark, which \w leaves out
_STOP: Final = re.compile(r"(?<=\w)[.,;:](?!\S)")  # at the end of a word
_LETTER: Final = regex.compile(rf"[{UNSPACED}]")
_generator = np.random.default_rng(20221214)
_FACTORS = _generator.integers(1, 2**64, BANDS * _ROWS, dtype=np.uint64) | np.uint64(1)
_SHIFTS = _generator.integers(0, 2**64, BANDS * _ROWS, dtype=np.uint64)
_MIX = np.uint64(0x9E3779B97F4A7C15)


def exact_hashes(texts: Sequence[str]) -> Hashes:
    """(texts,) a hash of each text; neither case, white space nor a stop or comma behind a word make a difference.

    >>> first, second, third = exact_hashes(["In C, or not.", "in  C or not", "in C++ or not"])
    >>> bool(first == second), bool(first == third)
    (True, False)
    """
    keys = (" ".join(_STOP.sub("", unicodedata.normalize("NFC", text.casefold())).split()) for text in texts)
    digests = b"".join(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest() for key in keys)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def near_hashes(texts: Sequence[str]) -> Hashes:
    """(texts, BANDS) hashes; texts that share one are nearly equal.

    MinHash over runs of five words (Broder, 1997), 8 bands of 12: two texts share a band with probability 0.93 where
    nine tenths of their runs agree, 0.10 at seven tenths, 0.002 at one half.
    """
    if not texts:
        return np.empty((0, BANDS), dtype=np.uint64)
    flat, starts = word_runs(texts)
    bands = np.empty((len(texts), BANDS), dtype=np.uint64)
    for band in range(BANDS):  # one band at a time: its products are what takes memory
        part = slice(band * _ROWS, (band + 1) * _ROWS)
        scattered = _scatter(flat[:, None] * _FACTORS[part] + _SHIFTS[part])
        minima = np.minimum.reduceat(scattered, starts, axis=0)
        joint = np.full(len(texts), band + 1, dtype=np.uint64)
        for column in minima.T:
            joint = _scatter(joint * _MIX + column)
        bands[:, band] = joint
    return bands


def repeats(hashes: Hashes) -> NDArray[np.bool_]:
    """Which rows repeat an earlier one.

    Args:
        hashes: (rows,) or (rows, bands).

    Returns:
        (rows,) True where a hash of the row stands in the same band of an earlier row.

    >>> repeats(np.array([3, 5, 3, 3], dtype=np.uint64)).tolist()
    [False, False, True, True]
    """
    columns = hashes[:, None] if hashes.ndim == 1 else hashes
    found = np.zeros(len(columns), dtype=bool)
    for column in columns.T:
        _, first = np.unique(column, return_index=True)
        repeated = np.ones(len(columns), dtype=bool)
        repeated[first] = False
        found |= repeated
    return found


def word_runs(texts: Sequence[str]) -> tuple[Hashes, NDArray[np.int64]]:
    """Hashes of all texts' runs of five words, and where each text's begin; a text shorter than a run is one run.

    In scripts without spaces between words every letter is one; accents may stand apart from their letters.
    """
    words = [_WORD.findall(_spaced(text.casefold())) or [""] for text in texts]
    counts = np.array([len(found) for found in words])
    codes = np.fromiter(map(_code, chain.from_iterable(words)), dtype=np.uint64, count=int(counts.sum()))
    sizes = np.minimum(counts, SHINGLE)
    runs = counts - sizes + 1
    starts = np.cumsum(runs) - runs
    indices = np.arange(int(runs.sum())) + np.repeat(np.cumsum(counts) - counts - starts, runs)
    length = np.repeat(sizes, runs)
    joint = np.zeros(len(indices), dtype=np.uint64)
    for at in range(SHINGLE):
        longer = length > at
        joint[longer] = _scatter(joint[longer] * _MIX + codes[indices[longer] + at])
    return joint, starts


def _spaced(text: str) -> str:
    spaced: str = text if text.isascii() else _LETTER.sub(r" \g<0> ", unicodedata.normalize("NFC", text))
    return spaced


@lru_cache(maxsize=1 << 20)
def _code(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def _scatter(bits: Hashes) -> Hashes:
    """A bijection that spreads every bit over all (the finaliser of MurmurHash3)."""
    bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    return bits ^ (bits >> np.uint64(29))
