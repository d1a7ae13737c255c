"""Pages of HTML: what is the page's own, and what stands on all pages of its site."""

from __future__ import annotations

import warnings

import pytest

from hf_dense.data.readers.html import read_html


def text_of(content: str) -> str:
    return "\n\n".join(section.text for section in read_html(content, "keep").sections)


@pytest.mark.parametrize(
    "around",
    [
        '<div role="navigation"><h3>Navigation</h3><a href="x">next</a></div>{}',
        '<form role="search"><input> Search this site</form>{}',
        '{}<div role="contentinfo">Created by a program.</div>',
        '<div role="banner">The site</div><div role="main">{}</div><div role="complementary">By the way.</div>',
        '<div class="navheader"><table><tr><th>Use</th></tr><tr><td>Prev</td><td>Next</td></tr></table></div>{}',
        '<div class="toc"><p>Table of Contents</p><ul><li><a href="#a">The use of all pumps</a></li></ul></div>{}',
        '{}<div class="toctree-wrapper compound"><p>Contents:</p><ul><li><a href="b">All the pumps</a></li></ul></div>',
        '{}<div class="buttons no-print">Copy it</div>',
        '<div id="banner"><a href="x">Get the book</a></div>{}<ul class="docnav"><li>The guide</li><li>Next</li></ul>',
        '<div id="titlearea">Pumps 1.0, a library</div><div id="nav-path">Pumps</div>{}<address class="footer">By 1.9',
        '<ul id="menu"><li><a href="a">Home</a> |</li><li><a href="b">Downloads</a></li></ul>{}',
        '<main><h1>Use</h1><p>Open the valve first.</p></main><p>All rights reserved.</p>',
    ],
)  # fmt: skip
def test_what_all_pages_of_a_site_have_is_not_read(around: str) -> None:
    assert text_of(around.format("<h1>Use</h1><p>Open the valve first.</p>")) == "Open the valve first."


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('<div class="sidebar"><p>A box with <a href="x">a link</a>.</p></div>', "A box with a link."),
        ('<div class="contents"><p>The words of the page.</p></div>', "The words of the page."),
        ('<body class="toc"><p><a href="x">All of it is a link.</a></p></body>', "All of it is a link."),
        ("<main><p>A.</p></main><p>Most stands outside.</p>", "A.\n\nMost stands outside."),
        ("<main><p>One part.</p></main><main><p>Another.</p></main>", "One part.\n\nAnother."),
    ],
)
def test_what_is_only_called_so_is_read(content: str, text: str) -> None:
    assert text_of(content) == text


@pytest.mark.parametrize(
    ("title", "heading", "found"),
    [
        ("Install - The guide", "Install", "Install"),
        ("The guide | Install", "Install", "Install"),
        ("Pumps — their use — Guide 3", "Pumps — their use", "Pumps — their use"),
        ("Guide » Use » Install", "Install", "Install"),
        ("What is a pump? - The guide", "What Is a Pump?", "What Is a Pump?"),
        ("guide: Install", "Install", "Install"),
        ("Install: the guide", "Install", "Install: the guide"),
        ("Pump (Factory 2.0 API)", "Class Pump&lt;T&gt;", "Pump"),
        ("Pump (Factory 2.0 API)", "Pumpkins", "Pump (Factory 2.0 API)"),
        ("Installing things | The guide", "Install", "Installing things | The guide"),
        ("Pre-Install - The guide", "Install", "Pre-Install - The guide"),
        ("The guide", "Install", "The guide"),
    ],
)
def test_a_title_is_without_the_name_of_the_site(title: str, heading: str, found: str) -> None:
    page = read_html(f"<title>{title}</title><h1>{heading}</h1><p>Words.</p><h1>Other</h1><p>Words.</p>", "keep")
    assert page.title == found


@pytest.mark.parametrize(
    ("heading", "found"),
    [
        ('<a href="#use">§</a>Use', "Use"),
        ('Use <a class="anchor" href="#use">#</a>', "Use"),
        ("§ 5 Use", "§ 5 Use"),
        ('<a href="#law">§ 5</a> Use', "§ 5 Use"),
        ("Use <button>Copy the path</button>", "Use"),
        ("<button>Use</button>", "Use"),
    ],
)
def test_a_heading_is_without_what_is_beside_it(heading: str, found: str) -> None:
    page = read_html(f"<h2>{heading}</h2><p>Words.</p><h2>Other</h2><p>Words.</p>", "keep")
    assert page.sections[0].path == found


def test_the_sign_that_leads_back_from_a_note_is_no_text() -> None:
    assert text_of('<p>Words<a href="#1">1</a>.</p><p id="1">A note.<a href="#2">↩</a></p>') == "Words1.\n\nA note."


def test_a_title_without_a_heading_is_kept() -> None:
    assert read_html("<title>A - B</title><p>Words.</p>", "keep").title == "A - B"


def test_xhtml_is_read_without_a_word_of_the_parser() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            text_of('<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><p>Words.</p></html>') == "Words."
        )


def test_what_doxygen_has_for_a_heading_is_one() -> None:
    title = '<div class="title">Pump Class Reference<span class="mlabels">abstract</span></div>'
    links = '<div class="summary"><a href="#a">Public Member Functions</a> | <a href="#b">All of the members</a></div>'
    header = f'<div class="header">{links}<div class="headertitle">{title}</div></div>'
    page = read_html(f"{header}<h2>Use</h2><p>Open it.</p>", "keep")
    assert (page.title, page.sections[0].path) == ("Pump Class Reference", "Use")


@pytest.mark.parametrize("kind", ["title", "admonition-title", "caption", "rubric"])
def test_the_title_of_a_box_is_no_part_of_a_sentence(kind: str) -> None:
    box = f'<div><p class="{kind}"><b>Zum Einfrieren</b></p></div><div>Der Hahn ist offen.</div>'
    assert text_of(f"<h1>Use</h1><p>Open the valve.</p>{box}") == (
        "Open the valve.\n\nZum Einfrieren.\n\nDer Hahn ist offen."
    )


def test_a_word_with_soft_hyphens_is_one_word() -> None:
    page = read_html("<title>Donau&shy;dampf&shy;schiff</title><p>Das Donau&shy;dampf&shy;schiff legt ab.</p>", "keep")
    assert (page.title, page.sections[0].text) == ("Donaudampfschiff", "Das Donaudampfschiff legt ab.")
