"""What nearly all pages of a site say stays on the first one, and headings, labels and all else everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_dense.data.boilerplate import Boilerplate, drawn_evenly
from hf_dense.data.documents import DocumentReader
from hf_dense.data.readers.page import Section

COUNT = "left-out paragraphs that most pages have"


def page(number: int, *more: str) -> str:
    said = "".join(f"<p>{text}</p>" for text in more)
    return (
        f"<title>Pump {number}</title><p>We use cookies to make this site work.</p><h1>Pump {number}</h1>"
        f"<h2>Overview</h2><p>Pump number {number} moves water.</p><dl><dt>Parameters:</dt><dd>rate {number}</dd></dl>"
        f"{said}<p>Was this page helpful?</p>"
    )


def write(folder: Path, pages: int, shared: int = 0) -> Path:
    folder.mkdir()
    for number in range(pages):
        more = ("All pumps need oil.",) if number < shared else ()
        (folder / f"{number:02}.html").write_text(page(number, *more))
    return folder


def test_what_all_pages_say_stays_on_the_first(tmp_path: Path) -> None:
    reader = DocumentReader(str(write(tmp_path / "site", 12)))
    first, *others = reader
    assert "cookies" in first.text
    assert "helpful" in first.text
    for number, other in enumerate(others, start=1):
        assert [section.text for section in other.sections] == [
            f"Overview.\n\nPump number {number} moves water.\n\nParameters:\n\nrate {number}"
        ]
    assert reader.counts[COUNT] == 22
    assert [document.text for document in reader] == [first.text, *(other.text for other in others)], "read again"
    assert reader.counts[COUNT] == 22


@pytest.mark.parametrize(("pages", "shared", "gone"), [(20, 15, 14), (20, 14, 0), (9, 9, 0)])
def test_it_takes_three_quarters_of_ten_pages(pages: int, shared: int, gone: int, tmp_path: Path) -> None:
    texts = [document.text for document in DocumentReader(str(write(tmp_path / "site", pages, shared)))]
    assert sum("oil" in text for text in texts) == shared - gone


def test_texts_and_tables_are_no_sites(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number}.txt").write_text(f"Pump {number}.\n\nAll rights reserved.")
    assert all("reserved" in document.text for document in DocumentReader(str(tmp_path)))


def test_a_broken_page_costs_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path / "site", 12)
    (folder / "05.html").write_bytes(b"<p>\xff</p>")
    reader = DocumentReader(str(folder))
    assert sum("cookies" in document.text for document in reader) == 1
    assert reader.counts["broken UTF-8"] == 1


def test_a_section_of_which_nothing_is_left_goes() -> None:
    pages = [(Section("", "Read on."), Section("A", f"A.\n\nText {number}.")) for number in range(10)]
    boilerplate = Boilerplate(pages)
    assert boilerplate.removed_from(pages[0]) == pages[0]
    assert boilerplate.removed_from(pages[1]) == pages[1][1:]


def test_pages_are_drawn_from_all_of_them() -> None:
    assert drawn_evenly(range(9)) == []
    assert drawn_evenly(range(10)) == list(range(10))
    assert drawn_evenly(range(400)) == list(range(0, 400, 10))
