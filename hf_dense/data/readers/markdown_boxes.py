"""What sites write in Markdown beside its own blocks: titled boxes, tabs, notes at the foot, lists of definitions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hf_dense.data.readers.page import as_sentence

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

_COLONS: Final = re.compile(r":{3,}")  # of Docusaurus, VitePress, MyST, Pandoc, around what is in the box
_COLONS_TITLE: Final = re.compile(r":{3,}+[ \t]*+\{?[\w.-]*\}?(?:\[(.*)\]|[ \t]+([^\s={}][^={}]*))?(?:\{.*)?")
_NAMED_TITLE: Final = re.compile(r"\btitle=\"([^\"]*)\"")
_ALERT: Final = re.compile(r"\[![A-Za-z]+\][-+]?(.*)")  # of GitHub and Obsidian, at the head of a quote
# Of MkDocs: boxes, open or not, and tabs. What is in them is indented below, as it is below a mark: of a note, which is
# referred to, or of a definition.
_INDENTING: Final = re.compile(
    r'(?:(?:!{3}|\?{3}\+?)(?=[ \t]+[\w"-])(?:[ \t]+[\w-]+)*|===[!+]?)(?:[ \t]+"(.*)")?[ \t]*'
)
_MARK: Final = re.compile(r"\[\^([^\[\]\s]+)\]:[ \t]*|:[ \t]+(?=\S)")
_NOTE: Final = re.compile(r"\[\^([^\[\]\s]+)\]")
_INDENT: Final = 4
_DEEPEST: Final = 40 * _INDENT


def read_boxes(parser: MarkdownIt) -> None:
    """Let a parser know boxes, tabs, notes and definitions: what is said in them is read, their marks are not.

    Args:
        parser: that is changed.
    """
    interrupting = {"alt": ["paragraph", "reference"]}
    parser.block.ruler.before("table", "box", _box, interrupting)  # type: ignore[arg-type]
    parser.block.ruler.before("table", "marked", _marked, interrupting)  # type: ignore[arg-type]
    parser.inline.ruler.before("link", "note", _note)


def _line(state: StateBlock, line: int) -> str:
    """The text of a line; "" where it is code, or too deep within boxes."""
    if state.is_code_block(line) or state.blkIndent > _DEEPEST:
        return ""
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _box(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """A rule of the parser: the line that a box or a tab begins with, or ends."""
    text = _line(state, line)
    indenting = _INDENTING.fullmatch(text)
    if indenting and not (text.startswith("===") and indenting[1] is None):  # which underlines a heading
        title = indenting[1]
    elif _COLONS.match(text):
        found = _NAMED_TITLE.search(text) or _COLONS_TITLE.fullmatch(text.rstrip(": \t"))
        title = next(filter(None, found.groups()), "") if found else ""
    elif state.parentType == "blockquote" and (found := _ALERT.fullmatch(text)):
        title = found[1]
    else:
        return False
    if not silent:
        _add_title(state, line, (title or "").strip())
        state.line = line + 1
        if indenting:
            _read_indented(state, line + 1, end)
    return True


def _marked(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """A rule of the parser: what stands behind the mark of a note or of a definition."""
    found = _MARK.match(_line(state, line))
    if found and not silent:
        if found[1]:
            state.env.setdefault("notes", set()).add(found[1])
        state.bMarks[line] += state.tShift[line] + found.end()
        state.tShift[line], state.sCount[line] = 0, state.blkIndent + _INDENT
        _read_indented(state, line, end)
    return found is not None


def _note(state: StateInline, silent: bool) -> bool:
    """A rule of the parser: what refers to a note."""
    found = _NOTE.match(state.src, state.pos)
    if not found or found[1] not in state.env.get("notes", ()):
        return False
    state.pos = found.end()
    return True


def _add_title(state: StateBlock, line: int, title: str) -> None:
    if title:
        state.push("paragraph_open", "p", 1)
        inline = state.push("inline", "", 0)
        inline.content, inline.map, inline.children = as_sentence(title), [line, line + 1], []
        state.push("paragraph_close", "p", -1)


def _read_indented(state: StateBlock, line: int, end: int) -> None:
    """Read lines as far as they are indented."""
    state.blkIndent += _INDENT
    state.md.block.tokenize(state, line, end)
    state.blkIndent -= _INDENT
