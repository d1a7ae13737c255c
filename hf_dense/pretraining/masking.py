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
Halves = NDArray[np.uint32]
Counts = NDArray[np.int32]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_LAST = np.uint32(0xFFFFFFFF)  # the number of no word, last in every order


def _mix(bits: Bits) -> Bits:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that scatters every input bit."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _mix_halves(bits: Halves) -> Halves:
    """As `_mix`, of 32 bits: `lowbias32` (Wellons, "Hash functions prospector", 2018)."""
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> np.uint32(15))) * np.uint32(0x846CA68B)
    return bits ^ (bits >> np.uint32(16))


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


def noise_at(keys: Bits, purpose: str, at: Ints, length: int) -> Bits:
    """(positions,) what `noise` gives at some of its (rows, length) positions, numbered row by row."""
    bits = _mix(keys ^ np.uint64(zlib.crc32(purpose.encode())))
    return _mix(bits[at // length] + (at % length + 1).astype(np.uint64) * _STEP)


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
    starts = maskable.copy()
    starts[:, 1:] &= ~(continues[ids[:, 1:]] & maskable[:, :-1])
    return np.where(maskable, starts.cumsum(1) - 1, -1)


def word_sizes(word: Ints) -> Counts:
    """(rows, length) tokens of the word that each token belongs to; more than a row has where it is not maskable."""
    rows, length = word.shape
    words = int(word.max(initial=0)) + 2
    flat = word + np.arange(1, rows * words, words)[:, None]
    sizes = np.bincount(flat.reshape(-1), minlength=rows * words).astype(np.int32)
    sizes[::words] = length + 1
    of_tokens: Counts = sizes[flat]
    return of_tokens


def budgets(word: Ints, rate: float) -> Counts:
    """(rows,) tokens to hide of each row: the rate of those that are maskable, at least one."""
    tokens: Counts = np.maximum(1, np.rint(rate * (word >= 0).sum(1))).astype(np.int32)
    return tokens


def word_orders(numbers: Halves, none: Halves, bits: Bits) -> Halves:
    """A random order of the words of each row, or many of one row.

    Args:
        numbers, none: (rows, length) or (length,) from `word_numbers`.
        bits: (rows,) random bits.

    Returns:
        (rows, length) random numbers, equal within a word and never between the words of a row, as each step is a
        bijection (the factors are odd); the greatest number where a token belongs to no word.
    """
    order = numbers ^ bits.astype(np.uint32)[:, None]
    order *= (bits >> np.uint64(32)).astype(np.uint32)[:, None] | np.uint32(1)
    order ^= order >> np.uint32(15)
    order *= np.uint32(0x846CA68B)
    order |= none
    return order


def word_numbers(word: Ints) -> tuple[Halves, Halves]:
    """(rows, length) a scattered number per word; and the greatest number where a token is of no word, 0 elsewhere."""
    return _mix_halves(word.astype(np.uint32)), np.where(word < 0, _LAST, np.uint32(0))


def first_misfit(order: Halves, budget: Counts) -> tuple[Halves, Bools]:
    """Where going through the words in order comes to the end of a budget.

    Args:
        order: (rows, length) from `word_orders`.
        budget: (rows,) tokens that may be taken, at least one; or a number for all rows.

    Returns:
        (rows,) number of the first word that does not fit: with the tokens in order, the one after the budget is its;
        and (rows,) whether something of the budget is left before it, because it has tokens on both sides.
    """
    ranked = np.sort(order, axis=1)
    at = np.minimum(budget, order.shape[1] - 1)
    row = np.arange(len(order)) if at.ndim else slice(None)
    misfit = ranked[row, at]
    return misfit, (ranked[row, at - 1] == misfit) | (budget > at)


def fill_rest(order: Halves, misfit: Halves, sizes: Counts, budget: Counts) -> Bools:
    """(rows, length) True for the tokens before the first misfit and for those after it that still fit.

    Each round takes, of every row, the first word that fits; one that does not fit now never will. What is left of the
    budget is less than the misfit's tokens, so that there are few rounds. `sizes` are from `word_sizes`.
    """
    taken = order < misfit[:, None]
    rows, left, offered = np.arange(len(order)), budget - taken.sum(1, dtype=np.int32), order | taken * _LAST
    while len(rows):
        offered |= (sizes > left[:, None]) * _LAST
        row, at = np.arange(len(rows)), offered.argmin(1)
        first = offered[row, at]
        chosen = (offered == first[:, None]) & (first < _LAST)[:, None]
        taken[rows] |= chosen
        left = left - sizes[row, at]
        some = (first < _LAST) & (left > 0)
        offered = (offered | chosen * _LAST)[some]
        rows, left, sizes = rows[some], left[some], sizes[some]
    return taken


def fill_budget(order: Halves, sizes: Counts, budget: Counts) -> Bools:
    """Take words in the given order, skipping any that would exceed what is left of the budget.

    Args:
        order: (rows, length) from `word_orders`.
        sizes: (rows, length) from `word_sizes`.
        budget: (rows,) tokens that may be taken, at least one.

    Returns:
        (rows, length) True where a token is taken. Equal to going through the words one by one.

    >>> order, sizes = np.array([[10, 10, 20, 20, 20, 30, 40]], np.uint32), np.array([[2, 2, 3, 3, 3, 1, 1]], np.int32)
    >>> fill_budget(order, sizes, np.array([4], np.int32)).astype(int)
    array([[1, 1, 0, 0, 0, 1, 1]])
    """
    misfit, more = first_misfit(order, budget)
    taken = order < misfit[:, None]
    taken[more] = fill_rest(order[more], misfit[more], sizes[more], budget[more])
    return taken


def draw_words(word: Ints, rate: float, bits: Bits) -> Bools:
    """Hide whole words, in random order, until a fraction of the maskable tokens is hidden.

    Args:
        word: (rows, length) from `word_index`.
        rate: fraction of the maskable tokens to hide; the budget is max(1, round(rate x tokens)), never exceeded.
        bits: (rows,) random bits.

    Returns:
        (rows, length) True where a token is hidden.

    Source: the whole-word masking of BERT and of all the methods' released code. RetroMAE's code counts [CLS] and
    [SEP] into the budget, CoT-MAE's does not; here special tokens are not counted.
    """
    return fill_budget(word_orders(*word_numbers(word), bits), word_sizes(word), budgets(word, rate))


def draw_tokens(word: Ints, rate: float, bits: Bits) -> Bools:
    """`draw_words`, and single tokens of the rows whose every word exceeds the budget, so that none hides nothing.

    Args:
        word, rate, bits: as of `draw_words`.

    Returns:
        (rows, length) True where a token is hidden.
    """
    hidden = draw_words(word, rate, bits)
    none = ~hidden.any(1)
    single = np.where(word[none] < 0, -1, np.arange(word.shape[1]))
    hidden[none] = draw_words(single, rate, bits[none])
    return hidden


def draw_words_often(word: Ints, lengths: Ints, rate: float, bits: Bits) -> Bools:
    """`draw_words`, many times for each row.

    Args:
        word: (rows, length) from `word_index`.
        lengths: (rows,) tokens of each row before its padding.
        rate: as of `draw_words`.
        bits: (rows, draws) random bits. No row has more draws than tokens; those beyond hide nothing.

    Returns:
        (rows, draws, length) True where a token is hidden.
    """
    rows, draws = bits.shape
    sizes, budget, (numbers, none) = word_sizes(word), budgets(word, rate), word_numbers(word)
    hidden = np.zeros((rows, draws, word.shape[1]), dtype=bool)
    places, orders, misfits = [], [], []
    for row, length in enumerate(lengths.tolist()):  # a row at a time stays in the processor's cache
        order = word_orders(numbers[row, :length], none[row, :length], bits[row, :length])
        misfit, more = first_misfit(order, budget[row])
        np.less(order, misfit[:, None], out=hidden[row, : len(order), :length])
        places.append(more.nonzero()[0])
        orders.append(order[more])
        misfits.append(misfit[more])
    text = np.repeat(np.arange(rows), [len(place) for place in places])
    rest = np.full((len(text), word.shape[1]), _LAST)
    for order, start in zip(orders, np.searchsorted(text, np.arange(rows)).tolist(), strict=True):
        rest[start : start + len(order), : order.shape[1]] = order
    hidden[text, np.concatenate(places)] = fill_rest(rest, np.concatenate(misfits), sizes[text], budget[text])
    return hidden


def word_hashes(ids: Ints, word: Ints) -> Bits:
    """A number for every word of every row that depends on its tokens and their order alone.

    Args:
        ids: (rows, length) token ids.
        word: (rows, length) from `word_index`.

    Returns:
        (rows, words) uint64; 0 where a row has fewer words.
    """
    rows = len(word)
    words = int(word.max(initial=0)) + 1
    inside = np.flatnonzero(word >= 0)
    flat = (word + np.arange(0, rows * words, words)[:, None]).reshape(-1)[inside]
    starts = np.flatnonzero(np.diff(flat, prepend=-1))
    place = np.arange(1, len(flat) + 1) - np.repeat(starts, np.diff(starts, append=len(flat)))
    hashes = np.zeros(rows * words, dtype=np.uint64)
    if len(starts):
        parts = _mix((ids.reshape(-1)[inside].astype(np.uint64) << np.uint64(16)) | place.astype(np.uint64))
        hashes[flat[starts]] = np.add.reduceat(parts, starts)
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
    waiting = np.full(weights.shape, np.inf)
    np.divide(-np.log1p(-fractions(bits)), weights, out=waiting, where=weights > 0)
    rows = np.arange(len(word))
    tokens = waiting[rows[:, None], word]
    tokens[word < 0] = np.inf
    # With the tokens in order, the one that reaches the budget belongs to the last word drawn.
    reached = np.sort(tokens, axis=1)[rows, budgets(word, rate) - 1]
    return (tokens <= reached[:, None]) & (word >= 0)


def fill_hidden(ids: Ints, hidden: Bools, bits: Bits, fill: str, mask_id: int, vocabulary: int) -> Ints:
    """Token ids with something else at the hidden tokens.

    Args:
        ids: (rows, length) token ids.
        hidden: (rows, length) True where a token is hidden.
        bits: (hidden tokens,) random bits, row by row.
        fill: `mask` and `generator`: [MASK] everywhere; `bert`: 80 % [MASK], 10 % a random token, 10 % unchanged.

    Returns:
        (rows, length) token ids.
    """
    filled, at = ids.copy(), np.flatnonzero(hidden)
    if fill in ("mask", "generator"):
        filled.reshape(-1)[at] = mask_id
        return filled
    share = fractions(bits)
    masked, drawn = at[share < 0.8], np.flatnonzero((share >= 0.8) & (share < 0.9))
    filled.reshape(-1)[masked] = mask_id
    low = bits[drawn] & np.uint64(0x7FF)
    random_ids = (low + (share[drawn] * vocabulary * 2048).astype(np.uint64)) % np.uint64(vocabulary)
    filled.reshape(-1)[at[drawn]] = random_ids
    return filled


def sampled_visibility(word: Ints, present: Bools, rate: float, keys: Bits, purpose: str) -> Bools:
    """What each position may look at in RetroMAE's decoder: its own draw of whole words hidden, and never itself.

    Args:
        word: (rows, length) from `word_index`.
        present: (rows, length) True for tokens, False for the padding after them.
        rate: fraction of tokens hidden from each position.
        keys: (rows,) row keys.

    Returns:
        (rows, length, length) bool, True = may look. Special tokens are never hidden but from themselves; padding may
        look at all tokens.

    Source: RetroMAE, section 3.3 and released collator. The release draws min(length, 256) masks per text and lets
    each position pick one with replacement; here texts up to 256 tokens get one independent draw per position (the
    same distribution for each position), longer ones pick among 256.
    """
    length = word.shape[1]
    draws, lengths = min(length, 256), present.sum(1)
    hidden = draw_words_often(word, lengths, rate, noise(keys, f"{purpose}:draws", draws))
    if draws < length:
        pick = (noise(keys, f"{purpose}:pick", length) % np.uint64(draws)).astype(np.int64)
        own = np.minimum(np.arange(length), draws - 1)
        pick = np.where(lengths[:, None] <= draws, own, pick)  # whatever the padding
        hidden = hidden[np.arange(len(word))[:, None], pick]
    visible = ~hidden & present[:, None, :]
    visible[:, np.arange(length), np.arange(length)] = False
    return visible
