from __future__ import annotations

import pytest

from hf_dense.data.languages import LANGUAGES, language_of

SENTENCES = {
    "english": "The parcel is at the door, and it was not sent back to the shop by those who live in that house.",
    "dutch": "Het pakket ligt bij de deur, en het werd niet door de mensen van dat huis naar de winkel gestuurd.",
    "french": "Le colis est devant la porte, et il n'a pas été renvoyé au magasin par ceux qui sont dans la maison.",
    "german": "Das Paket liegt vor der Tür, und es wurde von denen, die in dem Haus sind, nicht zurück geschickt.",
    "italian": "Il pacco è davanti alla porta, e non è stato rimandato al negozio da quelli che sono nella casa.",
    "norwegian": "Pakken ligger ved døren, og den ble ikke sendt tilbake til butikken av dem som er i det huset nå.",
    "portuguese": "O pacote está à porta, e não foi mandado de volta para a loja pelos que estão na casa, mas ficou.",
    "russian": "Посылка лежит возле двери, и она не была отправлена назад в магазин теми, кто был в этом доме до нас.",
    "spanish": "El paquete está en la puerta, y no fue enviado de vuelta a la tienda por los que están en la casa.",
    "swedish": "Paketet ligger vid dörren, och det skickades inte tillbaka till affären av dem som är i det huset.",
}


def test_every_language_is_told() -> None:
    assert [language.name for language in LANGUAGES] == list(SENTENCES)
    for name, sentence in SENTENCES.items():
        assert language_of([sentence] * 12).name == name
        assert language_of([sentence.upper(), sentence] * 6).name == name


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["die das der"],  # too little to tell
        ["0 17 42 1000"] * 50,
        ["for name in names: print(name)"] * 50,
        ["Paczka leży przy drzwiach i nie została odesłana do sklepu przez tych, którzy są w tym domu."] * 50,
        ["Paketti on oven edessä, eivätkä ne, jotka talossa asuvat, lähettäneet sitä takaisin kauppaan."] * 50,
        [SENTENCES["german"], SENTENCES["english"], SENTENCES["english"]] * 20,
    ],
)
def test_what_cannot_be_told_is_read_as_english(texts: list[str]) -> None:
    assert language_of(texts).name == "english"


def test_english_is_told_from_what_is_not_told() -> None:
    german = language_of([SENTENCES["german"]] * 12)
    assert language_of([SENTENCES["english"]] * 12, german).name == "english"
    assert language_of(["0 17 42 1000"] * 50, german) == german


def test_commands_in_between_do_not_matter() -> None:
    commands = ["$ apt-get install the-package && systemctl restart the-service"]
    assert language_of([*[SENTENCES["german"]] * 3, *commands] * 30).name == "german"
