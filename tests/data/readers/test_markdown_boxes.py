"""Boxes, tabs, notes and definitions in Markdown: titles and what is inside are read, marks are not."""

from __future__ import annotations

import pytest

from hf_dense.data.readers.markdown import read_markdown


def texts(content: str, **options: bool) -> list[str]:
    """The paragraphs that are read of a text, whose code is dropped."""
    return [
        part for section in read_markdown(content, "drop", **options).sections for part in section.text.split("\n\n")
    ]


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (":::note Read *this*\nCare.\n:::\n", ["Read this.", "Care."]),
        (":::note[Your **title**]{.x}\n\nCare.\n\n:::\n", ["Your title.", "Care."]),
        ("::: danger STOP\nCare.\n:::\n", ["STOP.", "Care."]),
        ("::::info Outer\n\n:::tip\n\nCare.\n\n:::\n\n::::\n", ["Outer.", "Care."]),
        ('::: {.callout-note title="Why?"}\nCare.\n:::\n', ["Why?", "Care."]),
        ("::::: {#special .sidebar}\nCare.\n:::::::::\n", ["Care."]),
        (':::image source="a=b" alt-text="A screen":::\n\n:::row:::\nCare.\n:::row-end:::\n', ["Care."]),
        (
            '!!! note "Important"\n\n    Be *careful*.\n\n    Very.\n\nAfter.\n',
            ["Important.", "Be careful.", "Very.", "After."],
        ),
        (
            'Before.\n??? tip "Why?"\n    Care.\n\n    !!! danger\n        Inner.\n',
            ["Before.", "Why?", "Care.", "Inner."],
        ),
        ('=== "Linux"\n\n    Run it.\n\n=== "Mac"\n\n    - Go.\n', ["Linux.", "Run it.", "Mac.", "Go."]),
        ('!!! warning inline end "Left"\n\n    Care.\n\n        code\n', ["Left.", "Care."]),
        ("!!! Watch out, it burns.\n", ["!!! Watch out, it burns."]),
        ("> [!WARNING]- Take *care*\n> Of it.\n", ["Take care.", "Of it."]),
        ("Not [!NOTE] a mark.\n", ["Not [!NOTE] a mark."]),
    ],
)
def test_titles_of_boxes_and_what_is_in_them(content: str, read: list[str]) -> None:
    assert texts(content) == read


def test_notes_at_the_foot_are_read_without_their_marks() -> None:
    content = "A claim[^1] and[^b].\n\n[^1]: The *proof*.\n[^b]: http://a\n\n    More of it.\n\nThe end.\n"
    assert texts(content) == ["A claim and.", "The proof.", "http://a", "More of it.", "The end."]
    assert texts("Letters [^a-z] alone, `[^1]:`.") == ["Letters [^a-z] alone, [^1]:."]


def test_definitions_are_read_without_their_marks() -> None:
    content = "Term\n: Its meaning.\n\n    More.\n\nOther\n\n:   Its own.\n"
    assert texts(content) == ["Term", "Its meaning.", "More.", "Other", "Its own."]


def test_a_line_below_a_heading_is_no_tab() -> None:
    page = read_markdown("Title\n===\n\nText.\n", "keep")
    assert (page.title, page.sections[0].text) == ("Title", "Text.")


@pytest.mark.parametrize("mark", [": ", "[^a]: "])
def test_marks_behind_marks_end(mark: str) -> None:
    assert texts(mark * 5000 + "end")[-1].endswith("end")
