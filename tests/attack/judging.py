"""The one judge of every attack: success, or a sentence and exit code 2, and nothing that was there is changed."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Final

from forked import Ended

_LONGEST: Final = 2_000  # characters of a sentence
_TIMES: Final = re.compile(
    "second|minute|runtime|time|date|_at$|rate|memory|commit|started|took|cost|train_loss|^tokens$|^resumed$"
    "|^truncation$|^padding$",  # the last a tokenizer was asked for
    re.I,
)


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


def contents(folder: Path) -> dict[str, Any]:
    """What two runs of one command should agree in: every file, by its path; of JSON what is no time."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = _meaning(path)
        elif not path.is_dir():
            found[str(path.relative_to(folder))] = "no file"
    return found


def _meaning(path: Path) -> Any:
    if path.suffix in (".png", ".html") or path.name == "training_args.bin":  # which also say how a run was resumed
        return "there"
    if path.suffix in (".md", ".csv", ".log"):
        return re.sub(r"\b[0-9a-f]{7,}\b|\d[\d.,]*", "0", path.read_text(encoding="utf-8"))
    if path.suffix == ".json":
        try:
            return _without_times(json.loads(path.read_text(encoding="utf-8")))
        except ValueError:
            return "broken JSON"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        if isinstance(sizes := value.get("files"), dict):  # of a manifest
            value = {**value, "files": sorted(sizes), "hashes": sorted(value.get("hashes", ()))}
        return {name: _without_times(each) for name, each in value.items() if not _TIMES.search(name)}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


def difference(found: dict[str, Any], first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Paths that are missing, too many, or hold something else than in two undisturbed runs that agree there."""
    names = {name for name in {*found, *first} if (name in found) != (name in first)}
    return sorted(names | {name for name in found if _differs(found[name], first.get(name), second.get(name))})


def _differs(found: Any, first: Any, second: Any) -> bool:
    if first == second or not all(isinstance(each, dict) for each in (found, first, second)):
        return first == second and found != first
    return found.keys() != first.keys() or any(_differs(found[name], first[name], second.get(name)) for name in first)
