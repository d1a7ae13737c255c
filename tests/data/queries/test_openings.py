"""Which sentences mean nothing without those before them."""

from __future__ import annotations

import pytest

from hf_dense.data.languages import LANGUAGES, Language
from hf_dense.data.queries.openings import is_dependent

BY_CODE = {language.code: language for language in LANGUAGES}


@pytest.mark.parametrize(
    ("code", "dependent", "alone"),
    [
        ("en", "I saw zebras there.", "In the evening zebras come to the water."),
        ("de", "Dies bietet zwar Vorteile.", "Das Programm verteilt die Aufgaben."),
        ("de", "Hierzu besteht das Programm aus zwei Teilen.", "Diesel treibt den Wagen an."),
        ("fr", "C’est une personne qui participe.", "Les tubes se décomposent en deux catégories."),  # noqa: RUF001
        ("fr", "Pour cela, il devra attendre.", "Un routeur relie plusieurs réseaux."),
        ("es", "Sin embargo, puede descargar el archivo.", "El rendimiento está garantizado."),
        ("it", "Questo comando elenca i file.", "I file di configurazione stanno in una cartella."),
        ("it", "E anche questo è vero.", "E-mail e notizie arrivano ogni giorno."),
        ("no", "Denne listen kan tilpasses.", "Den vanligste ordningen er et roterende arkiv."),
        ("nl", "Het is dus een goed pakket.", "Het systeem bevat een pakket."),
        ("pt", "Isso evita a dupla execução.", "O comando jobs lista os processos."),
        ("ru", "Это простая разметка.", "Команда показывает список групп."),
        ("sv", "Den är inte installerad.", "I katalogen ligger alla filer."),
        ("en", "この情報は基礎です。", "ルールの構文は単純です。"),
        ("en", "但是他没有来。", "斑马在河边喝水。"),
    ],
)
def test_a_sentence_that_begins_so_is_dependent(code: str, dependent: str, alone: str) -> None:
    assert is_dependent(dependent, BY_CODE[code])
    assert not is_dependent(alone, BY_CODE[code])


@pytest.mark.parametrize("language", LANGUAGES)
def test_english_sentences_are_judged_so_in_every_corpus(language: Language) -> None:
    assert is_dependent("They saw the zebras.", language)
    assert is_dependent("The zebras below drink.", language)
