"""reStructuredText, by docutils, also with the roles and directives of Sphinx, which docutils does not know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent
from typing import TYPE_CHECKING, Final

from hf_dense.data.readers.page import (
    RAISED,
    Block,
    Code,
    CodeOption,
    Heading,
    Page,
    as_item,
    build_page,
    row_sentence,
    spell_raised,
)

if TYPE_CHECKING:
    from docutils import nodes

_SETTINGS: Final = {
    "report_level": 5,
    "halt_level": 6,
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "doctitle_xform": False,
    "docinfo_xform": False,
    "syntax_highlight": "none",
    "smart_quotes": False,
}
_ROLE: Final = re.compile(r":[A-Za-z][\w:.+-]*:`(?P<target>[^`]*)`")
_LINK: Final = re.compile(r"`([^`<]+?)\s*(?:<[^`>]*>)?`__?")
_DIRECTIVE: Final = re.compile(r"\.\. (?P<name>[\w:.+-]+)::(?P<argument>[^\n]*)\n?(?P<body>.*)", re.DOTALL)
_OPTIONS: Final = re.compile(r"\A(?:[ \t]*:[\w-]+:[^\n]*(?:\n|\Z))+")
# What these hold is for the builder, names a file, or is no reStructuredText.
_NO_TEXT: Final = {
    *("toctree", "index", "highlight", "currentmodule", "py:currentmodule", "default-domain", "tabularcolumns"),
    *("codeauthor", "sectionauthor", "include", "literalinclude", "image", "raw"),
}
_PYTHON_CLASS: Final = re.compile(
    r"^([ \t]*\.\. )class::(?=[^\n]*[A-Z(])", re.MULTILINE
)  # which docutils takes for a style
_OBJECTS: Final = {  # whose argument is what they describe
    *("option", "envvar", "confval", "describe", "object", "seealso", "function", "class", "method", "attribute"),
    *("data", "exception", "property", "decorator", "staticmethod", "classmethod", "macro", "type", "var", "member"),
}
_NO_ARGUMENT: Final = {"figure", "ifconfig", "only"}  # a file or a condition, before what they hold
_OF_CODE: Final = {"code", "code-block", "doctest", "ipython", "prompt", "sourcecode", "testcode", "testoutput"}


def read_rst(content: str, code: CodeOption) -> Page:
    """The page of a reStructuredText; nothing is included from other files.

    >>> page = read_rst("Guide\\n=====\\n\\nSee :ref:`here <x>`.\\n\\nUse\\n---\\n\\nRun::\\n\\n   go\\n", "keep")
    >>> page.sections
    (Section(path='', text='See here.'), Section(path='Use', text='Use.\\n\\nRun:\\n\\ngo'))
    """
    return build_page(_parsed(_PYTHON_CLASS.sub(r"\1py:class::", content), 1), code=code)


def _parsed(content: str, level: int) -> Iterator[Block]:
    from docutils import nodes
    from docutils.core import publish_doctree

    tree = publish_doctree(content, settings_overrides=_SETTINGS)
    marks = {nodes.superscript: RAISED, nodes.footnote_reference: " ", nodes.citation_reference: " "}
    for part in tree.findall(nodes.TextElement):
        if mark := marks.get(type(part)):
            part.insert(0, nodes.Text(mark))
    return _blocks(tree, level)


def _blocks(node: nodes.Element, level: int) -> Iterator[Block]:
    """What stands in a node; `level` counts the sections around it."""
    from docutils import nodes

    for child in node.children:
        if isinstance(child, nodes.section):
            yield from _blocks(child, level + 1)
        elif isinstance(child, nodes.title):
            yield Heading(level, _text(child)) if isinstance(node, nodes.section) else _text(child)
        elif isinstance(child, nodes.literal_block | nodes.doctest_block):
            yield Code(spell_raised(child.astext()))
        elif isinstance(child, nodes.table):
            yield from _rows(child)
        elif isinstance(child, nodes.field):
            name, body = child.children
            yield f"{_text(name)}: {_text(body)}" if body.astext().strip() else ""
        elif isinstance(child, nodes.system_message):
            yield from _unknown(child, level)
        elif isinstance(child, nodes.TextElement):
            text = "" if isinstance(child, nodes.Invisible | nodes.label) else _text(child)
            yield as_item(text) if isinstance(node, nodes.list_item) else text
        elif isinstance(child, nodes.Element):
            yield from _blocks(child, level)


def _rows(table: nodes.table) -> Iterator[str]:
    from docutils import nodes

    header: list[str] = []
    for part in (part for group in table.children for part in group.children):
        if isinstance(part, nodes.thead):
            *_, header = _grid(part)
        elif isinstance(part, nodes.tbody):
            yield from (row_sentence(header, row) for row in _grid(part))


def _grid(part: nodes.Element) -> Iterator[list[str]]:
    """The texts of each row, one in each column: of a cell over several in each, of one over all in the first."""
    from docutils import nodes

    reaching: dict[int, tuple[int, str]] = {}  # column -> rows that a cell goes on for, its text
    for row in part.children:
        texts = {column: text for column, (_, text) in reaching.items()}
        reaching = {column: (left - 1, text) for column, (left, text) in reaching.items() if left > 1}
        column = 0
        for cell in row.children:
            assert isinstance(cell, nodes.entry)
            while column in texts:
                column += 1
            for place in range(column, column + 1 + cell.get("morecols", 0)):
                texts[place] = _text(cell) if len(row.children) > 1 or place == column else ""
                if cell.get("morerows"):
                    reaching[place] = cell["morerows"], texts[place]
        yield [texts[place] for place in sorted(texts)]


def _unknown(message: nodes.system_message, level: int) -> Iterator[Block]:
    """What stands in a directive that docutils does not know: its argument and its body, if any, read as text."""
    from docutils import nodes

    source = next(iter(message.findall(nodes.literal_block)), None)
    found = _DIRECTIVE.match(source.astext()) if source is not None else None
    if found is None or found["name"] in _NO_TEXT:
        return
    body = _OPTIONS.sub("", dedent(found["body"])).strip("\n")
    if found["name"] in _OF_CODE:
        yield Code(body)
    else:
        said = found["name"] not in _NO_ARGUMENT and (body or _says_something(found["name"], found["argument"]))
        yield _plain(found["argument"]) if said else ""
        yield from _parsed(dedent(body), level)


def _says_something(name: str, argument: str) -> bool:
    """Whether the argument of a directive without a body is text: a version, a module or a file is none."""
    return name.rpartition(":")[2] in _OBJECTS or len(argument.split()) > 1


def _text(node: nodes.Node) -> str:
    """The words of a node, without the markup that docutils did not understand."""
    return _plain(spell_raised(node.astext()))


def _plain(text: str) -> str:
    text = _ROLE.sub(lambda role: _target(role["target"]), " ".join(text.split()))
    return _LINK.sub(r"\1", text)


def _target(text: str) -> str:
    """What is shown of a role's text.

    >>> _target("text <target>"), _target("~package.Class"), _target("!name")
    ('text', 'Class', 'name')
    """
    shown = text.rsplit(" <", 1)[0] if text.endswith(">") else text
    return shown.rsplit(".", 1)[-1] if shown.startswith("~") else shown.removeprefix("!")
