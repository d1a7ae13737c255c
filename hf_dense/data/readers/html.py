"""HTML: pages, and what stands of it in Markdown."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Final

from hf_dense.data.readers.page import (
    RAISED,
    Block,
    Code,
    CodeOption,
    Heading,
    Page,
    UnreadableError,
    as_item,
    build_page,
    row_sentence,
    spell_raised,
    table_sentences,
)

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

_HEADINGS: Final = ("h1", "h2", "h3", "h4", "h5", "h6")
_BLOCKS: Final = (
    *("p", "li", "dt", "dd", "blockquote", "td", "th", "caption", "summary", "details"),
    *("div", "section", "article", "main", "ul", "ol", "dl", "table", "tr", "br", "hr", "figure", "figcaption"),
    *("form", "fieldset", "legend", "header", "aside"),
    *("object", "video", "audio"),
)
_SILENT: Final = (
    *("script", "style", "noscript", "template", "nav", "footer", "svg"),
    *("select", "datalist", "dialog"),
)
_ROLES: Final = {  # what pages without the elements of HTML 5 say of their parts
    **{"navigation": "nav", "search": "nav", "contentinfo": "footer"},
    **{"banner": "header", "complementary": "aside", "main": "main"},
}
# Classes and ids of generators' navigation and of what is not printed; and of menus, where most letters are links.
_NAVIGATION: Final = frozenset(
    ("navheader", "navfooter", "docnav", "nav-panel", "sphinxsidebar", "breadcrumb", "breadcrumbs", "mw-editsection")
).union(("titlearea", "nav-path", "navpath", "noprint", "no-print", "d-print-none"))
_MENUS: Final = frozenset(
    ("nav", "navbar", "navigation", "menu", "mainmenu", "submenu", "sidebar", "header", "footer", "pagination")
).union(("toc", "contents", "table-of-contents", "toctree-wrapper", "banner", "summary"))
_ENTITLING: Final = frozenset(("title", "caption", "rubric", "admonition-title"))  # of boxes, figures: no sentences
_ENTITLED: Final = ".headertitle > .title"  # what Doxygen has in the place of a heading
_SAID: Final = (*_HEADINGS, "dt", "summary", "p")  # where a button is a part of what is said
_CONTENT: Final = ("main", "article")  # what is outside of it, where a page has it, is the site's
_TAG: Final = re.compile("<[a-zA-Z]")
_SPAN: Final = re.compile("[1-9][0-9]{0,2}")
_NOT_SHOWN: Final = re.compile(r"(?:^|;)\s*display\s*:\s*none\b", re.IGNORECASE)  # by a style
_DIVIDES: Final = r"(?: [-–—|·•:»] | ?[|»] ?)"  # noqa: RUF001 (between a title and its site's)
_HERE: Final = re.compile("^#")  # where links of generators go, beside headings and notes, whose text is a sign
_ANCHORS: Final = "¶\u200b \t\n"  # what generators put behind a heading, to link to it
# While a page is taken apart: between its blocks, and at the head of those that are no paragraph.
_BREAK, _IS_HEADING, _IS_CODE, _IS_ITEM = "\0", "\1", "\2", "\3"
_MARKS: Final = {ord(mark): " " for mark in (_BREAK, _IS_HEADING, _IS_CODE, _IS_ITEM)}
_ALL_MARKS: Final = {**_MARKS, ord(RAISED): " "}


def read_html(content: str, code: CodeOption) -> Page:
    """The page of an HTML text without scripts, navigation, controls, hidden parts, and headers and asides of the site.

    >>> read_html("<title>A</title><nav><p>menu</p></nav><h1>B</h1><p>Some <b>text</b>.<script>x</script></p>", "keep")
    Page(title='A', sections=(Section(path='', text='B.\\n\\nSome text.'),))

    Raises:
        UnreadableError: it cannot be parsed, or holds no markup at all.
    """
    if not _TAG.search(content):
        raise UnreadableError
    page = _parse(content)
    title = page.title.get_text() if page.title else ""
    blocks = [*_blocks(page)]
    return build_page(blocks, _without_site(title, blocks), code)


def html_blocks(content: str) -> Iterator[Block]:
    """What stands in an HTML text, in order.

    Raises:
        UnreadableError: it cannot be parsed.
    """
    return _blocks(_parse(content))


def _parse(content: str) -> BeautifulSoup:
    from bs4 import BeautifulSoup, XMLParsedAsHTMLWarning
    from bs4.exceptions import ParserRejectedMarkup

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)  # XHTML, as browsers read it
            return BeautifulSoup(content.translate(_ALL_MARKS), "lxml")
    except (ParserRejectedMarkup, RecursionError) as error:
        raise UnreadableError from error


def _without_site(title: str, blocks: Sequence[Block]) -> str:
    """A title without the name of the site before or behind the first heading: `Install - The guide`."""
    heading = next((" ".join(block.text.split()) for block in blocks if isinstance(block, Heading)), "")
    title, named = " ".join(title.split()), re.escape(heading)
    both = rf"(?:.+(?:{_DIVIDES}|: ))?{named}(?:{_DIVIDES}.+)?"
    if heading and re.fullmatch(both, title, re.IGNORECASE):
        return heading
    word, _, site = title.partition(" (")  # `Pump (Factory 2.0 API)` above `Class Pump<T>`, as Javadoc has it
    return word if site.endswith(" API)") and re.search(rf"\b{re.escape(word)}\b", heading) else title


def _blocks(whole: BeautifulSoup) -> Iterator[Block]:
    page = _own_part(whole)
    _mark_headings(page)
    _mark_raised(page)
    _leave_out_controls(page)
    has_content = page.find(_CONTENT) is not None
    for part in page.find_all(["header", "aside"]):
        if not part.decomposed and _is_of_the_site(part, has_content):
            part.decompose()
        elif not (part.decomposed or has_content) and part.name == "header":
            for menu in part.find_all(["ul", "ol"]):
                menu.decompose()
    for part in page.find_all("pre"):
        if part.find_parent("pre") is None:
            part.replace_with(f"{_BREAK}{_IS_CODE}{part.get_text().translate(_MARKS)}{_BREAK}")
    tables = page.find_all("table")
    outer = {id(table.find_parent("table")) for table in tables}
    for table in tables:
        if id(table) not in outer:  # one that holds another is for the layout
            _spell_out(table)
    for text in spell_raised("".join(_texts(page))).split(_BREAK):
        if text.startswith(_IS_HEADING):
            yield Heading(int(text[1]), text[2:])
        elif text.startswith(_IS_ITEM):
            yield as_item(text[1:])
        else:
            yield Code(text[1:]) if text.startswith(_IS_CODE) else text


def _own_part(page: BeautifulSoup) -> BeautifulSoup | Tag:
    """What is the page's own, without what is never read: its main part, where that is most of it."""
    for part in page.find_all(role=[*_ROLES]):
        part.name = _ROLES[str(part["role"])]
    for part in page.find_all(["title", *_SILENT]) + page.find_all(_is_hidden) + page.find_all(_is_menu):
        part.decompose()
    mains = page.find_all("main")
    is_most = len(mains) == 1 and 2 * len(mains[0].get_text()) > len(page.get_text())
    return mains[0] if is_most else page


def _mark_headings(page: BeautifulSoup | Tag) -> None:
    """Make a heading of what Doxygen has in the place of one."""
    for part in page.select(_ENTITLED):
        for remark in part.find_all(class_=["mlabels", "ingroups"]):
            remark.decompose()
        part.name = "h1"


def _leave_out_controls(page: BeautifulSoup | Tag) -> None:
    """Take out buttons, but those that are all of what is said, and links within the page that show a sign alone."""
    for part in page.find_all("button"):
        said = part.find_parent(_SAID)
        if said is None or (said.name in _HEADINGS and said.get_text(strip=True) != part.get_text(strip=True)):
            part.decompose()
    for part in page.find_all("a", href=_HERE):
        if not any(map(str.isalnum, part.get_text())):
            part.decompose()


def _mark_raised(page: BeautifulSoup | Tag) -> None:
    """Put `RAISED` into superscripts, a space into those that refer to a note, and signs into formulas."""
    for part in page.find_all("sup"):
        is_note = part.find("a", recursive=False) is not None or (part.parent is not None and part.parent.name == "a")
        part.insert(0, " " if is_note else RAISED)
    for part in page.find_all(["mfrac", "msup"]):
        inner = part.find_all(recursive=False)
        if len(inner) == 2:
            inner[1].insert_before("/" if part.name == "mfrac" else "^")


def _is_hidden(part: Tag) -> bool:
    """Whether a part is never shown: what is behind another tab, or opened by a search, is."""
    if part.name in ("html", "body") or part.get("role") == "tabpanel":
        return False
    is_marked = part.has_attr("hidden") and part.get("hidden") != "until-found"
    return is_marked or _NOT_SHOWN.search(str(part.get("style", ""))) is not None


def _is_menu(part: Tag) -> bool:
    """Whether a part leads to others, and is called so."""
    names = {*part.get_attribute_list("class"), *part.get_attribute_list("id")}
    if part.name in ("html", "body", *_CONTENT) or names.isdisjoint(_NAVIGATION | _MENUS):
        return False
    if not names.isdisjoint(_NAVIGATION) or (part.name == "address" and "footer" in names):
        return True
    links = sum(len(link.get_text()) for link in part.find_all("a", href=True))
    return 2 * links > len(part.get_text()) and part.select_one(_ENTITLED) is None


def _is_of_the_site(part: Tag, has_content: bool) -> bool:
    """Whether a header or an aside is no part of what a page is about."""
    if part.find_parent(_CONTENT) is not None or part.find(_CONTENT) is not None:
        return False
    return has_content or (part.name == "header" and part.find(_HEADINGS) is None)


def _texts(page: BeautifulSoup | Tag) -> Iterator[str]:
    """The texts of a page in their order, with breaks around blocks: a walk, since each change of a tree costs one.

    A page may be nested as deeply as it is long, and each end is left by a stack.
    """
    from bs4.element import CData, NavigableString, Tag

    stack = [(iter(page.contents), "", "")]  # what is inside of a part, what ends it, what begins each of its blocks
    while stack:
        inside, end, block = stack[-1]
        part = next(inside, None)
        if part is None:
            yield end
            stack.pop()
        elif isinstance(part, Tag):
            if part.name in _HEADINGS:
                text = part.get_text().translate(_MARKS).strip(_ANCHORS)
                yield f"{_BREAK}{_IS_HEADING}{part.name[1]}{text}{_BREAK}{block}"
            else:
                within = _IS_ITEM if part.name in ("li", "summary") or _is_entitling(part) else block
                around = (_BREAK + within, _BREAK + block) if part.name in _BLOCKS else ("", "")
                yield around[0]
                stack.append((iter(part.contents), around[1], within))
        elif type(part) in (NavigableString, CData):  # no comment, and no reading aid of Chinese letters
            text = str(part)
            yield text + block if text.endswith(_BREAK) else text  # more of an item may follow code or a table


def _is_entitling(part: Tag) -> bool:
    """Whether a paragraph is the title of a box or a figure, and no sentence that the next one goes on with."""
    return part.name == "p" and not _ENTITLING.isdisjoint(part.get_attribute_list("class"))


def _spell_out(table: Tag) -> None:
    """Put sentences in the place of the rows of a table that has headings, above or before them; others are for the
    layout.
    """
    found = table.find_all("tr")
    rows = [row.find_all(["th", "td"]) for row in found]
    heads = [*takewhile(_is_head, found)]
    body = rows[len(heads) :]
    is_sheet = bool(body) and all([cell.name for cell in row] == ["th", "td"] for row in body)
    is_sheet &= all(len(row) == 1 for row in rows[: len(heads)])  # below its name, or none
    if not is_sheet and (len(rows) < 2 or not heads):
        return
    grid = [*_grid(rows)]
    if is_sheet:
        names, values = grid[: len(heads)], grid[len(heads) :]
        sentences = [*(row_sentence([], row) for row in names), *table_sentences(values, is_headed=False)]
    else:
        above = grid[: len(heads)] if body else grid[:1]
        header = [" ".join(dict.fromkeys(filter(None, names))) for names in zip_longest(*above, fillvalue="")]
        sentences = [row_sentence(header, row) for row in grid[len(above) :]]
    table.replace_with(_BREAK.join(["", *sentences, ""]))


def _is_head(row: Tag) -> bool:
    """Whether a row of a table is one of headings."""
    cells = row.find_all(["th", "td"])
    is_above = row.parent is not None and row.parent.name == "thead"
    return is_above or all(cell.name == "th" for cell in cells)


def _grid(rows: Sequence[Sequence[Tag]]) -> Iterator[list[str]]:
    """The texts of each row, one in each column: of a cell over several in each, of one over all in the first.

    Args:
        rows: their cells; the first row says how many columns there are.
    """
    columns = sum(_span(cell, "colspan") for cell in rows[0])
    reaching: dict[int, tuple[int, str]] = {}  # column -> rows that a cell goes on for, its text
    for row in rows:
        texts = {column: text for column, (_, text) in reaching.items()}
        reaching = {column: (left - 1, text) for column, (left, text) in reaching.items() if left > 1}
        column = 0
        for cell in row:
            while column in texts:
                column += 1
            text = cell.get_text(" ").translate(_MARKS).replace(f" {RAISED} ", RAISED)
            wide, high = _span(cell, "colspan"), _span(cell, "rowspan")
            last = min(column + wide, columns) if wide < columns else 0
            for place in range(column, max(last, column + 1)):
                texts[place] = text
                if high > 1:
                    reaching[place] = high - 1, text
        yield [texts.get(column, "") for column in range(max(texts, default=-1) + 1)]


def _span(cell: Tag, over: str) -> int:
    """How many rows or columns a cell is over."""
    said = str(cell.get(over, "")).strip()
    return int(said) if _SPAN.fullmatch(said) else 1
