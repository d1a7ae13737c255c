"""Masks are exact in size, whole in words, unbiased, and a function of the row alone."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from hf_dense.pretraining.masking import (
    draw_keywords,
    draw_tokens,
    draw_words,
    draw_words_often,
    fill_budget,
    fill_hidden,
    fractions,
    noise,
    noise_at,
    row_keys,
    sampled_visibility,
    word_hashes,
    word_index,
    word_numbers,
    word_orders,
    word_sizes,
)

KEYS = row_keys([np.array([row, row + 1], dtype=np.int32) for row in range(64)], 0, 0)


def random_words(rows: int, length: int, seed: int = 0, longest: int = 4) -> NDArray[np.int64]:
    """Word numbers of random texts: [CLS], words of 1 to `longest` tokens, [SEP], padding of random width."""
    rng = np.random.default_rng(seed)
    word = np.full((rows, length), -1)
    for row in range(rows):
        tokens = np.repeat(np.arange(length), rng.integers(1, longest + 1, size=length))
        size = int(rng.integers(2, length - 1))
        word[row, 1 : size + 1] = tokens[:size]
    return word


def present_of(word: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tokens and the two special ones around them."""
    size = (word >= 0).sum(1, keepdims=True)
    return np.arange(word.shape[1])[None] < size + 2


def many_keys(rows: int) -> NDArray[np.uint64]:
    """Keys of many different rows."""
    return row_keys([np.array([row, 7], dtype=np.int32) for row in range(rows)], 0, 0)


def text_of(sizes: list[int]) -> NDArray[np.int64]:
    """Word numbers of [CLS], words of the given sizes, [SEP]."""
    return np.array([-1, *np.repeat(np.arange(len(sizes)), sizes), -1])


def share_of_each_set(sizes: list[int], budget: int) -> dict[int, float]:
    """How often each set of words (one bit per word) is taken, over all orders of the words."""
    sets: Counter[int] = Counter()
    for order in permutations(range(len(sizes))):
        taken = one_by_one([sizes[word] for word in order], budget)
        sets[sum(1 << word for word, is_taken in zip(order, taken, strict=True) if is_taken)] += 1
    return {code: count / sets.total() for code, count in sets.items()}


def one_by_one(sizes: list[int], budget: int) -> list[bool]:
    """`fill_budget` of one row as a plain loop."""
    taken = []
    for size in sizes:
        taken.append(0 < size <= budget)
        budget -= size * taken[-1]
    return taken


def assert_whole_words(hidden: NDArray[np.bool_], word: NDArray[np.int64]) -> None:
    """All tokens of a word are hidden, or none; nothing else is."""
    for row, index in zip(hidden, word, strict=True):
        assert not row[index < 0].any()
        for number in range(index.max() + 1):
            assert len(set(row[index == number].tolist())) == 1


@pytest.mark.parametrize("seed", range(20))
def test_filling_a_budget_is_going_through_the_words_one_by_one(seed: int) -> None:
    word = random_words(15, int(np.random.default_rng(seed).integers(6, 40)), seed, longest=1 + seed % 7)
    budget = np.random.default_rng(seed).integers(1, 45, size=15, dtype=np.int32)
    order = word_orders(*word_numbers(word), noise(KEYS[:15], "select"))
    taken = fill_budget(order, word_sizes(word), budget)
    for row in range(15):
        words = sorted(range(word[row].max() + 1), key=lambda number: int(order[row][word[row] == number][0]))
        sizes = [int((word[row] == number).sum()) for number in words]
        expected = [number for number, fits in zip(words, one_by_one(sizes, int(budget[row])), strict=True) if fits]
        assert (taken[row] == np.isin(word[row], expected)).all()


def test_a_budget_of_the_whole_text_takes_it_without_special_tokens_too() -> None:
    word = np.array([[0, 0, 1, 2, 2]])
    order = word_orders(*word_numbers(word), KEYS[:1])
    assert fill_budget(order, word_sizes(word), np.array([5], np.int32)).all()


def test_the_words_of_a_row_have_different_numbers_and_no_word_comes_last() -> None:
    word = random_words(64, 200)
    order = word_orders(*word_numbers(word), noise(KEYS, "select"))
    assert (order[word < 0] == 0xFFFFFFFF).all()
    for numbers, index in zip(order, word, strict=True):
        pairs = set(zip(index.tolist(), numbers.tolist(), strict=True))
        assert len(pairs) == len(set(index.tolist())) == len(set(numbers.tolist()))


@pytest.mark.parametrize(
    "sizes",
    [[1] * 6, [2, 1, 1, 1], [3, 3, 1], [1, 2, 3, 1, 2], [2, 2, 2, 1, 1, 1, 1], [3, 1, 2, 3, 2, 3], [3, 2, 3]],
    ids=lambda sizes: "-".join(map(str, sizes)),
)
def test_every_set_of_words_is_hidden_as_often_as_over_all_orders_of_the_words(sizes: list[int]) -> None:
    """By one draw per row, and by each position's and each pair of positions' own draws."""
    rows, text = 6000, text_of(sizes)
    tokens, shares = len(text) - 2, share_of_each_set(sizes, round(sum(sizes) * 0.5))
    word, lengths = np.tile(text, (rows, 1)), np.full(rows, len(text))
    once = draw_words(word, 0.5, noise(many_keys(rows), "select"))[:, None]
    often = draw_words_often(word, lengths, 0.5, noise(many_keys(rows), "visible:draws", len(text)))
    starts = [int(np.argmax(text == number)) for number in range(len(sizes))]
    codes = np.concatenate([once, often], axis=1)[..., starts] @ (1 << np.arange(len(sizes)))
    known, expected = list(shares), np.array(list(shares.values()))
    assert set(np.unique(codes)) == set(known)
    place = np.searchsorted(np.sort(known), codes)
    expected = expected[np.argsort(known)]
    for draw in range(tokens + 3):
        assert chisquare(np.bincount(place[:, draw], minlength=len(known)), expected * rows).pvalue > 1e-4
    assert chisquare(np.bincount(place[:, 1:].reshape(-1)), expected * place[:, 1:].size).pvalue > 1e-3
    pairs = np.outer(expected, expected).reshape(-1)
    both = sum(np.bincount(place[:, i] * len(known) + place[:, j], minlength=len(pairs)) for i, j in PAIRS)
    assert chisquare(both, pairs * rows * len(PAIRS)).pvalue > 1e-3


PAIRS = ((0, 1), (1, 2), (2, 3), (1, 4), (3, 5))  # of draws


def test_neither_the_draws_of_a_long_text_nor_its_words_go_together() -> None:
    word = np.tile(text_of([1] * 200), (8, 1))
    hidden = draw_words_often(word, np.full(8, 202), 0.5, noise(KEYS[:8], "visible:draws", 202))[..., 1:201]
    signs = 2.0 * hidden - 1
    for row in signs:
        draws, words = row @ row.T / 200, row.T @ row / 202
        # Of n coin tosses, half of them heads, two draws agree by chance with variance 1 / (n - 1); so do two words.
        for together in (draws, words):
            apart = together[np.triu_indices(len(together), 1)]
            assert abs((apart**2).mean() * 200 - 1) < 0.05
            assert abs(apart).max() < 0.4  # 5.6 standard deviations


@pytest.mark.parametrize("rate", [0.15, 0.3, 0.45, 0.5, 0.9])
def test_whole_words_are_hidden_up_to_the_budget_and_never_above(rate: float) -> None:
    word = random_words(64, 40)
    hidden = draw_words(word, rate, noise(KEYS, "select"))
    assert_whole_words(hidden, word)
    for row, index in zip(hidden, word, strict=True):
        budget = max(1, round(rate * (index >= 0).sum()))
        left = budget - row.sum()
        assert left >= 0
        shown = [int((index == number).sum()) for number in set(index[(index >= 0) & ~row].tolist())]
        assert left < min(shown, default=left + 1), "a word that would still fit was left out"


@pytest.mark.parametrize("rate", [0.15, 0.3, 0.5])
def test_words_of_one_token_meet_the_budget_exactly(rate: float) -> None:
    word = random_words(64, 40, longest=1)
    hidden = draw_words(word, rate, noise(KEYS, "select"))
    assert hidden.sum(-1).tolist() == [max(1, round(rate * int(size))) for size in (word >= 0).sum(1)]


def test_a_text_without_maskable_tokens_hides_nothing() -> None:
    word = np.array([[-1, -1, -1, -1], [-1, 0, 1, -1]])
    hidden = draw_words(word, 0.5, noise(KEYS[:2], "select"))
    assert not hidden[0].any()
    assert hidden[1].sum() == 1
    often = draw_words_often(word, np.array([4, 4]), 0.5, noise(KEYS[:2], "select", 4))
    assert not often[0].any()
    assert (often[1].sum(-1) == 1).all()


def test_a_row_whose_words_all_exceed_the_budget_hides_single_tokens_and_no_other_row_does() -> None:
    word = random_words(64, 40)
    word[:3] = -1
    word[0, 1:31], word[1, 1:3] = 0, 0  # a passage that is one word, and a title
    bits = noise(KEYS, "select")
    plain, hidden = draw_words(word, 0.3, bits), draw_tokens(word, 0.3, bits)
    taking = plain.any(1)
    assert not taking[:3].any()
    assert (hidden[taking] == plain[taking]).all()
    assert hidden[:3].sum(1).tolist() == [9, 1, 0]
    assert not hidden[word < 0].any()
    wide = np.pad(word, ((0, 0), (0, 25)), constant_values=-1)
    assert (draw_tokens(wide, 0.3, bits)[:, :40] == hidden).all()
    many = draw_tokens(np.tile(word[:1], (8000, 1)), 0.3, noise(many_keys(8000), "select"))[:, 1:31]
    assert np.abs(many.mean(0) - 0.3).max() < 0.025  # standard deviation 0.005


def test_every_position_is_hidden_equally_often() -> None:
    word = np.tile(np.arange(20), (12800, 1))
    hidden = draw_words(word, 0.3, noise(KEYS, "select", 200).reshape(-1))
    # 12,800 draws: the standard deviation of a frequency is 0.004.
    assert np.abs(hidden.mean(0) - 0.3).max() < 0.016


def test_words_start_at_tokens_that_do_not_continue() -> None:
    continues = np.array([False, False, True])
    ids = np.array([[0, 2, 2, 1, 2, 0, 2, 0]])
    maskable = np.array([[False, True, True, True, True, False, True, False]])
    # A continuation that follows a special token starts a word: there is none before it.
    assert word_index(ids, maskable, continues).tolist() == [[-1, 0, 0, 1, 1, -1, 2, -1]]


def test_a_row_gets_the_same_draw_in_any_batch_order_and_width() -> None:
    word = random_words(16, 30)
    keys = KEYS[:16]
    bits = noise(keys, "select")
    hidden = draw_words(word, 0.3, bits)
    order = np.random.default_rng(1).permutation(16)
    assert (draw_words(word[order], 0.3, bits[order]) == hidden[order]).all()
    wide = np.pad(word, ((0, 0), (0, 25)), constant_values=-1)
    assert (draw_words(wide, 0.3, bits)[:, :30] == hidden).all()
    for row in range(16):
        assert (draw_words(word[row : row + 1], 0.3, bits[row : row + 1])[0] == hidden[row]).all()


def test_rows_seeds_epochs_and_purposes_draw_differently() -> None:
    rows = [np.arange(5, dtype=np.int32) + row for row in range(50)]
    keys = [row_keys(rows, seed, epoch) for seed in (0, 1, 11) for epoch in (-1, 0, 1, 11)]
    assert len(set(np.concatenate(keys).tolist())) == 50 * 12
    bits = np.concatenate([noise(keys[0], purpose, 40).reshape(-1) for purpose in ("select", "fill")])
    assert len(set(bits.tolist())) == 50 * 40 * 2
    assert (row_keys(rows, 3, 4) == row_keys(rows, 3, 4)).all()


def test_noise_is_uniform_in_every_byte() -> None:
    bits = noise(KEYS, "select", 50, 40)
    assert abs(fractions(bits).mean() - 0.5) < 0.004  # 128,000 numbers: standard deviation 0.0008
    assert fractions(bits).min() >= 0
    assert fractions(bits).max() < 1
    for shift in range(0, 64, 8):
        byte = (bits >> np.uint64(shift)) & np.uint64(0xFF)
        counts = np.bincount(byte.reshape(-1).astype(np.int64), minlength=256)
        assert chisquare(counts).pvalue > 1e-4


def test_neighbouring_positions_and_rows_are_not_correlated() -> None:
    numbers = fractions(noise(KEYS, "select", 50, 40))
    for one, other in (
        (numbers[1:], numbers[:-1]),
        (numbers[:, 1:], numbers[:, :-1]),
        (numbers[..., 1:], numbers[..., :-1]),
    ):
        assert abs(np.corrcoef(one.reshape(-1), other.reshape(-1))[0, 1]) < 0.015


def test_noise_at_the_first_positions_does_not_depend_on_the_width() -> None:
    wide, narrow = noise(KEYS, "draws", 12, 40), noise(KEYS, "draws", 5, 7)
    assert (wide[:, :5, :7] == narrow).all()


def test_noise_at_some_positions_is_that_of_all() -> None:
    chosen = np.random.default_rng(0).random((64, 30)) < 0.3
    assert (noise_at(KEYS, "fill", np.flatnonzero(chosen), 30) == noise(KEYS, "fill", 30)[chosen]).all()


def test_bert_fill_is_80_10_10() -> None:
    ids = np.full((64, 2000), 7)
    bits = noise(KEYS, "fill", 2000).reshape(-1)
    filled = fill_hidden(ids, np.ones_like(ids, dtype=bool), bits, "bert", 4, 1000)
    random_ids = filled[(filled != 4) & (filled != 7)]
    # 128,000 tokens: the standard deviation of a share is about 0.001.
    assert abs((filled == 4).mean() - 0.8) < 0.005
    assert abs((filled == 7).mean() - 0.1) < 0.005
    assert abs(len(random_ids) / filled.size - 0.1) < 0.005
    counts = np.delete(np.bincount(random_ids, minlength=1000), [4, 7])
    assert len(counts) == 998
    assert chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("fill", ["mask", "bert"])
def test_only_hidden_tokens_are_filled(fill: str) -> None:
    ids = np.random.default_rng(0).integers(5, 50, size=(64, 20))
    hidden = np.random.default_rng(1).random((64, 20)) < 0.4
    filled = fill_hidden(ids, hidden, noise(KEYS, "fill", 20)[hidden], fill, 4, 50)
    assert (filled[~hidden] == ids[~hidden]).all()
    if fill == "mask":
        assert (filled[hidden] == 4).all()


def test_a_position_never_sees_itself_or_padding_and_always_sees_special_tokens() -> None:
    word = random_words(16, 40)
    present = present_of(word)
    visible = sampled_visibility(word, present, 0.5, KEYS[:16], "visible")
    assert visible.shape == (16, 40, 40)
    diagonal = np.eye(40, dtype=bool)
    assert not visible[:, diagonal].any()
    assert not visible.transpose(0, 2, 1)[~present].any()
    special = present & (word < 0)
    seen = visible | diagonal
    assert seen.transpose(0, 2, 1)[special].all()


def test_each_position_looks_past_its_own_draw_and_padding_at_all_tokens() -> None:
    word = random_words(16, 40)
    present = present_of(word)
    visible = sampled_visibility(word, present, 0.5, KEYS[:16], "visible")
    lengths = present.sum(1)
    hidden = draw_words_often(word, lengths, 0.5, noise(KEYS[:16], "visible:draws", 40))
    apart = ~np.eye(40, dtype=bool)
    assert (visible == (~hidden & present[:, None] & apart)).all()
    for row, length in enumerate(lengths.tolist()):
        assert_whole_words(hidden[row, :length], np.tile(word[row], (length, 1)))
        assert not hidden[row, length:].any()


def test_each_position_hides_whole_words_of_about_the_rate_and_its_own_draw() -> None:
    word = random_words(16, 40)
    present = present_of(word)
    visible = sampled_visibility(word, present, 0.5, KEYS[:16], "visible")
    patterns = set()
    for row in range(16):
        size = int((word[row] >= 0).sum())
        for position in range(size + 2):
            hidden = ~visible[row, position] & (word[row] >= 0)
            own = word[row, position]
            partly = [n for n in range(word[row].max() + 1) if len(set(hidden[word[row] == n].tolist())) > 1]
            assert partly in ([], [own]), "only the position's own word may be hidden in part"
            budget = max(1, round(0.5 * size))
            assert hidden.sum() <= budget + (own >= 0)
            patterns.add((row, hidden.tobytes()))
    assert len(patterns) > 16 * 5, "positions draw on their own"
    tokens = (word >= 0)[:, None, :] & present[:, :, None] & ~np.eye(40, dtype=bool)
    assert abs((~visible & tokens).sum() / tokens.sum() - 0.5) < 0.05


def test_long_texts_pick_among_256_draws() -> None:
    word = np.full((1, 402), -1)
    word[0, 1:401] = np.arange(400)
    present = present_of(word)
    visible = sampled_visibility(word, present, 0.5, KEYS[:1], "visible")[0]
    assert not visible.diagonal().any()
    hidden = ~visible & ~np.eye(402, dtype=bool)
    assert not hidden[:, [0, 401]].any()
    assert abs(hidden[:, 1:401].mean() - 0.5) < 0.01
    assert np.abs(hidden[:, 1:401].mean(0) - 0.5).max() < 0.15  # 256 draws: standard deviation 0.031
    # The diagonal is taken out, so rows of one draw differ there: 402 rows hold at most 256 patterns but for it.
    distances = (hidden[:, None, :] != hidden[None]).sum(-1)
    same = (distances <= 2).sum(1)
    assert (same > 1).any(), "some positions share a draw"
    assert same.max() < 12


def test_visibility_does_not_depend_on_the_batch_or_its_padding() -> None:
    word = random_words(8, 40)
    present = present_of(word)
    visible = sampled_visibility(word, present, 0.5, KEYS[:8], "visible")
    for width in (1, 20, 217, 300):
        wide = np.pad(word, ((0, 0), (0, width)), constant_values=-1)
        wider = sampled_visibility(wide, present_of(wide), 0.5, KEYS[:8], "visible")[:, :40, :40]
        assert (wider[present] == visible[present]).all(), f"padded by {width}"


def test_keywords_are_drawn_in_proportion_to_their_weights() -> None:
    """One word of four is drawn first with the probability of its weight."""
    keys = row_keys([np.array([row, 7], dtype=np.int32) for row in range(8000)], 0, 0)
    word = np.tile([-1, 0, 1, 1, 2, 3, -1], (8000, 1))
    weights = np.tile([4.0, 3.0, 2.0, 1.0], (8000, 1))
    hidden = draw_keywords(word, weights, 0.01, noise(keys, "select", 4))
    drawn = np.array([hidden[:, 1].sum(), hidden[:, 2].sum(), hidden[:, 4].sum(), hidden[:, 5].sum()])
    assert drawn.sum() == 8000
    assert chisquare(drawn, [3200, 2400, 1600, 800]).pvalue > 1e-3


def test_keywords_are_whole_words_up_to_the_one_that_reaches_the_rate() -> None:
    word = random_words(64, 40)
    words = int(word.max()) + 1
    exists = np.arange(words) <= word.max(axis=1, keepdims=True)
    hidden = draw_keywords(word, np.where(exists, 1.0, 0.0), 0.5, noise(KEYS, "select", words))
    assert not hidden[word < 0].any()
    for row in range(64):
        tokens = word[row] >= 0
        taken = set(word[row][hidden[row]])
        assert all(hidden[row][word[row] == one].all() for one in taken)
        budget = max(1, round(0.5 * tokens.sum()))
        assert budget <= hidden[row].sum() < budget + 4


def test_a_words_hash_is_its_tokens_in_their_order() -> None:
    ids = np.array([[0, 7, 8, 9, 7, 8, 0], [0, 8, 7, 9, 7, 0, 0]])
    word = np.array([[-1, 0, 0, 1, 2, 2, -1], [-1, 0, 0, 1, 2, -1, -1]])
    hashes = word_hashes(ids, word)
    assert hashes[0, 0] == hashes[0, 2]
    assert hashes[0, 1] == hashes[1, 1]
    assert len({*hashes[0].tolist(), *hashes[1].tolist()}) == 4
