"""The parts of a page, in both forms."""

from __future__ import annotations

from hf_dense.evaluation.page import Code, Heading, Picture, Table, as_html, as_markdown

BLOCKS = [Heading("A <b>"), "5 * 4 < 3", Code("search '<x>' && *y*\nnext"), Table(("", "a|b"), [("<i>", "`c`")])]


def test_html_runs_nothing_and_shows_all() -> None:
    page = as_html("<script>", BLOCKS)
    assert "<script>" not in page
    assert "<pre>search &#x27;&lt;x&gt;&#x27; &amp;&amp; *y*\nnext</pre>" in page
    assert "<td>&lt;i&gt;</td>" in page
    assert "td, h1, h2, h3 { unicode-bidi: plaintext; }" in page, "what is Arabic runs from right to left"


def test_a_picture_is_shown_on_the_page_and_named_in_markdown() -> None:
    blocks = [Picture(b"\x89PNG", "A plot")]
    assert '<img alt="A plot" src="data:image/png;base64,iVBORw==">' in as_html("title", blocks)
    assert "*A plot: a picture, on the HTML page.*" in as_markdown("title", blocks)


def test_markdown_keeps_code_as_it_is_and_escapes_the_rest() -> None:
    page = as_markdown("title", BLOCKS)
    assert "\n    search '<x>' && *y*\n    next\n" in page
    assert "5 \\* 4 &lt; 3" in page
    assert "a\\|b" in page
