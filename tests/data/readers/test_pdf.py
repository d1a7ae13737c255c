"""PDF files: words, paragraphs, headings, and what is no text of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import pytest
from pdf_files import write_pdf

from hf_dense.data.readers.kinds import read_page
from hf_dense.data.readers.page import Page

FILLING = [f"Sentence {word} says a thing." for word in ("one", "two", "three", "four", "five", "six", "seven")]
LARGE = ["Who opens it", "while it runs", "has it in the", "kitchen."]  # too many lines for a heading


def read(folder: Path, *pages: Sequence[str], title: str = "", outline: Sequence[tuple[int, str, int]] = ()) -> Page:
    file = folder / "a.pdf"
    file.write_bytes(write_pdf(pages, title, outline))
    return read_page(file)


def text_of(page: Page) -> str:
    return "\n\n".join(section.text for section in page.sections)


def test_words_of_justified_print_stay_apart(tmp_path: Path) -> None:
    assert text_of(read(tmp_path, ["The\tbuild\tdaemons\twill\tattempt\tto\tbuild\tit."])) == (
        "The build daemons will attempt to build it."
    )


def test_lines_of_print_are_joined_and_broken_words_with_them(tmp_path: Path) -> None:
    page = read(tmp_path, ["It is recom-", "mended to read text in UTF-", "8, and to go on", "reading."])
    assert text_of(page) == "It is recommended to read text in UTF-8, and to go on reading."


def test_a_sentence_goes_on_from_one_page_to_the_next(tmp_path: Path) -> None:
    page = read(tmp_path, ["One sentence.", "A second that is inter-"], ["rupted here.", "A third."], ["A fourth."])
    assert text_of(page) == "One sentence. A second that is interrupted here. A third.\n\nA fourth."


def test_items_of_lists_are_paragraphs(tmp_path: Path) -> None:
    page = read(tmp_path, ["You need:", "• a pump", "• two valves, one", "of them closed", "• time"])
    assert text_of(page) == "You need:\n\na pump.\n\ntwo valves, one of them closed.\n\ntime."


def test_headings_are_those_of_the_outline(tmp_path: Path) -> None:
    page = read(
        tmp_path,
        ["Contents", "1 Install . . . . . . . 2", "1.1 On Windows ..... 2", "2 Use . . . . . 3"],
        ["1 Install", "Unpack it.", "1.1 On", "Windows", "Run install.exe on it."],
        ["CHAPTER 2", "USE", "Install it before you use it."],
        title="Guide",
        outline=[(1, "Install", 1), (2, "On Windows", 1), (1, "Use", 2), (2, "Not there", 2)],
    )
    assert page.title == "Guide"
    assert [(section.path, section.text) for section in page.sections] == [
        ("", "Contents"),
        ("Install", "Install.\n\nUnpack it."),
        ("Install > On Windows", "On Windows.\n\nRun install.exe on it."),
        ("Use", "Use.\n\nInstall it before you use it."),
    ]


def test_without_an_outline_headings_have_larger_letters(tmp_path: Path) -> None:
    page = read(
        tmp_path,
        ["+++Guide", "++Install", *FILLING, "+On", "+Windows", *FILLING[:3]],
        ["++Use", *FILLING[:5], *(f"+{line}" for line in LARGE), *FILLING],
    )
    assert page.title == "Guide"
    assert [(section.path, section.text) for section in page.sections] == [
        ("Install", f"Install.\n\n{' '.join(FILLING)}"),
        ("Install > On Windows", f"On Windows.\n\n{' '.join(FILLING[:3])}"),
        ("Use", f"Use.\n\n{' '.join([*FILLING[:5], *LARGE, *FILLING])}"),
    ]


def test_a_title_that_nothing_names_is_the_largest_line_of_the_first_page(tmp_path: Path) -> None:
    pages = [["++Of Pumps", "A. Writer", "+Use", *FILLING], ["+Repair", *FILLING]]
    (tmp_path / "a.pdf").write_bytes(write_pdf(pages, outline=[(1, "Use", 0)], stamp="Number 7 of a series"))
    page = read_page(tmp_path / "a.pdf")
    assert (page.title, [section.path for section in page.sections]) == ("Of Pumps", ["", "Use"])
    alike = [["++One", *FILLING], ["++Two", *FILLING]]
    assert read(tmp_path, *alike, outline=[(1, "One", 0), (1, "Two", 1)]).title == ""


def test_many_lines_in_larger_letters_are_no_headings(tmp_path: Path) -> None:
    lines = [line for sentence in FILLING for line in (f"+{sentence[:12]}", sentence, sentence)]
    assert [section.path for section in read(tmp_path, lines).sections] == [""]


def test_headers_and_footers_with_page_numbers_are_left_out(tmp_path: Path) -> None:
    pages = [["Of pumps", sentence, f"{number} / 12"] for number, sentence in enumerate(FILLING, start=3)]
    pages[4].insert(0, "Confidential")
    assert text_of(read(tmp_path, *pages)) == "\n\n".join(
        [f"Of pumps {FILLING[0]}", *FILLING[1:4], f"Confidential Of pumps {FILLING[4]}", *FILLING[5:]]
    )


def test_headers_of_left_and_right_pages_and_of_chapters(tmp_path: Path) -> None:
    left = [[f"{number} Chapter {number // 4}. Pumps", FILLING[number - 15]] for number in (16, 18, 20)]
    right = [["The guide", FILLING[number - 15], str(number)] for number in (15, 17, 19, 21)]
    pages = [page for both in zip_longest(right, left, fillvalue=[]) for page in both]
    assert text_of(read(tmp_path, *pages)) == "\n\n".join([f"The guide {FILLING[0]}", *FILLING[1:]])


def test_what_is_filled_into_a_form_is_read(tmp_path: Path) -> None:
    (tmp_path / "form.pdf").write_bytes(write_pdf([["Name of the client:"], ["The end."]], field="ACME Limited"))
    assert text_of(read_page(tmp_path / "form.pdf")) == "Name of the client: ACME Limited The end."


def test_a_page_number_below_another_line_of_the_header(tmp_path: Path) -> None:
    pages = [["Draft", f"{number} The guide", sentence] for number, sentence in enumerate(FILLING, start=15)]
    assert text_of(read(tmp_path, *pages)) == "\n\n".join([f"Draft 15 The guide {FILLING[0]}", *FILLING[1:]])


def test_page_numbers_before_the_first_chapter(tmp_path: Path) -> None:
    assert text_of(read(tmp_path, ["Preface.", "xiv"], ["civil", "law."])) == "Preface.\n\ncivil law."


def test_what_only_looks_like_a_header_is_text(tmp_path: Path) -> None:
    starts = ["Syntax:", "a", "b", "Syntax:", "c", "d", "Syntax:"]
    ends = [f"{number} Of which note {number} speaks." for number in range(1, 8)]
    pages = [[start, sentence, end] for start, sentence, end in zip(starts, FILLING, ends, strict=True)]
    words = text_of(read(tmp_path, *pages))
    assert words.count("Syntax:") == 3
    assert all(end in words for end in ends)


def test_a_heading_that_stands_first_is_no_page_number(tmp_path: Path) -> None:
    pages = [[f"{number} {sentence[:12]}", sentence, str(number)] for number, sentence in enumerate(FILLING, start=1)]
    outline = [(1, sentence[:12], number) for number, sentence in enumerate(FILLING)]
    page = read(tmp_path, *pages, outline=outline)
    assert [section.path for section in page.sections] == [sentence[:12] for sentence in FILLING]
    assert page.sections[2].text == f"Sentence thr.\n\n{FILLING[2]}"


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Pump manual", "Pump manual"),
        ("Microsoft Word - Pump manual", "Pump manual"),
        ("Microsoft Word - pump_v2.docx", ""),
        ("pump.indd", ""),
        ("untitled", ""),
    ],
)
def test_titles_that_printing_programs_make_up_are_none(tmp_path: Path, written: str, title: str) -> None:
    assert read(tmp_path, ["Words."], title=written).title == title


def test_a_title_that_is_no_unicode_is_none(tmp_path: Path) -> None:
    content = write_pdf([["Use", "Words."]], "Title", [(1, "Use", 0), (1, "Other", 0)])
    for written in (b"(Title)", b"(Other)"):
        assert written in content
        content = content.replace(written, b"<FEFFD83D0041>")
    (tmp_path / "a.pdf").write_bytes(content)
    assert text_of(read_page(tmp_path / "a.pdf")).endswith("Words.")


def test_pages_without_text(tmp_path: Path) -> None:
    assert text_of(read(tmp_path, [], [])) == ""
    assert text_of(read(tmp_path, [], ["Words."], [])) == "Words."
