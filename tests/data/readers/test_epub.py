"""Chapters of books are read in the book's order, whatever their files are called."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from hf_dense.data.readers.kinds import read_page
from hf_dense.data.readers.page import UnreadableError

CONTAINER = '<container xmlns="urn:c"><rootfiles><rootfile full-path="O/a.opf"/></rootfiles></container>'
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:title>The Book</dc:title></metadata><manifest><item id="b" href="b%20b.xhtml"/><item id="n" href="nav.xhtml"/>
<item id="a" href="../a.xhtml"/></manifest><spine><itemref idref="n"/><itemref idref="a"/><itemref idref="b"/></spine>
</package>"""
NAVIGATION = "<html><body><nav><ol><li><a href='a'>One</a></li></ol></nav></body></html>"


def write_book(path: Path, container: str = CONTAINER) -> None:
    with ZipFile(path, "w") as parts:
        parts.writestr("META-INF/container.xml", container)
        parts.writestr("O/a.opf", PACKAGE)
        parts.writestr("O/nav.xhtml", NAVIGATION)
        for name, heading in (("a.xhtml", "One"), ("O/b b.xhtml", "Two")):
            parts.writestr(name, f"<html><title>x</title><h1>{heading}</h1><p>It is <b>{heading}</b>.</p></html>")


def test_a_book(tmp_path: Path) -> None:
    write_book(tmp_path / "a.epub")
    page = read_page(tmp_path / "a.epub")
    assert page.title == "The Book"
    assert [(section.path, section.text) for section in page.sections] == [
        ("One", "One.\n\nIt is One."),
        ("Two", "Two.\n\nIt is Two."),
    ]


def test_what_xml_names_is_not_put_in_its_place(tmp_path: Path) -> None:
    names = "".join(f'<!ENTITY e{at} "{f"&e{at - 1};" * 10}">' for at in range(1, 12))
    for entity in (names, '<!ENTITY e11 SYSTEM "file:///etc/passwd">'):
        container = f'<!DOCTYPE c [<!ENTITY e0 "a">{entity}]><container><rootfile full-path="&e11;"/></container>'
        write_book(tmp_path / "a.epub", container)
        with pytest.raises(UnreadableError):
            read_page(tmp_path / "a.epub")


def test_a_book_that_grows_when_it_is_unpacked_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_book(tmp_path / "a.epub")
    monkeypatch.setattr("hf_dense.data.readers.packed._MOST", 100)
    with pytest.raises(UnreadableError):
        read_page(tmp_path / "a.epub")
