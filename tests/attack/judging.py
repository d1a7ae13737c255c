"""The one judge of every attack: success, or a sentence and exit code 2, and nothing that was there is changed."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Final

from forked import Ended

_LONGEST: Final = 2_000  # characters of a sentence


def verdict(ended: Ended, before: dict[str, str], after: dict[str, str]) -> str:
    """What a command came to: `done`, `refused`, or what is wrong with how it ended.

    Args:
        ended: the command.
        before: `snapshot` of what it was given, from before it ran.
        after: the same, from afterwards.
    """
    if ended.hung:
        return "hang"
    if ended.code < 0:
        return f"signal {-ended.code}"
    if "Traceback (most recent call last)" in ended.stderr:
        return "trace"
    if changed := [name for name, content in before.items() if after.get(name) != content]:
        return f"changed {changed[0]}"
    if ended.code == 0:
        return "done"
    return "refused" if ended.code == 2 and _is_sentence(ended.stderr) else f"exit {ended.code} without one sentence"


def _is_sentence(said: str) -> bool:
    """Whether the last line says what is wrong, and no other does."""
    errors = re.findall(r"^(?:.*\]|[\w-]+(?: [\w-]+)*: )?error: (.+)$", said, re.MULTILINE)  # a bar may stand before it
    last = said.rstrip("\n").rpartition("\n")[2]
    return len(errors) == 1 and last.endswith(errors[0]) and len(errors[0]) <= _LONGEST


def snapshot(folder: Path) -> dict[str, str]:
    """What every file of a folder holds, by its path."""
    found = {}
    for directory, _, names in os.walk(os.fsencode(folder)):
        for name in names:
            path = os.path.join(directory, name)
            found[os.fsdecode(path)] = _content(path)
    return found


def _content(path: bytes) -> str:
    if os.path.islink(path):
        return f"link to {os.readlink(path)!r}"
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
