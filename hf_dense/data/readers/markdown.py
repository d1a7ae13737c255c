"""Markdown, also as documentation sites write it (MDX, front matter, admonitions)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from hf_dense.data.readers.html import html_blocks
from hf_dense.data.readers.markdown_boxes import read_boxes
from hf_dense.data.readers.page import (
    RAISED,
    Block,
    Code,
    CodeOption,
    Heading,
    Page,
    as_item,
    as_sentence,
    build_page,
    row_sentence,
    spell_raised,
)

if TYPE_CHECKING:
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_FRONT: Final = re.compile(r"\A(---|\+\+\+)[ \t]*\n(.*?\n)??(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_MODULE: Final = re.compile(r"(import|export)\s")  # what a paragraph of MDX begins with that is no text
_TARGET: Final = re.compile(r"^\([\w:.-]+\)=$")  # of a link, in MyST
_ADMONITION: Final = re.compile(r"\{(admonition|attention|caution|danger|hint|important|note|seealso|tip|warning)\}")
_OPTIONS: Final = re.compile(r"\A(?::[\w-]+:.*(?:\n|\Z))+")  # of a block of MyST
_ROLE: Final = re.compile(r"\{[\w:+.-]+\}$")  # of MyST, before what it is about
_ATTRIBUTES: Final = re.compile(r"\s*\{[#.:][^{}]*\}$")  # of a heading
_TASK: Final = re.compile(r"^\[[ xX]\]\s+")  # the box before an item
# What generators of sites fill in before they read a text with front matter: Hugo's shortcodes and what these say, and
# tags of Liquid and Kramdown, which other texts may have in their code.
_SHORTCODE: Final = re.compile(r"\{\{[<%](?:(?!\{\{).)*?[%>]\}\}", re.DOTALL)
_SAYS: Final = re.compile(r"\b(?:text|title|caption)=\"([^\"]*)\"")
_FILLED_LINK: Final = re.compile(r"(?<=\]\()(?=[^)\n]*\{[{%])[^)\n]*(?=\))")
_TAG: Final = re.compile(r"\{%.*?%\}|\{:(?:toc|\s|[.#][a-zA-Z])[^{}\n]*\}|\{/\*.*?\*/\}", re.DOTALL)
_DEEPEST: Final = 100  # lists and quotes within each other, as in long mails; by default the parser loses text below 20
_KEPT: Final = ("text", "code_inline")


def read_markdown(content: str, code: CodeOption, mdx: bool = False) -> Page:
    """The page of a Markdown text; `title` and `description` of its front matter are read.

    >>> read_markdown("# A *title*\\n\\nA [link](http://a).\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n", "drop")
    Page(title='A title', sections=(Section(path='', text='A link.\\n\\na: 1; b: 2.'),))
    """
    front, body = split_front_matter(content)
    title, description = (_scalar(front.get(key)) for key in ("title", "description"))
    blocks = [as_sentence(description)] if description else []
    is_filled = mdx or body is not content
    if is_filled:
        body = _FILLED_LINK.sub("", _SHORTCODE.sub(_said, body))
    return build_page([*blocks, *markdown_blocks(body, mdx, is_filled)], title, code)


def _said(shortcode: re.Match[str]) -> str:
    found = _SAYS.search(shortcode[0])
    return found[1] if found else ""


def split_front_matter(content: str) -> tuple[Mapping[str, Any], str]:
    """What stands above a text between `---` (YAML) or `+++` (TOML), and the text.

    >>> split_front_matter("---\\ntitle: A\\n---\\nText.")
    ({'title': 'A'}, 'Text.')
    """
    import yaml

    found = _FRONT.match(content)
    if not found:
        return {}, content
    try:
        values = tomllib.loads(found[2] or "") if found[1] == "+++" else yaml.safe_load(found[2] or "")
    except (yaml.YAMLError, tomllib.TOMLDecodeError, ValueError, RecursionError):
        return {}, content[found.end() :]
    if values is not None and not isinstance(values, dict):
        return {}, content  # a text between two rules
    return values or {}, content[found.end() :]


def _scalar(value: object) -> str:
    """A text, number or date as text; "" for what else YAML may hold."""
    return str(value).strip() if isinstance(value, str | int | float | date) else ""


def markdown_blocks(content: str, mdx: bool = False, is_filled: bool = False) -> Iterator[Block]:
    """What stands in a Markdown text, in order.

    Args:
        content: the text, without front matter.
        mdx: whether its paragraphs may be imports and exports, which are left out.
        is_filled: whether tags outside of code are a generator's, and left out.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
    read_boxes(parser)
    if is_filled:
        parser.inline.ruler.before("escape", "tag", _pass_tag)
    level, row, opened, items = 0, list[str](), "", 0
    header: list[str] | None = None
    for token in parser.parse(content):
        if token.type == "heading_open" and token.level == 0:
            level = int(token.tag[1:])
        elif token.type == "fence" and (box := _ADMONITION.match(token.info)):
            said = token.info[box.end() :].strip()  # its title, or its first line
            yield from markdown_blocks(
                f"{said and as_sentence(said)}\n\n{_OPTIONS.sub('', token.content)}", mdx, is_filled
            )
        elif token.type in ("fence", "code_block"):
            yield Code(token.content)
        elif token.type == "html_block":
            yield from html_blocks(token.content)
        elif token.type in ("list_item_open", "list_item_close"):
            items += token.nesting
        elif token.type in ("table_open", "tr_open"):
            header, row = None if token.type == "table_open" else header, []
        elif token.type == "tr_close":
            yield row_sentence(header, row) if header is not None else ""
            header = row if header is None else header
        elif token.type == "inline":
            text = "" if mdx and _is_code(token, opened) else _text(token.children or ())
            if opened in ("th_open", "td_open"):
                row.append(text)
            elif level:
                yield Heading(level, _ATTRIBUTES.sub("", text))
            else:
                yield as_item(_TASK.sub("", text)) if items else text
            level = 0
        opened = token.type


def _pass_tag(state: StateInline, silent: bool) -> bool:
    """A rule of the parser that passes over a tag."""
    found = _TAG.match(state.src, state.pos)
    state.pos = found.end() if found else state.pos
    return found is not None


def _is_code(token: Token, opened: str) -> bool:
    """Whether words of MDX are a comment, or imports or exports, as a paragraph outside of lists and quotes may be."""
    paragraph = opened == "paragraph_open" and token.level == 1
    return token.content.startswith("{/*") or bool(paragraph and _MODULE.match(token.content))


def _text(children: Iterable[Token]) -> str:
    """The words of a paragraph, without markup."""
    parts: list[str] = []
    for child in children:
        if child.type == "code_inline" and parts:
            parts[-1] = _ROLE.sub("", parts[-1])
        if child.type in _KEPT:
            parts.append(_TARGET.sub("", child.content) if child.type == "text" else child.content)
        elif child.type in ("softbreak", "hardbreak") or child.content.lower().startswith("<br"):
            parts.append(" ")
        elif child.content.lower().startswith("<sup"):
            parts.append(RAISED)
        elif parts and parts[-1] == RAISED and child.type == "link_open":  # to a note
            parts[-1] = " "
    return spell_raised("".join(parts))
