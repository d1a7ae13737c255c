"""DPR's rule for answers in passages, case by case and against a loop over tokens."""

from __future__ import annotations

import random
import unicodedata

import pytest
import regex

from hf_dense.data.answers import has_answer


@pytest.mark.parametrize(
    ("text", "answer", "holds"),
    [
        ("Born in New York City.", "new york", True),
        ("Born in New-York City.", "new york", False),  # the mark is a token too
        ("Born in Newyork City.", "new york", False),
        ("The year 1984 was", "198", False),
        ("He paid $5.50 for it", "$5.50", True),
        ("He paid $5.50 for it", "5.5", False),
        ("Café au lait", "cafe\u0301", True),  # composed and decomposed
        ("Café au lait", "cafe", False),
        ("one\n two\tthree", "two three", True),
        ("東京タワー", "東京", False),  # one run of letters is one token
        ("anything", "", False),
        ("", "", False),
        ("", "\u200b", False),
    ],
)
def test_cases(text: str, answer: str, holds: bool) -> None:
    assert has_answer(text, [answer]) is holds
    assert has_answer(text, ["not there at all", answer]) is holds


def test_no_answers() -> None:
    assert not has_answer("text", [])


def test_it_is_the_loop_of_dpr() -> None:
    tokenizer = regex.compile(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", regex.IGNORECASE | regex.UNICODE)

    def tokens(text: str) -> list[str]:
        return [found.group().lower() for found in tokenizer.finditer(unicodedata.normalize("NFD", text))]

    def loop(text: str, answer: str) -> bool:
        words, wanted = tokens(text), tokens(answer)
        return any(words[at : at + len(wanted)] == wanted for at in range(len(words) - len(wanted) + 1))

    generator = random.Random(0)
    for _ in range(2000):
        text, answer = ("".join(generator.choices("aAé.- 1İß", k=size)) for size in (12, generator.randint(1, 3)))
        if tokens(answer):
            assert has_answer(text, [answer]) is loop(text, answer), (text, answer)
