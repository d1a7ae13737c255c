"""Windows-1252 is told from other encodings, or not read."""

# ruff: noqa: RUF001

from __future__ import annotations

from pathlib import Path

import pytest

from hf_dense.data.documents import DocumentReader
from hf_dense.data.encodings import windows_text
from hf_dense.data.labels import read_pairs

GERMAN = "Die Tür ist für uns zu groß, und das ist nicht gut – „sehr“ schade, weil sie auf die Straße geht."
RUSSIAN = "Это не то, что он сказал, и я не знаю, как это было для них, но все так и есть, а мы там."
IN_WINDOWS = [
    GERMAN,
    "L’été où l’on a vu les bœufs, c’était à la ferme et ça coûte 5 € pour les élèves qui sont dans une école.",
    "El niño que está en la casa no quiere ir a los montes, y ¿por qué no? Porque son muy altos para él.",
    "Não sei o que é isso, mas a ação que ele fez para nós foi uma das mais difíceis, e não só por um dia.",
    "Perché non è così che si fa, e il caffè che ho preso con un amico è più buono di quello della città.",
    "Det är så att vi inte har någon ström på ön, och det var inte för att de som bor där är för få.",
    "The café that he is at is not for them, and it’s “good” to be there – as a protégé of his.",
    "Schlüsselübergabe in Köln",
    "Es hat 20 °C in der Höhle, café.",
    "Das ist für die Gäste à la carte, und nicht nur für André und Zoë, die es so mit der Küche haben will…",
]
ELSEWHERE = [
    *((GERMAN.replace("–", "-").replace("„", "").replace("“", ""), name) for name in ("cp850", "cp437", "mac_roman")),
    (IN_WINDOWS[1].replace("’", "'").replace("œ", "oe").replace("€", "euros"), "cp850"),
    (IN_WINDOWS[5], "cp850"),
    (RUSSIAN, "cp1251"),
    (RUSSIAN, "koi8_r"),
    ("Az idő szép volt, és a hajó még nem indult el, de ő már ott várt a parton, és azt mondta, hogy jön.", "cp1250"),
    ("Kůň se na to podíval a šel do lesa, kde už o tom nikdo nic nevěděl, ale ne tak, jak by se dalo.", "cp1250"),
    ("Nu a fost o zi în care să nu se ducă la ţară, şi cu el era mereu un câine care îl iubea mult.", "cp1250"),
    ("Żółw i jeż, to nie są zwierzęta, które się lubią, ale do tej pory od lat są na łące za domem.", "cp1250"),
    ("The name that he has is Janáček and not Dvořák, as it is said in the book of Erdős to them.", "cp1250"),
    ("Bu şey için çok değil, ama o da bir gün olur ve ben de onu görürüm, ne de olsa İstanbul.", "cp1254"),
    ("Το σπίτι είναι μεγάλο και η πόρτα του είναι μικρή, αλλά δεν πειράζει για εμάς.", "cp1253"),
    ("היה", "cp1255"),
    ("čaj, kůň", "cp1250"),
    ("był żal", "cp1250"),
    ("Le colis est devant la porte, et il n'a pas été renvoyé au magasin par ceux qui sont dans la maison.", "cp850"),
    ("El paquete está en la puerta, y no fue enviado de vuelta a la tienda por los que viven en esta casa.", "cp850"),
    ("señor", "mac_roman"),
    ("là", "cp850"),
    ("The end of it is not to be, as it was for them and that is it…", "mac_roman"),
    ("są", "iso8859_2"),
    ("chuť", "iso8859_2"),
    ("Straße und Fluß sind ganz naß", "mac_roman"),
    ("これは日本語の文章です。とても長い文章ではありませんが、十分です。", "cp932"),
]


@pytest.mark.parametrize("text", IN_WINDOWS)
def test_languages_that_are_written_in_windows_1252(text: str) -> None:
    assert windows_text(text.encode("cp1252")) == text


@pytest.mark.parametrize(("text", "encoding"), ELSEWHERE)
def test_no_other_encoding_is_taken_for_it(text: str, encoding: str) -> None:
    assert windows_text(text.encode(encoding)) is None


def test_a_text_in_two_encodings_is_not_read() -> None:
    assert windows_text(GERMAN.encode("cp1252") + b"\n" + GERMAN.encode()) is None
    assert windows_text("“It’s” in UTF-8, and then".encode() + " – it’s not.".encode("cp1252")) is None
    assert windows_text("A text that was cut off within a quote: “".encode()[:-1]) is None


def test_documents_and_tables_in_it_are_read_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, text in (("a.txt", GERMAN), ("b.md", f"# Tür\r\n\r\n{GERMAN}"), ("c.csv", f'id;text\n1;"{GERMAN}"\n')):
        (tmp_path / name).write_bytes(text.encode("cp1252"))
    (tmp_path / "d.txt").write_bytes(GERMAN.replace("„", "").encode("cp850", "ignore"))
    reader = DocumentReader(str(tmp_path))
    assert [document.text for document in reader] == [GERMAN] * 3
    assert reader.counts["read as Windows-1252, being no UTF-8"] == 2
    assert (
        caplog.messages[0]
        == f"{tmp_path / 'c.csv'} is no UTF-8; it is read as Windows-1252, for which its letters and words speak."
    )
    assert caplog.messages[1:] == [
        "Documents read as Windows-1252, being no UTF-8: 'a.txt', 'b.md'",
        "Left out, broken UTF-8: 'd.txt'",
    ]


def test_of_a_long_table_broken_rows_alone_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_dense.data.rows.MAX_BYTES", 200)
    rows = [b"text", b"A caf\xe9 that was there.", *[b"Words of the year."] * 9, f'"{GERMAN}"'.encode()]
    (tmp_path / "long.csv").write_bytes(b"\n".join(rows))
    reader = DocumentReader(str(tmp_path / "long.csv"))
    assert [document.text for document in reader][-1] == GERMAN
    assert reader.counts["broken UTF-8"] == 1


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_pairs_as_excel_writes_them(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "pairs.csv").write_bytes(f'query;positive\r\nWas ist mit der Tür?;"{GERMAN}"\r\n'.encode(encoding))
    assert [*read_pairs(tmp_path / "pairs.csv").queries.values()] == ["Was ist mit der Tür?"]
