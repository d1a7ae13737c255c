"""What is asked: whether it can be searched for, and many questions in a file."""

from __future__ import annotations

import json
from collections.abc import Collection
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from hf_dense.errors import InputError


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
    if not all(question.strip() for question in questions):
        raise InputError("The question is empty." if len(questions) == 1 else "One of the questions is empty.")
    if not isinstance(top_k, Integral) or top_k < 1:
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
        path: one question per line, whose id is the number of the line, empty lines left out; or a .jsonl file whose
            rows have `id` (or `_id`, as BEIR has it) and `text`.

    Raises:
        InputError: the file cannot be read, holds no question, or a row has no id or text, or the id of another one.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not text that can be read; name a file with a question per line.") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            name, text = _row(line, number, path) if path.suffix == ".jsonl" else (str(number), line.strip())
            if name in found:
                raise InputError(f"{path} has two questions with the id {name!r}; give each its own.")
            found[name] = text
    if not found:
        raise InputError(f"There is no question in {path}.")
    return found


def _row(line: str, number: int, path: Path) -> tuple[str, str]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    values: dict[str, Any] = row if isinstance(row, dict) else {}
    name, text = values.get("id", values.get("_id")), values.get("text")
    if not isinstance(name, str | int) or not isinstance(text, str) or not text.strip():
        raise InputError(f"Line {number} of {path} has no id and text; each needs both.")
    return _whole(str(name)), _whole(text)


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # JSON may hold half a letter, which nothing can write
