from __future__ import annotations

import pytest

from hf_dense.data.languages import LANGUAGES
from hf_dense.data.sentences import join_sentences, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["如果需要退货,请联系客服。", "几天之内可以退？", "三天！"],  # noqa: RUF001
        ["「はい。」と言った。", "半角｡", "次へ"],
    ],
)
def test_stops_without_a_space_behind_them_end_sentences(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences
    assert join_sentences(sentences) == "".join(sentences)


@pytest.mark.parametrize("sentences", [["यह है।", "क्या है?", "ठीक।"], ["هل يمكن؟", "نعم.", "لا۔"]])  # noqa: RUF001
def test_stops_of_other_scripts_end_sentences(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences
    assert join_sentences(sentences) == " ".join(sentences)


@pytest.mark.parametrize(
    "sentences",
    [
        ["Das ist z. B. für die, denen es Dr. Müller am 1. Januar bzw. vorher gesagt hat.", "Und er war es nicht."],
        ["El Sr. Gómez, que vive en la Av. Mayor, p. ej. con los de la casa, no es de aquí.", "Se lo dice a él."],
    ],
)
def test_abbreviations_are_those_of_the_language(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


def test_a_short_paragraph_has_the_language_of_those_around_it() -> None:
    text = "Der Band erschien im Aug. 1990 in Bonn. Preis: Abb. 3."
    german = next(language for language in LANGUAGES if language.name == "german")
    assert split_sentences(text) != split_sentences(text, german)
    assert split_sentences(text, german) == ["Der Band erschien im Aug. 1990 in Bonn.", "Preis: Abb. 3."]
