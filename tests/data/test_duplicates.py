"""Signatures: equal words are equal, nearly equal texts nearly always share one, others nearly never."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hf_dense.data.duplicates import BANDS, exact_hashes, near_hashes, repeats

WORDS = [f"word{number}" for number in range(3000)]


def changed_pairs(changes: int, count: int = 300) -> list[tuple[str, str]]:
    """Texts of 100 words and copies with some words changed, each somewhere else."""
    generator = random.Random(changes)
    pairs = []
    for _ in range(count):
        words = generator.choices(WORDS, k=100)
        copy = list(words)
        for at in generator.sample(range(100), changes):
            copy[at] = f"other{generator.random()}"
        pairs.append((" ".join(words), " ".join(copy)))
    return pairs


@pytest.mark.parametrize(("changes", "least", "most"), [(0, 1.0, 1.0), (1, 0.85, 1.0), (10, 0.0, 0.02)])
def test_the_share_of_pairs_found_follows_their_likeness(changes: int, least: float, most: float) -> None:
    pairs = changed_pairs(changes)
    first, second = (near_hashes([pair[side] for pair in pairs]) for side in (0, 1))
    found = (first == second).any(axis=1).mean()
    assert least <= found <= most


def test_a_signature_depends_on_the_text_alone() -> None:
    texts = [text for pair in changed_pairs(3, 20) for text in pair]
    together = near_hashes(texts)
    alone = np.concatenate([near_hashes([text]) for text in texts])
    assert together.shape == (40, BANDS)
    assert np.array_equal(together, alone)
    assert near_hashes([]).shape == (0, BANDS)


def test_short_and_wordless_texts_have_signatures() -> None:
    hashes = near_hashes(["one two", "One, two!", "two one", "", "..."])
    assert np.array_equal(hashes[0], hashes[1])
    assert not (hashes[0] == hashes[2]).any()
    assert np.array_equal(hashes[3], hashes[4])


def test_exact_means_the_same_words() -> None:
    hashes = exact_hashes(["A cat sat.", "a  CAT sat", "a cat sat down", "the cat sat"])
    assert hashes[0] == hashes[1]
    assert len(set(hashes.tolist())) == 3


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("It is written in C and fast.", "It is written in C++ and fast."),
        ("It is written in C++ and fast.", "It is written in C# and fast."),
        ("Store it at -20 degrees.", "Store it at 20 degrees."),
        ("It costs $20.", "It costs €20."),
        ("List with cd . here", "List with cd .. here"),
        ("किताब की", "कुताब का"),
    ],
)
def test_signs_and_vowel_signs_make_another_text(text: str, other: str) -> None:
    assert len(set(exact_hashes([text, other]).tolist())) == 2


def test_vowel_signs_make_other_words() -> None:
    first, second = near_hashes(["किताब की", "कुताब का"])
    assert not (first == second).any()
    assert (near_hashes(["Cafe\u0301 au lait"]) == near_hashes(["Café au lait"])).all()


def test_the_first_of_a_group_stays() -> None:
    bands = np.array([[1, 2], [3, 2], [4, 5], [3, 6], [7, 8]], dtype=np.uint64)
    assert repeats(bands).tolist() == [False, True, False, True, False]
    assert repeats(np.array([9, 9, 1, 9], dtype=np.uint64)).tolist() == [False, True, False, True]
