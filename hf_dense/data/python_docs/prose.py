"""From a docstring to English prose: one summary sentence and paragraphs, without code and markup.

What stays: sentences, lists, and the sections on parameters, return values, errors and notes, because that is
what people ask about. What goes: doctests, fenced and literal code, formulas, plots, tables, numeric output,
bibliographies and "See Also" lists (the latter repeat the summaries of *other* documents). Markup is reduced to
the words it carries: ``:class:`~a.B` `` becomes ``a.B``, a link becomes its text.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import regex  # type: ignore[import-untyped]

from hf_dense.data.sentences import split_sentences

MIN_LETTERS: Final = 0.5  # share of letters in the visible characters of a line that is prose

_MARK = regex.compile(r"\p{M}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FENCE = re.compile(r"(```|~~~)(?!.*\1)")
_PROMPT = re.compile(r">>>|In \[\d+\]:|\$ ")
_DIRECTIVE = re.compile(r"\.\. ([\w:-]+?)::\s*(.*)")
_ADMONITIONS = frozenset(
    {"attention", "caution", "danger", "deprecated", "error", "hint", "important", "note", "seealso", "tip", "warning"}
)
_UNDERLINE = re.compile(r"([=\-~^\"'#*+`])\1{2,}$")
_LABEL = re.compile(
    r"(Args?|Arguments|Attributes|Examples?|Keyword [Aa]rguments|Notes?|Outputs?|Parameters|Params|Raises|References"
    r"|Returns?|See [Aa]lso|Shape|Usage|Warnings?|Warns|Yields?)\s*:{1,2}$"
)
_SILENT = frozenset(
    {"arg", "args", "argument", "arguments", "attribute", "attributes", "description", "example", "examples"}
    | {"extended summary", "inputs", "keyword args", "keyword arguments", "note", "notes", "other parameters"}
    | {"param", "parameter", "parameters", "params", "usage"}
)
_DROPPED = frozenset({"references", "see also", "bibliography"})
_BULLET = re.compile(r"^(?:[-*+•]|\(?\d{1,2}[.)])\s+(?=\S)")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w[\w.]*(?:\s*,\s*\*{0,2}\w[\w.]*)*) ?: (.+)$")
_ENTRY = re.compile(r"\*{0,2}`{0,2}\w[\w.]*`{0,2}\s*(?:\(.*?\))?\s*:(?:\s|$)|:\w+[^:]*:(?:\s|$)")
_SIGNATURE = re.compile(r"[\w.]+\(.*\)(?:\s*->.*)?$")
_MARKED = re.compile(r"[`*%<|\\\[]|\s[\s,.;]|^:|://")
_MARKUP: Final = (
    (re.compile(r"^:(?:param|parameter|arg|argument|key|keyword|ivar|cvar|var)\s+([^:]+):\s*"), r"\1: "),
    (re.compile(r"^:(?:returns?|rtype):\s*"), "Returns: "),
    (re.compile(r"^:raises?\s+([^:]+):\s*"), r"Raises \1: "),
    (re.compile(r"!?\[([^\]]+)\]\((?:[^()\s]|\([^()]*\))+\)"), r"\1"),  # Markdown link
    (re.compile(r"(?<!\w):(?:[\w+.-]+:){1,2}`[~!]?([^`<]+?)(?:\s*<[^`>]+>)?`"), r"\1"),  # role, with or without target
    (re.compile(r"`([^`<]+?)\s*<[^`>]+>`_{0,2}"), r"\1"),  # reStructuredText link
    (re.compile(r"\[`~?([^`\]]+)`\]"), r"\1"),  # link to an object
    (re.compile(r"<?\b(?:https?|ftp)://[^\s>)\]]+>?"), ""),
    (re.compile(r"%\([^)]*\)[sd]"), ""),  # placeholder of a documentation template
    (re.compile(r"</?[a-z][a-z0-9]*(?:\s[^<>]*)?/?>"), ""),  # HTML tag
    (re.compile(r"(?<![\w*])(\*{1,2})(?=\S)([^*]+?)(?<=\S)\1(?![\w*])"), r"\2"),  # emphasis
    (re.compile(r"\[\d+\]_|\|(\w+)\|_?"), r"\1"),  # citation, substitution
    (re.compile(r"`_{0,2}|\\(?=[ *_`])"), ""),
    (re.compile(r"(?<=\s)\(\s*\)"), ""),  # what a removed address leaves
    (re.compile(r"\s+"), " "),
    (re.compile(r" ([,.;])(?=\s|$)"), r"\1"),
)


@dataclass(frozen=True)
class Prose:
    """`summary`: the first sentence, "" if there is none; `paragraphs`: what follows it, in order."""

    summary: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class _Paragraph:
    heading: str  # "" for running text
    text: str
    is_item: bool  # an entry of a parameter list, or a list item


def read_prose(docstring: str) -> Prose:
    """Reduce `docstring` to its summary sentence and the prose that follows it.

    The summary is the first sentence of the opening paragraph; a docstring that opens with a section or a list
    has none. Later sentences that repeat the summary are left to `hf_dense.data.passages` to remove.
    """
    text = _CONTROL.sub(" ", docstring).encode("utf-8", "ignore").decode("utf-8")
    lines = inspect.cleandoc(text).splitlines()
    if lines and _SIGNATURE.match(lines[0]):
        lines = lines[1:]
    paragraphs = list(_read_paragraphs(_drop_code(lines)))
    if not paragraphs:
        return Prose("", ())
    first, texts = paragraphs[0], [_with_heading(paragraph) for paragraph in paragraphs]
    if first.heading or first.is_item:
        return Prose("", tuple(texts))
    sentences = split_sentences(first.text)
    rest = " ".join(sentences[1:])
    return Prose(sentences[0], tuple([rest, *texts[1:]] if rest else texts[1:]))


def letter_share(text: str) -> float:
    """Share of letters among the visible characters of `text`, whose marks (vowels of Hindi) are part of their letters.

    0.0 for blank text.
    """
    visible = len(text) - sum(map(str.isspace, text)) - len(_MARK.findall(text))
    return sum(map(str.isalpha, text)) / visible if visible else 0.0


def _with_heading(paragraph: _Paragraph) -> str:
    return f"{paragraph.heading}: {paragraph.text}" if paragraph.heading else paragraph.text


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _drop_code(lines: Sequence[str]) -> list[str]:
    """`lines` without code, formulas, tables, figures, comments; a blank line stands where one was."""
    kept: list[str] = []
    at = 0
    while at < len(lines):
        line, text = lines[at], lines[at].strip()
        directive = _DIRECTIVE.match(text)
        if _FENCE.match(text):
            at = _end_of_fence(lines, at)
            kept.append("")
        elif _PROMPT.match(text):
            at = _end_of_paragraph(lines, at)
            kept.append("")
        elif directive and directive[1] in _ADMONITIONS:
            note = "Deprecated since " + directive[2] if directive[1] == "deprecated" else directive[2]
            kept += ["", " " * _indent(line) + note]
            at += 1
        elif text.startswith(".. ") or text == "..":
            at = _end_of_block(lines, at)
            kept.append("")
        elif text.endswith("::"):
            kept += [line.rstrip()[:-1], ""]
            at = _end_of_block(lines, at)
        else:
            kept.append(line)
            at += 1
    return kept


def _end_of_fence(lines: Sequence[str], at: int) -> int:
    mark = lines[at].strip()[:3]
    closing = (i for i in range(at + 1, len(lines)) if lines[i].strip().startswith(mark))
    return next(closing, len(lines) - 1) + 1


def _end_of_paragraph(lines: Sequence[str], at: int) -> int:
    return next((i for i in range(at + 1, len(lines)) if not lines[i].strip()), len(lines))


def _end_of_block(lines: Sequence[str], at: int) -> int:
    """First line after `at` that is neither blank nor indented deeper than line `at`."""
    depth = _indent(lines[at])
    deeper = (i for i in range(at + 1, len(lines)) if lines[i].strip() and _indent(lines[i]) <= depth)
    return next(deeper, len(lines))


def _read_paragraphs(lines: Sequence[str]) -> Iterator[_Paragraph]:
    """Join lines to paragraphs: a blank line, a heading, a list item, an entry or a dedent starts a new one."""
    heading, dropped, block = "", False, list[str]()
    for at, line in enumerate([*lines, ""]):
        text = line.strip()
        title = _heading(lines, at)
        starts = not text or title is not None or _starts_item(text)
        if block and (starts or _indent(line) < _indent(block[-1])):
            if (paragraph := _paragraph(heading, block)) and not dropped:
                yield paragraph
                heading = ""
            block = []
        if title is not None:
            dropped = title.lower() in _DROPPED
            heading = "" if title.lower() in _SILENT or at == 0 else title
        elif text and (letter_share(text) >= MIN_LETTERS or _ENTRY.match(text)) and text[0] != "|":
            block.append(line)


def _heading(lines: Sequence[str], at: int) -> str | None:
    """The section title on line `at`, if that line is one."""
    text = lines[at].strip() if at < len(lines) else ""
    following = lines[at + 1].strip() if at + 1 < len(lines) else ""
    if text and _UNDERLINE.match(following) and not _UNDERLINE.match(text) and len(text) < 80:
        return _strip_markup(text).rstrip(":")
    if _LABEL.match(text):
        return text.rstrip(":").strip()
    return text.lstrip("#").strip() if re.match(r"#{1,6} \S", text) else None


def _starts_item(text: str) -> bool:
    return bool(_BULLET.match(text) or _ENTRY.match(text) or _NUMPY_ENTRY.match(text))


def _paragraph(heading: str, block: Sequence[str]) -> _Paragraph | None:
    """One paragraph out of its lines; None when no words are left."""
    first = block[0].strip()
    is_item = _starts_item(first)
    entry = _NUMPY_ENTRY.match(first)
    if entry and len(block) > 1 and _indent(block[1]) > _indent(block[0]):
        first = f"{entry[1]} ({entry[2]}):"  # "axis : int" over its description
    parts = [_BULLET.sub("", first, count=1), *(line.strip() for line in block[1:])]
    text = _strip_markup(" ".join(parts))
    if text and text[-1] not in ".!?:;,":
        text += "."  # so that it does not run into the next paragraph of its passage
    return _Paragraph(heading, text, is_item) if re.search(r"[A-Za-z]{2}", text) else None


def _strip_markup(text: str) -> str:
    if not _MARKED.search(text):
        return text.strip()
    for pattern, words in _MARKUP:
        text = pattern.sub(words, text)
    return text.strip()
