"""What each reader finds in its kind of file: title, sections, tables as sentences, code as asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE

from hf_dense.data.readers.html import read_html
from hf_dense.data.readers.kinds import KINDS, read_page
from hf_dense.data.readers.markdown import read_markdown
from hf_dense.data.readers.page import Heading, UnreadableError, as_item, as_sentence, build_page
from hf_dense.data.readers.pandoc import pandoc_formats
from hf_dense.data.readers.rst import read_rst

MARKDOWN = """\
# Guide

Words *before* [all](http://a) sections
in two lines.

## Install: {#install}

### On Linux

Run it:

```bash
pip  install it
```

## Options

| Option | Default |
|---|---|
| `--code` | keep<br>all |
| other | |
"""

HTML = """\
<html><title>Guide</title><nav><p>menu</p></nav><h1>Guide<a class="headerlink">¶</a></h1>
<p>Words <i>before</i> all sections in <a href="x">two</a> lines.</p><script>no</script>
<h2>Install:</h2><h3>On Linux</h3><p>Run it:</p><pre>pip  install it</pre>
<h2>Options</h2><table><tr><th>Option</th><th>Default</th></tr>
<tr><td><code>--code</code></td><td>keep<br>all</td></tr><tr><td>other</td><td></td></tr></table></html>
"""

RST = """\
Guide
=====

Words *before* :ref:`all <a>` sections
in two lines.

Install:
--------

On Linux
~~~~~~~~

Run it::

    pip  install it

Options
-------

======== ========
Option   Default
======== ========
--code   keep all
other
======== ========
"""


def notebook() -> str:
    def cell(kind: str, source: str, **more: Any) -> dict[str, Any]:
        return {"cell_type": kind, "id": str(len(source)), "metadata": {}, "source": source, **more}

    before, code, after = (
        MARKDOWN.partition("```bash\npip  install it\n```\n")[0],
        "pip  install it",
        MARKDOWN.split("```")[2],
    )
    output = {"output_type": "stream", "name": "stdout", "text": "what it gave"}
    cells = [cell("markdown", before), cell("code", code, outputs=[output], execution_count=1), cell("markdown", after)]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})


def write_docx(path: Path) -> None:
    document = docx.Document()
    document.add_heading("Guide", 0)
    document.add_paragraph("Words before all sections in two lines.")
    document.add_heading("Install:", 1)
    document.add_heading("On Linux", 2)
    document.add_paragraph("Run it:")
    document.styles.add_style("Source Code", 1)
    document.add_paragraph("pip  install it", style="Source Code")
    document.add_heading("Options", 1)
    table = document.add_table(3, 2)
    values = ["Option", "Default", "--code", "keep all", "other", ""]
    for cell, value in zip((cell for row in table.rows for cell in row.cells), values, strict=True):
        cell.text = value
    for cell in table.rows[0].cells:
        cell.paragraphs[0].runs[0].bold = True
    document.save(str(path))


WRITERS: dict[str, Callable[[Path], object]] = {
    "guide.md": lambda path: path.write_text(MARKDOWN),
    "guide.markdown": lambda path: path.write_text(MARKDOWN.replace("\n", "\r\n"), newline=""),
    "guide.mdx": lambda path: path.write_text(
        f"import A from './a'\n\nexport const b = 1\n\n{MARKDOWN}\n\n{{/* no */}}\n"
    ),
    "guide.html": lambda path: path.write_text(HTML),
    "guide.xhtml": lambda path: path.write_text('<?xml version="1.0" encoding="utf-8"?>' + HTML),
    "guide.rst": lambda path: path.write_text(RST),
    "guide.ipynb": lambda path: path.write_text(notebook()),
    "guide.docx": write_docx,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_says_the_same(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    page = read_page(tmp_path / name)
    assert page.title == "Guide"
    assert [(section.path, section.text.split("\n\n")) for section in page.sections] == [
        ("", ["Words before all sections in two lines."]),
        ("Install: > On Linux", ["Install.", "On Linux.", "Run it:", "pip install it"]),
        ("Options", ["Options.", "Option: --code; Default: keep all.", "Option: other."]),
    ]
    assert "pip" not in str(read_page(tmp_path / name, "drop").sections)
    assert "\n\n``` pip install it ```" in read_page(tmp_path / name, "fence").sections[1].text


@pytest.mark.parametrize(
    ("front", "title", "text"),
    [
        ("---\ntitle: The guide\ndescription: What it is\n---\n# Guide\n\n", "The guide", "What it is.\n\nWords."),
        ("---\ntitle: 2026-01-02\n---\n# Guide\n\n", "2026-01-02", "Guide.\n\nWords."),
        ("+++\ntitle = 'Hugo'\n+++\n", "Hugo", "Words."),
        ("---\ntitle: [unclosed\n---\n# Guide\n\n", "Guide", "Words."),
        ("---\ntitle: [a, b]\n---\n", "", "Words."),
        ("---\ntitle: !!python/name:os.system\n---\n", "", "Words."),
        ("***\nnot front matter\n***\n\n", "", "not front matter\n\nWords."),
    ],
)
def test_front_matter(front: str, title: str, text: str) -> None:
    page = read_markdown(f"{front}Words.\n", "keep")
    assert (page.title, "\n\n".join(section.text for section in page.sections)) == (title, text)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (":::tip Title\n\nA tip.\n\n:::\n", "Title.\n\nA tip."),
        ("> [!NOTE]\n> A note.\n", "A note."),
        ("```{note}\n:class: x\nA note.\n```\n", "A note."),
        ("```{admonition} A *title*\n:class: x\nA note.\n```\n", "A title.\n\nA note."),
        ("~~Old~~ words.\n", "Old words."),
        ("(target)=\nSee {class}`Name`, <b>bold</b>.\n", "See Name, bold."),
        ("<details><summary>More</summary>\n<p>Hidden.</p></details>\n", "More.\n\nHidden."),
        ("- one\n- two\n\n  > # quoted\n", "one.\n\ntwo.\n\nquoted."),
    ],
)
def test_what_sites_write_in_markdown(content: str, text: str) -> None:
    assert "\n\n".join(section.text for section in read_markdown(content, "keep").sections) == text


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (
            "<td rowspan=2>A</td><td>1</td><td>2</td></tr><tr><td>3</td><td>4</td>",
            ["a: A; b: 1; c: 2.", "a: A; b: 3; c: 4."],
        ),
        ("<td>A</td><td colspan=2>1</td>", ["a: A; b: 1; c: 1."]),
        ("<td colspan=3>All</td></tr><tr><td>A</td><td>1</td><td>2</td>", ["a: All.", "a: A; b: 1; c: 2."]),
        (
            "<td rowspan=2>A</td><td colspan=2>1</td></tr><tr><td colspan=2>2</td>",
            ["a: A; b: 1; c: 1.", "a: A; b: 2; c: 2."],
        ),
        ("<td colspan=900 rowspan=x>A</td><td rowspan=0>1</td>", ["a: A; b: 1."]),
    ],
)
def test_cells_of_html_over_several_rows_or_columns_are_in_each(rows: str, text: list[str]) -> None:
    table = f"<table><tr><th>a</th><th>b</th><th>c</th></tr><tr>{rows}</tr></table>"
    assert read_html(table, "keep").sections[0].text.split("\n\n") == text


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (
            "<tr><th rowspan=2>City<th colspan=2>People<tr><th>2010<th>2020<tr><td>Bern<td>12<td>13",
            ["City: Bern; People 2010: 12; People 2020: 13."],
        ),
        ("<thead><tr><td>a<td>b</thead><tr><td>1<td>2", ["a: 1; b: 2."]),
        ("<tr><th>Voltage<td>230 V<tr><th>Weight<td>12 kg", ["Voltage: 230 V.", "Weight: 12 kg."]),
        ("<tr><th colspan=2>Pump<tr><th>V<td>230<tr><th>Weight<td>12 kg", ["Pump.", "V: 230.", "Weight: 12 kg."]),
        ("<tr><th>a<th>b<tr><th>1<th>2", ["a: 1; b: 2."]),
        ("<tr><td>left<td>right<tr><td>below<td>there", ["left", "right", "below", "there"]),
    ],
)
def test_headings_of_html_tables_in_several_rows_and_before_them(table: str, text: list[str]) -> None:
    assert read_html(f"<table>{table}</table>", "keep").sections[0].text.split("\n\n") == text


def test_heads_of_html_tables_over_several_columns() -> None:
    table = "<table><tr><th colspan=2>a</th><th>b</th></tr><tr><td>1</td><td>2</td><td>3</td></tr></table>"
    assert read_html(table, "keep").sections[0].text == "a: 1; a: 2; b: 3."


def test_rst_knows_sphinx_and_reads_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("SECRET words")
    (tmp_path / "a.rst").write_text(
        f"""\
.. toctree::
   :maxdepth: 2

   elsewhere

.. py:function:: name(argument)
   :noindex:

   Does :class:`~a.b.C` and `a link <http://x>`__, not |this|.

   .. versionadded:: 3.1

      Inside of it.

.. include:: {tmp_path}/secret.txt
.. raw:: html
   :file: {tmp_path}/secret.txt
.. csv-table::
   :file: {tmp_path}/secret.txt
"""
    )
    [section] = read_page(tmp_path / "a.rst").sections
    assert section.text == "name(argument)\n\nDoes C and a link, not |this|.\n\n3.1\n\nInside of it."


def test_import_and_export_are_words_of_mdx_but_where_a_paragraph_begins(tmp_path: Path) -> None:
    (tmp_path / "a.mdx").write_text(
        "import A from './a'\nexport const b = 1\n\n# T\n\n## import files\n\nText.\n\n- export them\n- {/* no */}\n\n"
        "> import this\n\n| Verb | Does |\n|---|---|\n| export it | writes |\n| {/* x */} | import all |\n"
    )
    [section] = read_page(tmp_path / "a.mdx").sections
    assert section.path == "import files"
    assert section.text.split("\n\n") == [
        "import files.",
        "Text.",
        "export them.",
        "import this",
        "Verb: export it; Does: writes.",
        "Does: import all.",
    ]


def rst(content: str) -> list[str]:
    return [text for section in read_rst(content, "keep").sections for text in section.text.split("\n\n")]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (".. deprecated:: 3.2 Use :class:`~a.b.C` instead.\n", ["3.2 Use C instead."]),
        (".. seealso:: The `guide <http://x>`_.\n", ["The guide."]),
        (".. option:: --encoding NAME\n", ["--encoding NAME"]),
        (".. class:: Reader(path, *, strict=False)\n   :noindex:\n", ["Reader(path, *, strict=False)"]),
        (".. class:: Reader(path)\n\n   It reads.\n", ["Reader(path)", "It reads."]),
        ("One.\n\n.. class:: Reader\n\nTwo.\n\n.. class:: small\n\nThree.\n", ["One.", "Reader", "Two.", "Three."]),
        (".. versionchanged:: 3.1\n   It reads more.\n", ["3.1", "It reads more."]),
        ("Words.\n\n.. raw:: html\n\n   <b>bold</b>\n", ["Words."]),
        ("Words.\n\n.. highlight:: python\n.. literalinclude:: a.py\n.. image:: a.png\n   :new: x\n", ["Words."]),
        (".. figure:: a.png\n   :new: x\n\n   A caption.\n", ["A caption."]),
        (".. code-block:: python\n   :linenos:\n\n   x = *a\n", ["x = *a"]),
    ],
)
def test_directives_that_sphinx_knows(content: str, texts: list[str]) -> None:
    assert rst(content) == texts


def test_cells_of_rst_that_span_rows_or_columns_stand_under_their_headings() -> None:
    table = """\
+-------+-------------+------+
| Name  | Size        | Note |
|       +------+------+      |
|       | Min  | Max  |      |
+=======+======+======+======+
| one   | 1    | 2    | low  |
|       +------+------+------+
|       | 3    | 4    | high |
+-------+------+------+------+
| two   | any         | odd  |
+-------+-------------+------+
"""
    assert rst(table) == [
        "Name: one; Min: 1; Max: 2; Note: low.",
        "Name: one; Min: 3; Max: 4; Note: high.",
        "Name: two; Min: any; Max: any; Note: odd.",
    ]


def test_the_first_heading_is_the_title_where_none_is_its_equal() -> None:
    assert build_page([Heading(2, "A"), "x", Heading(2, "B"), "y"]).title == ""
    assert build_page(["x", Heading(2, "Usage"), "y"]).title == ""
    assert build_page(["x", Heading(1, "Guide"), "y"]).title == "Guide"
    assert build_page(["x", Heading(1, "Install"), "y"], "Guide").sections[1].path == "Install"
    assert build_page(["x", Heading(1, "Install"), "y"], "Install - Foo").sections[0].text == "x\n\ny"
    long = build_page([Heading(1, "no heading " * 20), "x"])
    assert (long.title, long.sections[0].path) == ("", "")
    assert build_page([Heading(1, "A"), Heading(2, "nothing under it")]).sections == ()


@pytest.mark.parametrize("kind", [".md", ".html", ".rst"])
def test_deep_nesting_ends(tmp_path: Path, kind: str) -> None:
    content = {
        ".md": "> " * 3000 + "\n\n" + "*a " * 5000 + "words",
        ".html": "<div>" * 500 + "words",
        ".rst": "".join("   " * depth + ".. foo:: a\n\n" for depth in range(60)) + "   " * 60 + "words\n",
    }
    (tmp_path / f"a{kind}").write_text(content[kind])
    assert "words" in str(read_page(tmp_path / f"a{kind}"))


@pytest.mark.parametrize("kind", [".docx", ".pptx", ".epub", ".eml", ".ipynb", ".pdf", ".html"])
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, kind: str) -> None:
    for number, content in enumerate((b"PK\x03\x04 cut off", b"{}", b"[1, 2", b"%PDF-1.4 no")):
        path = tmp_path / f"{number}{kind}"
        path.write_bytes(content)
        with pytest.raises(UnreadableError):
            read_page(path)


def test_a_document_that_grows_when_it_is_unpacked_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_docx(tmp_path / "bomb.docx")
    monkeypatch.setattr("hf_dense.data.readers.packed._MOST", 10_000)
    with pytest.raises(UnreadableError):
        read_page(tmp_path / "bomb.docx")


@pytest.fixture
def pandoc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One that reads AsciiDoc and OpenDocument, and finds the same in all of them, but for what includes a file."""
    page = "<title>Guide</title><p>Words.</p><h1>Install</h1><p>Run it.</p>"
    program = tmp_path / "bin" / "pandoc"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --list-input-formats ]; then printf "asciidoc\\nodt\\n"; exit; fi\n'
        f"if grep -qa include; then exit 99; else printf '{page}'; fi\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    pandoc_formats.cache_clear()
    yield
    pandoc_formats.cache_clear()


def test_some_kinds_go_through_pandoc(tmp_path: Path, pandoc: None) -> None:
    (tmp_path / "a.adoc").write_text("= Guide\n\ninclude::/etc/passwd[]\n")
    with ZipFile(tmp_path / "a.odt", "w") as parts:
        parts.writestr("chapter.xhtml", "<p>Words.</p>")
    for name in ("a.adoc", "a.odt"):
        assert KINDS[Path(name).suffix].lacks() == ""
        found = read_page(tmp_path / name)
        assert (found.title, [section.path for section in found.sections]) == ("Guide", ["", "Install"])
    assert KINDS[".org"].lacks() == "a pandoc that reads org"


def test_a_document_that_pandoc_cannot_read(tmp_path: Path, pandoc: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.odt").write_text("include")
    with pytest.raises(UnreadableError):
        read_page(tmp_path / "a.odt")
    with ZipFile(tmp_path / "b.odt", "w") as parts:
        parts.writestr("chapter.xhtml", "include")
    with pytest.raises(UnreadableError):
        read_page(tmp_path / "b.odt")
    with ZipFile(tmp_path / "bomb.odt", "w") as parts:
        parts.writestr("chapter.xhtml", "words " * 2_000)
    monkeypatch.setattr("hf_dense.data.readers.packed._MOST", 10_000)
    with pytest.raises(UnreadableError):
        read_page(tmp_path / "bomb.odt")


def test_without_pandoc_its_kinds_lack_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    pandoc_formats.cache_clear()
    assert KINDS[".adoc"].lacks() == "a pandoc that reads asciidoc"
    pandoc_formats.cache_clear()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<body><form><h1>T</h1><p>Whole page.</p><input></form></body>", "Whole page."),
        ("<h1>T</h1><p>a<form action=x><input><p>The text goes on here.", "a\n\nThe text goes on here."),
        ("<article><header><h1>T</h1><p>Abstract.</p></header><p>Body.</p></article>", "Abstract.\n\nBody."),
        ("<header><p>Site</p></header><main><h1>T</h1><p>Body.</p></main><aside>More</aside>", "Body."),
        ("<header><p>Site</p></header><h1>T</h1><p>Body.</p><aside>A remark.</aside>", "Body.\n\nA remark."),
        ("<main><h1>T</h1><p>Body.</p><aside><nav>menu</nav>A remark.</aside></main>", "Body.\n\nA remark."),
        ("<h1>T</h1><p>Body.</p><select><option>one</option></select><button>Send</button>", "Body."),
        ("<h1>T</h1><p>Press <button>OK</button> to go on.</p>", "Press OK to go on."),
        ("<h1>T</h1><dl><dt><button>What is X?</button></dt><dd>X is good.</dd></dl>", "What is X?\n\nX is good."),
        ("<header><h1>T</h1><ul><li>Menu</li></ul><p>A banner.</p></header><p>Body.</p>", "A banner.\n\nBody."),
    ],
)
def test_what_a_page_is_about_is_told_from_the_site(tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "a.html").write_text(content)
    page = read_page(tmp_path / "a.html")
    assert (page.title, [section.text for section in page.sections]) == ("T", [text]) or page.sections[
        0
    ].text == f"T.\n\n{text}"


def test_quotes_within_quotes_are_read_as_deep_as_mails_are_answered() -> None:
    quotes = "\n".join(f"{'> ' * depth}Answer {depth}.\n{'> ' * depth}" for depth in range(60, 0, -1))
    text = read_markdown(quotes, "keep").sections[0].text
    assert all(f"Answer {depth}." in text for depth in range(1, 61))
    assert "end" in read_markdown("[" * 5000 + " end", "keep").sections[0].text


FILLED = """
Since {{< glossary text="a Pod" id="pod" >}} is {% include a.html
  b="c_d" %}new, see [this]({{< ref "a_b.md" >}}) and [that]({{ site.url }}{% link a.md %}).

## Care {#care}
{: .no_toc }

* TOC
{:toc}

{{% notice warning %}}
Use `{% raw %}` and {:.2f}.
{{% /notice %}}

    {% kept %}
"""


def test_what_generators_of_sites_fill_in_is_not_read() -> None:
    page = read_markdown(f"---\ntitle: T\n---\n{FILLED}", "keep")
    text = "Since a Pod is new, see this and that.\n\nTOC.\n\nUse {% raw %} and {:.2f}.\n\n{% kept %}"
    assert "\n\n".join(section.text for section in page.sections).replace("Care.\n\n", "") == text
    assert "{: .no_toc }" in "".join(section.text for section in read_markdown(FILLED, "keep").sections)
    assert read_markdown("A {/* remark\nof two lines */}text.", "keep", mdx=True).sections[0].text == "A text."


def test_a_remark_in_markdown_is_read() -> None:
    assert read_markdown("# T\n\n<aside>\nA remark.\n</aside>\n\nEnd.", "keep").sections[0].text == "A remark.\n\nEnd."


WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def word_document(path: Path, *parts: str) -> list[str]:
    """The texts that are read of a document with these parts in its body."""
    from docx.oxml import parse_xml

    document = docx.Document()
    for part in parts:
        document.element.body.insert(len(document.element.body) - 1, parse_xml(part.replace(">", f" {WORD}>", 1)))
    document.save(str(path))
    return [text for section in read_page(path).sections for text in section.text.split("\n\n")]


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def test_word_documents_are_read_as_if_all_changes_were_accepted(tmp_path: Path) -> None:
    assert word_document(
        tmp_path / "a.docx",
        f"<w:p>{run('The limit is ')}<w:ins>{run('five')}</w:ins><w:del><w:r><w:delText>six</w:delText></w:r></w:del>"
        f"{run(' euros.')}</w:p>",
        f"<w:sdt><w:sdtContent><w:p>{run('A field of its own.')}</w:p></w:sdtContent></w:sdt>",
        f"<w:p>{run('Client: ')}<w:sdt><w:sdtContent>{run('ACME')}</w:sdtContent></w:sdt></w:p>",
        f"<w:p>{run('Two')}<w:r><w:br/><w:t>lines</w:t><w:noBreakHyphen/></w:r></w:p>",
        f"<w:p>{run('Beside it')}<w:r><w:pict><w:txbxContent><w:p>{run('a box.')}</w:p></w:txbxContent></w:pict></w:r>"
        "</w:p>",
    ) == ["The limit is five euros.", "A field of its own.", "Client: ACME", "Two lines-", "Beside it", "a box."]


def test_headings_of_word_are_known_by_outline_levels_and_by_what_their_styles_are_based_on(tmp_path: Path) -> None:
    document, level = docx.Document(), "<w:pPr {}><w:outlineLvl w:val='{}'/></w:pPr>"
    based = document.styles.add_style("Firmenkapitel", WD_STYLE_TYPE.PARAGRAPH)
    based.base_style = document.styles["Heading 1"]
    outlined = document.styles.add_style("Abschnitt", WD_STYLE_TYPE.PARAGRAPH)
    outlined.element.append(docx.oxml.parse_xml(level.format(WORD, 1)))
    circle = document.styles.add_style("Kreis", WD_STYLE_TYPE.PARAGRAPH)
    circle.base_style = circle
    for text, style in [("Pumps", based), ("Care", outlined), ("Clean it.", circle), ("Parts", based), ("Text.", None)]:
        paragraph = document.add_paragraph(text, style)
    paragraph._p.insert(0, docx.oxml.parse_xml(level.format(WORD, 9)))
    document.save(str(tmp_path / "a.docx"))
    assert [(section.path, section.text) for section in read_page(tmp_path / "a.docx").sections] == [
        ("Pumps > Care", "Pumps.\n\nCare.\n\nClean it."),
        ("Parts", "Parts.\n\nText."),
    ]


def test_formulas_of_word_are_read_and_hidden_text_is_not(tmp_path: Path) -> None:
    math = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'

    def formula(part: str, first: tuple[str, str], second: tuple[str, str]) -> str:
        inner = "".join(f"<m:{name}><m:r><m:t>{text}</m:t></m:r></m:{name}>" for name, text in (first, second))
        return f"<m:oMath {math}><m:{part}>{inner}</m:{part}></m:oMath>"

    power = formula("sSup", ("e", "x"), ("sup", "2"))
    share = formula("f", ("num", "a"), ("den", "b"))
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>no</w:t></w:r>"
    shown = '<w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>yes</w:t></w:r>'
    parts = f"<w:p>{run('It is ')}{power}{run(' or ')}{share}{run('.')}</w:p>", f"<w:p>{hidden}{shown}</w:p>"
    assert word_document(tmp_path / "a.docx", *parts) == ["It is x^2 or a/b.", "yes"]


def cell(text: str, more: str = "") -> str:
    return f"<w:tc><w:tcPr>{more}</w:tcPr><w:p>{run(text)}</w:p></w:tc>"


def test_tables_of_word_have_a_text_in_each_place_of_a_cell(tmp_path: Path) -> None:
    wide, begins, goes_on = '<w:gridSpan w:val="2"/>', '<w:vMerge w:val="restart"/>', "<w:vMerge/>"
    inner = f"<w:tbl><w:tr>{cell('Key')}{cell('k')}</w:tr></w:tbl>"
    rows = [
        cell("A") + cell("B") + cell("C"),
        cell("high", begins) + cell("wide", wide),
        cell("", goes_on) + cell("b") + f"<w:tc>{inner}<w:p/></w:tc>",
    ]
    table = "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in rows) + "</w:tbl>"
    assert word_document(tmp_path / "a.docx", table) == ["A: high; B: wide; C: wide.", "A: high; B: b; C: Key; k."]


@pytest.mark.parametrize("head", ["bold", "header", "style", ""])
def test_a_table_of_word_with_two_columns_has_its_headings_above_or_before(tmp_path: Path, head: str) -> None:
    document = docx.Document()
    table = document.add_table(3, 2, style="Light Grid" if head == "style" else "Table Grid")
    cells = [place for row in table.rows for place in row.cells]
    for place, value in zip(cells, ["V", "230", "W", "12", "C", ""], strict=True):
        place.paragraphs[0].add_run(value).bold = head == "bold" and value in ("V", "230")
    if head == "header":
        table.rows[0]._tr.get_or_add_trPr().append(docx.oxml.OxmlElement("w:tblHeader"))
    document.save(str(tmp_path / "a.docx"))
    text = read_page(tmp_path / "a.docx").sections[0].text.split("\n\n")
    assert text == (["V: W; 230: 12.", "V: C."] if head else ["V: 230.", "W: 12.", "C."])


def test_a_damaged_word_document_is_unreadable(tmp_path: Path) -> None:
    write_docx(tmp_path / "a.docx")
    content = bytearray((tmp_path / "a.docx").read_bytes())
    at = content.index(b"word/document.xml") + 60
    content[at : at + 40] = bytes(40)
    (tmp_path / "a.docx").write_bytes(content)
    with pytest.raises(UnreadableError):
        read_page(tmp_path / "a.docx")


def test_whatever_a_library_raises_a_file_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pypdfium2

    class OtherError(Exception):
        """One that no reader knows of."""

    def refuse(*given: Any, **named: Any) -> Any:
        raise OtherError

    monkeypatch.setattr(pypdfium2, "PdfDocument", refuse)
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4")
    with pytest.raises(UnreadableError):
        read_page(tmp_path / "a.pdf")


def test_a_broken_pdf_is_unreadable_without_warnings_that_name_no_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4\n garbage")
    with pytest.raises(UnreadableError):
        read_page(tmp_path / "a.pdf")
    assert not caplog.records


def test_what_word_itself_has_written_is_no_text(tmp_path: Path) -> None:
    contents = '<w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj>'
    assert word_document(
        tmp_path / "a.docx",
        f"<w:sdt><w:sdtPr>{contents}</w:sdtPr><w:sdtContent><w:p>{run('Methods 14')}</w:p></w:sdtContent></w:sdt>",
        f"<w:p>{run('Name:')}<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent>{run(' Click here')}"
        "</w:sdtContent></w:sdt></w:p>",
        f"<w:p>{run('bar')}<w:r><w:ptab/></w:r>{run('baz')}</w:p>",
        f"<w:p><w:ruby><w:rt>{run('higashi')}</w:rt><w:rubyBase>{run('East')}</w:rubyBase></w:ruby></w:p>",
    ) == ["Name:", "bar baz", "East"]


def test_a_version_or_a_file_in_a_directive_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.rst").write_text(
        "T\n=\n\n.. versionadded:: 3.2\n\n.. automodule:: foo.bar\n\n.. deprecated:: 3.2 Use the other.\n\n"
        "+-----+-----+\n| K   | V   |\n+=====+=====+\n| a long    |\n+-----+-----+\n| 1   | 2   |\n+-----+-----+\n"
    )
    text = read_page(tmp_path / "a.rst").sections[0].text
    assert "foo.bar" not in text
    assert "3.2 Use the other." in text
    assert text.count("3.2") == 1
    assert text.count("a long") == 1
    assert "K: 1; V: 2." in text


def test_hidden_parts_of_html_are_not_read() -> None:
    hidden = "<p hidden>a<p>seen<ul><li style='color: red; DISPLAY:none'>b<li>too</ul><nav hidden><i hidden>c</i></nav>"
    tabs = "<div role='tabpanel' hidden>tab</div><p hidden='until-found'>found</p><p style='display: block'>shown</p>"
    page = read_html(f"<body style='display: none'><h1>T</h1>{hidden}{tabs}", "keep")
    assert page.sections[0].text.split() == ["seen", "too.", "tab", "found", "shown"]


@pytest.mark.parametrize("parts", [("", ""), ("<thead>", "<tbody>"), ("<caption>C", "</thead>")])
def test_rows_of_html_end_without_an_end(parts: tuple[str, str]) -> None:
    head, body = parts
    rows = "<tr><td><p>Ann<p>Lee<td>3<tr><td>Bob<td><ul><li>4<li>5</ul>"
    page = read_html(f"<h1>T</h1><table>{head}<tr><th>Name<th>Age{body}{rows}</table><p>after", "keep")
    assert page.sections[0].text.split("\n\n")[-3:] == ["Name: Ann Lee; Age: 3.", "Name: Bob; Age: 4 5.", "after"]


def test_an_item_of_html_goes_on_after_code_and_tables() -> None:
    table = "<table><tr><th>a<th>b<tr><td>1<td>2</table>"
    page = read_html(f"<ul><li>flour<pre>500 g</pre>of wheat<li>salt{table}of the sea<li>water</ul><p>Bake it", "keep")
    assert page.sections[0].text.split("\n\n") == [
        "flour.",
        "500 g",
        "of wheat.",
        "salt.",
        "a: 1; b: 2.",
        "of the sea.",
        "water.",
        "Bake it",
    ]


LISTS = {
    ".md": "Do either:\n\n- unpack it\n- ask: why?\n  1. first,\n  2. then `x`\n\n- [ ] a task\n\nNow go\n",
    ".html": "<p>Do either:</p><ul><li><b>unpack</b> it</li><li><p>ask: why?</p><ol><li>first,<li>then <i>x</i></ol>"
    "<li>a task</ul><p>Now go",
    ".rst": "Do either:\n\n- unpack it\n- ask: why?\n\n  1. first,\n  2. then ``x``\n\n- a task\n\nNow go\n",
}


@pytest.mark.parametrize("kind", [*LISTS, ".docx"])
def test_items_of_lists_do_not_run_into_each_other(tmp_path: Path, kind: str) -> None:
    if kind == ".docx":
        document = docx.Document()
        styles = [("Do either:", "Normal"), ("unpack it", "List Bullet"), ("ask: why?", "List Bullet")]
        styles += [
            ("first,", "List Number 2"),
            ("then x", "List Number 2"),
            ("a task", "List Bullet"),
            ("Now go", "Normal"),
        ]
        for text, style in styles:
            document.add_paragraph(text, style=style)
        document.save(str(tmp_path / "page.docx"))
    else:
        (tmp_path / f"page{kind}").write_text(LISTS[kind])
    (section,) = read_page(tmp_path / f"page{kind}", "keep").sections
    assert section.text.split("\n\n") == [
        "Do either:",
        "unpack it.",
        "ask: why?",
        "first,",
        "then x.",
        "a task.",
        "Now go",
    ]


RAISED = {
    ".md": "10<sup>6</sup> m<sup>2</sup> of H<sub>2</sub>O, the 2<sup>nd</sup> time, x<sup>[1](#a)</sup> euros.\n",
    ".html": "<p>10<sup>6</sup> m<sup>2</sup> of H<sub>2</sub>O, the 2<sup>nd</sup> time, x<sup><a href=#a>1</a></sup>"
    " euros.<table><tr><th>is<tr><td>10<sup>6</sup></table>",
    ".rst": "10\\ :sup:`6` m\\ :sup:`2` of H\\ :sub:`2`\\ O, the 2\\ :sup:`nd` time, x\\ [1]_ euros.\n\n.. [1] Note.\n",
}


@pytest.mark.parametrize("kind", [*RAISED, ".docx"])
def test_what_is_written_above_the_line_is_no_part_of_the_number_before(tmp_path: Path, kind: str) -> None:
    if kind == ".docx":
        document = docx.Document()
        paragraph = document.add_paragraph()
        for at, text in enumerate(["10", "6", " m", "2", " of H2O; the 2", "nd", " time; x", "1", " euros."]):
            paragraph.add_run(text.replace(";", ",")).font.superscript = bool(at % 2)
        paragraph.runs[-2]._r.insert(1, docx.oxml.OxmlElement("w:footnoteReference"))
        document.save(str(tmp_path / "page.docx"))
    else:
        (tmp_path / f"page{kind}").write_text(RAISED[kind])
    texts = read_page(tmp_path / f"page{kind}", "keep").sections[0].text.split("\n\n")
    assert texts[0] == "10^6 m^2 of H2O, the 2nd time, x 1 euros."
    assert kind != ".html" or texts[1] == "is: 10^6."


def test_formulas_of_html_and_what_stands_for_a_film() -> None:
    content = (
        "<p>See <math><mfrac><mi>a</mi><mn>2</mn></mfrac></math> and <math><msup><mi>b</mi><mn>3</mn></msup></math>."
        "<p><video>No film.</video>Then <object>no picture</object>more."
    )
    (section,) = read_html(content, "keep").sections
    assert section.text.split("\n\n") == ["See a/2 and b^3.", "No film.", "Then", "no picture", "more."]


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("windows-1252", "cp1252", "Größe “42” in €"),
        ("ISO-8859-1", "cp1252", "Größe “42” in €"),
        ("shift_jis", "cp932", "ポンプを①壁に"),
        ("shift_jis", "utf-8", "ポンプ"),
        ("none", "utf-16", "Größe"),
    ],
)
def test_pages_in_the_encoding_that_they_declare(tmp_path: Path, declared: str, encoding: str, text: str) -> None:
    content = f'<html><head><meta http-equiv="a" content="text/html; charset={declared}"></head><p>{text}</p>'
    (tmp_path / "page.html").write_bytes(content.encode(encoding))
    assert read_page(tmp_path / "page.html").sections[0].text == text


def test_xhtml_declares_its_encoding_in_its_first_line(tmp_path: Path) -> None:
    content = '<?xml version="1.0" encoding="iso-8859-1"?><html><p>Größe</p></html>'
    (tmp_path / "page.xhtml").write_bytes(content.encode("latin-1"))
    assert read_page(tmp_path / "page.xhtml").sections[0].text == "Größe"


@pytest.mark.parametrize("declared", ["utf-8", "zlib", "no-such", "undefined", "ascii"])
def test_a_page_in_another_encoding_than_it_declares_is_broken(tmp_path: Path, declared: str) -> None:
    (tmp_path / "page.html").write_bytes(b"<meta charset=" + declared.encode() + b"><p>caf\xe9</p>")
    with pytest.raises(UnicodeDecodeError):
        read_page(tmp_path / "page.html")


def test_a_text_in_utf_16_is_read_by_its_mark(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Größe\r\n42".encode("utf-16"))
    assert read_page(tmp_path / "a.txt").sections[0].text == "Größe\n42"


@pytest.mark.parametrize("text", ["यह है।", "نعم؟", "ہاں۔", "ဟုတ်။", "可以｡", "够了……", "So!"])  # noqa: RUF001
def test_stops_of_every_script_get_no_second_one(text: str) -> None:
    assert as_sentence(text) == as_item(text) == text


def test_marks_that_go_on_are_those_of_other_scripts_too() -> None:
    assert as_sentence("步骤：") == "步骤."  # noqa: RUF001
    assert as_item("أولا،") == "أولا،"
