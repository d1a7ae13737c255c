"""What is asked: whether it can be searched for, and many questions in a file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final

from hf_dense.errors import InputError

_IDS: Final = ("id", "_id", "qid", "query_id", "query-id")
_TEXTS: Final = ("text", "query", "question")


def check_questions(questions: Collection[str], top_k: int, weight: float) -> None:
    """Pass when all questions can be searched for.

    Args:
        questions: texts.
        top_k: passages wanted for each.
        weight: of the dense scores.

    Raises:
        InputError: one is no text or empty, `top_k` is no whole number above 0, or `weight` is not from 0 to 1.
    """
    if strange := [question for question in questions if not isinstance(question, str)]:
        raise InputError(f"The question {strange[0]!r} is no text.")
    if broken := [question for question in questions if any("\ud800" <= sign <= "\udfff" for sign in question)]:
        raise InputError(f"The question {broken[0]!r} is not UTF-8; write it as that.")
    if not all(question.strip() for question in questions):
        raise InputError("The question is empty." if len(questions) == 1 else "One of the questions is empty.")
    if not isinstance(top_k, Integral) or isinstance(top_k, bool) or top_k < 1:
        raise InputError(f"top_k is {top_k}; it must be a whole number, at least 1.")
    check_weight(weight)


def check_weight(weight: float) -> None:
    """Pass when the dense scores can have this weight.

    Raises:
        InputError: it is not from 0 to 1.
    """
    if not isinstance(weight, Real) or not 0 <= weight <= 1:
        raise InputError(f"weight is {weight}; it must be from 0 (words alone) to 1 (vectors alone).")


def read_questions(path: Path) -> dict[str, str]:
    """The questions of a file, by id.

    Args:
        path: one question per line, whose id is the number of the line, empty lines left out; or a .jsonl, .json (a
            list), .csv or .tsv file whose rows have `id` (or `_id`, as BEIR has it, or `qid`) and `text` (or `query`,
            `question`); a .tsv file may have these two columns without a header.

    Raises:
        InputError: the file cannot be read, holds no question, or a row has no id or text, or the id of another one.
    """
    found: dict[str, str] = {}
    for name, text in _in_table(path) if path.suffix.lower() in (".json", ".csv", ".tsv") else _in_lines(path):
        if name in found:
            raise InputError(f"{path} has two questions with the id {name!r}; give each its own.")
        found[name] = text
    if not found:
        raise InputError(f"There is no question in {path}.")
    return found


def _in_lines(path: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not text that can be read; name a file with a question per line.") from error
    rows = path.suffix.lower() == ".jsonl"
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _asked(_row(line), f"Line {number} of {path}") if rows else (str(number), line.strip())


def _in_table(path: Path) -> Iterator[tuple[str, str]]:
    from hf_dense.data.rows import SURROGATE, read_rows  # which imports Arrow

    left: Counter[str] = Counter()
    for number, row in enumerate(read_rows(path, path.suffix.lower(), left), start=1):
        values = {name.lower(): value for name, value in row.items()}
        cells = [value for value in values.values() if isinstance(value, str)]
        if number == 1 and {cell.lower() for cell in cells} <= {*_IDS, *_TEXTS}:
            continue  # a header without a name that `read_rows` knows
        if any(map(SURROGATE.search, cells)):
            left["broken UTF-8"] += 1
            continue
        yield _asked(values, f"Row {number} of {path}")
    for reason, rows in left.items():
        raise InputError(f"{path} holds rows that cannot be read ({rows:,} {reason}); correct or remove them.")


def _row(line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _asked(row: Mapping[str, Any], place: str) -> tuple[str, str]:
    """Id and text of a question."""
    name, text = (next((row[name] for name in names if name in row), None) for names in (_IDS, _TEXTS))
    if not isinstance(name, str | int) or not isinstance(text, str) or not text.strip():
        raise InputError(f"{place} has no id and text; each needs both.")
    return _whole(str(name)), _whole(text)


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # JSON may hold half a letter, which nothing can write
