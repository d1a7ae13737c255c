"""Which tokens are hidden, and what stands in their place: vectorised, and a function of the row alone.

Random numbers come from `noise`, a hash of (row key, purpose, position). A row therefore gets the same draw whatever
batch, process or order it is read in, and however long the padding is: a resumed run, and a run on more processes,
see the same masks. The Python loops here run over rounds or rows, never over tokens.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bits = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_INDEX_BITS = np.uint64(14)  # low bits of a sort key: a word's index, then its size; both stay under 16,384 tokens
_INDEX_MASK = np.uint64((1 << 14) - 1)
_TAG_MASK = np.uint64((1 << 28) - 1)


def _mix(bits: Bits) -> Bits:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that scatters every input bit."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def row_keys(rows: list[NDArray[np.int32]], seed: int, epoch: int) -> Bits:
    """One key per row, from its token ids, the seed and the epoch.

    Args:
        rows: token ids of each row.

    Returns:
        (rows,) uint64.
    """
    content = np.array([zlib.crc32(np.ascontiguousarray(row, dtype=np.int32).data) for row in rows], dtype=np.uint64)
    draw = zlib.crc32(f"{seed}:{epoch}".encode())
    return _mix((content << np.uint64(32)) | np.uint64(draw))


def noise(keys: Bits, purpose: str, *shape: int) -> Bits:
    """64 random bits for every row and position.

    Args:
        keys: (rows,) row keys.
        purpose: name of the draw; draws of different purposes are independent.
        shape: positions per row. Values at the first positions do not depend on how many there are.

    Returns:
        (rows, *shape) uint64.
    """
    bits = _mix(keys ^ np.uint64(zlib.crc32(purpose.encode())))
    for size in shape:
        bits = _mix(bits[..., None] + np.arange(1, size + 1, dtype=np.uint64) * _STEP)
    return bits


def fractions(bits: Bits) -> NDArray[np.float64]:
    """Random bits as numbers in [0, 1)."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def word_index(ids: Ints, maskable: Bools, continues: Bools) -> Ints:
    """Which word of its row each token belongs to.

    Args:
        ids: (rows, length) token ids.
        maskable: (rows, length) True where a token may be hidden.
        continues: (vocabulary,) True where a token continues the word before it.

    Returns:
        (rows, length) word number from 0 in each row, -1 where a token is not maskable.

    >>> continues = np.array([False, False, True])
    >>> word_index(np.array([[0, 1, 2, 1, 2, 2]]), np.array([[False, True, True, True, True, False]]), continues)
    array([[-1,  0,  0,  1,  1, -1]])
    """
    after_word = np.pad(maskable, ((0, 0), (1, 0)))[:, :-1]
    starts = maskable & ~(continues[ids] & after_word)
    return np.where(maskable, starts.cumsum(1) - 1, -1)


def fill_budget(sizes: NDArray[np.int32], budget: NDArray[np.int32]) -> Bools:
    """Take words in the given order, skipping any that would exceed what is left of the budget.

    Args:
        sizes: (..., words) tokens per word, in the order of the draw; 0 = no word.
        budget: (...,) tokens that may be taken.

    Returns:
        (..., words) True where a word is taken. Equal to going through the words one by one: a word that does not
        fit now can never fit later, so each round takes all words up to the first misfit and drops every misfit; the
        largest candidate shrinks every round.

    >>> fill_budget(np.array([[2, 3, 1, 1]], np.int32), np.array([4], np.int32)).tolist()
    [[True, False, True, True]]
    """
    words = sizes.shape[-1]
    flat_sizes, left = sizes.reshape(-1, words), budget.reshape(-1)
    taken = np.zeros(flat_sizes.shape, dtype=bool)
    open_rows = np.arange(len(flat_sizes))
    candidates = (flat_sizes > 0) & (flat_sizes <= left[:, None])
    while len(open_rows):
        offered = flat_sizes[open_rows] * candidates
        total = offered.cumsum(-1, dtype=sizes.dtype)
        fits = candidates & (total <= left[:, None])
        taken[open_rows] |= fits
        left = left - np.max(total, axis=-1, where=fits, initial=0)
        candidates &= ~fits & (offered <= left[:, None])
        still = candidates.any(-1)
        open_rows, left, candidates = open_rows[still], left[still], candidates[still]
    return taken.reshape(sizes.shape)


def draw_words(word: Ints, rate: float, bits: Bits) -> Bools:
    """Hide whole words, in random order, until a fraction of the maskable tokens is hidden.

    Args:
        word: (rows, length) from `word_index`.
        rate: fraction of the maskable tokens to hide; the budget is max(1, round(rate x tokens)), never exceeded.
        bits: (rows, draws, length) random bits; several independent draws per row.

    Returns:
        (rows, draws, length) True where a token is hidden.

    Source: the whole-word masking of BERT and of all the methods' released code. RetroMAE's code counts [CLS] and
    [SEP] into the budget, CoT-MAE's does not; here special tokens are not counted.
    """
    rows, draws, _ = bits.shape
    words = int(word.max(initial=0)) + 1
    flat = (word + np.arange(rows)[:, None] * words)[word >= 0]
    sizes = np.bincount(flat, minlength=rows * words).reshape(rows, 1, words).astype(np.uint64)
    budget = np.maximum(1, np.rint(rate * (word >= 0).sum(1))).astype(np.int32)
    # Sort random numbers that carry each word's size and index in their low bits: a random order of the words.
    tags = (sizes << _INDEX_BITS) | np.arange(words, dtype=np.uint64)
    ordered = np.sort((bits[:, :, :words] & ~_TAG_MASK) | tags, axis=-1)
    ordered_sizes = ((ordered & _TAG_MASK) >> _INDEX_BITS).astype(np.int32)
    taken = fill_budget(ordered_sizes, np.broadcast_to(budget[:, None], (rows, draws)))
    hidden = np.zeros(rows * draws * words, dtype=bool)
    chosen = np.flatnonzero(taken)
    hidden[chosen - chosen % words + (ordered.reshape(-1)[chosen] & _INDEX_MASK).astype(np.int64)] = True
    by_word = hidden.reshape(rows, draws, words)
    tokens = np.stack([row.take(np.maximum(index, 0), axis=1) for row, index in zip(by_word, word, strict=True)])
    return tokens & (word >= 0)[:, None]


def word_hashes(ids: Ints, word: Ints) -> Bits:
    """A number for every word of every row that depends on its tokens and their order alone.

    Args:
        ids: (rows, length) token ids.
        word: (rows, length) from `word_index`.

    Returns:
        (rows, words) uint64; 0 where a row has fewer words.
    """
    rows, length = word.shape
    words = int(word.max(initial=0)) + 1
    inside = word >= 0
    flat = (word + np.arange(rows)[:, None] * words)[inside]
    column = np.broadcast_to(np.arange(length), word.shape)[inside]
    first = np.full(rows * words, length)
    np.minimum.at(first, flat, column)
    place = (column - first[flat]).astype(np.uint64)
    hashes = np.zeros(rows * words, dtype=np.uint64)
    np.add.at(hashes, flat, _mix((ids[inside].astype(np.uint64) << np.uint64(16)) | (place + np.uint64(1))))
    return hashes.reshape(rows, words)


def draw_keywords(word: Ints, weights: NDArray[np.float64], rate: float, bits: Bits) -> Bools:
    """Hide whole words, drawn one after the other in proportion to their weights, until a fraction of tokens is hidden.

    Args:
        word: (rows, length) from `word_index`.
        weights: (rows, words), positive for words.
        rate: fraction of the maskable tokens to hide; the last word drawn may exceed it.
        bits: (rows, words) random bits.

    Returns:
        (rows, length) True where a token is hidden.

    Source: MASTER's released collator, which draws with replacement and passes over words it has: the same
    distribution. Here each word gets an exponential waiting time of rate `weight` (Efraimidis and Spirakis, 2006).
    """
    rows, words = weights.shape
    flat = (word + np.arange(rows)[:, None] * words)[word >= 0]
    sizes = np.bincount(flat, minlength=rows * words).reshape(rows, words)
    waiting = np.full(weights.shape, np.inf)
    np.divide(-np.log1p(-fractions(bits)), weights, out=waiting, where=weights > 0)
    order = np.argsort(waiting, axis=1, kind="stable")
    ordered = np.take_along_axis(sizes, order, axis=1)
    budget = np.maximum(1, np.rint(rate * (word >= 0).sum(1)))[:, None]
    taken = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(taken, order, ordered.cumsum(1) - ordered < budget, axis=1)
    return np.take_along_axis(taken, np.maximum(word, 0), axis=1) & (word >= 0)


def fill_hidden(ids: Ints, hidden: Bools, bits: Bits, fill: str, mask_id: int, vocabulary: int) -> Ints:
    """Token ids with something else at the hidden tokens.

    Args:
        ids: (rows, length) token ids.
        hidden: (rows, length) True where a token is hidden.
        bits: (rows, length) random bits.
        fill: `mask` and `generator`: [MASK] everywhere; `bert`: 80 % [MASK], 10 % a random token, 10 % unchanged.

    Returns:
        (rows, length) token ids.
    """
    if fill in ("mask", "generator"):
        return np.where(hidden, mask_id, ids)
    share = fractions(bits)
    random_ids = ((bits & np.uint64(0x7FF)) + (share * vocabulary * 2048).astype(np.uint64)) % np.uint64(vocabulary)
    changed = np.where(share < 0.8, mask_id, np.where(share < 0.9, random_ids.astype(np.int64), ids))
    return np.where(hidden, changed, ids)


def sampled_visibility(word: Ints, present: Bools, rate: float, keys: Bits, purpose: str) -> Bools:
    """What each position may look at in RetroMAE's decoder: its own draw of whole words hidden, and never itself.

    Args:
        word: (rows, length) from `word_index`.
        present: (rows, length) True for tokens, False for padding.
        rate: fraction of tokens hidden from each position.
        keys: (rows,) row keys.

    Returns:
        (rows, length, length) bool, True = may look. Special tokens are never hidden but from themselves.

    Source: RetroMAE, section 3.3 and released collator. The release draws min(length, 256) masks per text and lets
    each position pick one with replacement; here texts up to 256 tokens get one independent draw per position (the
    same distribution for each position), longer ones pick among 256.
    """
    rows, length = word.shape
    draws = min(length, 256)
    hidden = draw_words(word, rate, noise(keys, f"{purpose}:draws", draws, length))
    if draws < length:
        pick = (noise(keys, f"{purpose}:pick", length) % np.uint64(draws)).astype(np.int64)
        own = np.minimum(np.arange(length), draws - 1)
        pick = np.where(present.sum(1, keepdims=True) <= draws, own, pick)  # whatever the padding
        hidden = hidden[np.arange(rows)[:, None], pick]
    visible = ~hidden & present[:, None, :]
    visible[:, np.arange(length), np.arange(length)] = False
    return visible
