"""Ways to spoil a file or a value, each drawn from a seeded generator and told in a few words."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

DEEP: Final = "[" * 20_000 + "]" * 20_000
DIGITS: Final = "7" * 5_000
# As JSON has them: what Python's writer would not write stands here too.
VALUES: Final = {
    "null": "null",
    "a number": "3",
    "a fraction": "0.5",
    "a negative number": "-3",
    "a large number": "2147483647",
    "a larger number": "2147483648",
    "1e9": "1e9",
    "5,000 digits": DIGITS,
    "NaN": "NaN",
    "Infinity": "Infinity",
    "true": "true",
    "no text": '""',
    "blank text": '" \\t"',
    "a word": '"abc"',
    "a lone surrogate": '"ab \\ud800 cd"',
    "a null character": '"ab \\u0000 cd"',
    "a path upwards": '"../../x"',
    "a long word": json.dumps("x" * 1_000_000),
    "an empty object": "{}",
    "an object": '{"a": 1}',
    "an empty list": "[]",
    "a list with null": '[null, "a"]',
    "a list of lists": '[["a"], [1]]',
    "deep lists": DEEP,
}
WORDS: Final = (
    *("abc", "-3", "0", "1", "1.5", "1e-4", "1e9", "99999999999999999999", DIGITS, "nan", "inf", "-inf", "", " "),
    *("null", "true", "\u0000", "\udcff", "é\u202e", "../..", "*", "/dev/null", "/proc/self/mem", "a" * 5_000),
    *("--out", "{text}", "%s"),
)
YAML: Final = (
    *("1e-4", "abc", "-3", "1e9", DIGITS, "null", "[1, 2]", "{a: 1}", ".nan", ".inf", "2020-01-01", "yes", "'1e-4'"),
    *("!!python/object:os.system ls", "!!binary abc", "&a [*a]", "'\\ud800'", '"\\ud800"', "0x1F", "1:30"),
    *(f"'{'x' * 5_000}'", "|\n  text"),
)
GRADES: Final = ("", " ", "abc", "-1", "0", "1.5", "2147483647", "2147483648", DIGITS, "nan", "\u0000", "x" * 100_000)
HOW_JUDGED: Final = ("value", "value", "twice", "another grade", "column", "columns", "no header", "unknown")
SECTIONS: Final = ("unknown", "extends", "by_method", "retriever", "bm25", "out", "3", "null")

Draw = random.Random


def spoil_file(path: Path, draw: Draw) -> str:
    """Spoil a file in a way that its kind has, or as bytes; gives what was done."""
    kinds: dict[str, Callable[[Path, Draw], str]] = {
        ".jsonl": _spoil_lines,
        ".json": _spoil_json,
        ".ipynb": _spoil_json,
        ".tsv": _spoil_judgements,
        ".yaml": _spoil_yaml,
    }
    by_kind = kinds.get(path.suffix, _spoil_bytes)
    return (by_kind if draw.random() < 0.75 else _spoil_bytes)(path, draw)


def _spoil_bytes(path: Path, draw: Draw) -> str:
    content = path.read_bytes()
    at = draw.randrange(len(content) or 1)
    several = bytearray(content)
    for _ in range(8):
        if several:
            several[draw.randrange(len(several))] = draw.randrange(256)
    ways = {
        f"cut at byte {at}": content[:at],
        "emptied": b"",
        "bytes changed": bytes(several),
        "random bytes": draw.randbytes(200),
        "a null character inside": content[:at] + b"\0" + content[at:],
        "no UTF-8 inside": content[:at] + b"\xff\xfe" + content[at:],
        "a byte-order mark": b"\xef\xbb\xbf" + content,
        "in UTF-16": content.decode("utf-8", "replace").encode("utf-16"),
        "a page of HTML": b"<!DOCTYPE html><html><body>404</body></html>",
        "a pointer of Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    }
    how = draw.choice([*ways, "a folder in its place", "a dangling link in its place", "gone"])
    if how in ways:
        path.write_bytes(ways[how])
        return how
    path.unlink()
    if "folder" in how:
        path.mkdir()
    elif "link" in how:
        path.symlink_to(path.with_name("nowhere"))
    return how


def _spoil_lines(path: Path, draw: Draw) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    at = draw.randrange(len(lines))
    rows = range(len(lines)) if draw.random() < 0.3 else [at]
    how = draw.choice(["value", "value", "value", "value", "key", "twice", "no object", "half", "empty lines"])
    if how == "value":
        name, (what, value) = draw.choice(list(json.loads(lines[at]))), draw.choice(list(VALUES.items()))
        for row in rows:
            lines[row] = _with_value(lines[row], name, value)
        how = f"{name} is {what} in {len(rows)} lines"
    elif how == "key":
        name = draw.choice(list(json.loads(lines[at])))
        for row in rows:
            lines[row] = json.dumps({key: value for key, value in json.loads(lines[row]).items() if key != name})
        how = f"no {name} in {len(rows)} lines"
    elif how == "twice":
        lines.append(lines[at])
    elif how == "empty lines":
        lines.insert(at, "\n \n")
    else:
        half = lines[at][: len(lines[at]) // 2]
        lines[at] = draw.choice(["[1, 2]", "3", '"text"', "null"]) if how == "no object" else half
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return how


def _with_value(line: str, name: str, value: str) -> str:
    """A line of JSON with another value, as it stands, for a name."""
    row = json.loads(line)
    return "{" + ", ".join(f"{json.dumps(key)}: {value if key == name else json.dumps(row[key])}" for key in row) + "}"


def _spoil_json(path: Path, draw: Draw) -> str:
    """Another value, or none, at a place of a JSON file; `@` marks it until its text can be put there."""
    content = json.loads(path.read_text(encoding="utf-8"))
    places = list(_places(content))
    if not places:
        return _spoil_bytes(path, draw)
    holder, key = draw.choice(places)
    if draw.random() < 0.2:
        del holder[key]
        what = "gone"
        text = json.dumps(content)
    else:
        what, value = draw.choice(list(VALUES.items()))
        holder[key] = "@@place@@"
        text = json.dumps(content).replace('"@@place@@"', value)
    path.write_text(text, encoding="utf-8")
    return f"{key!r} is {what}"


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Every place of a JSON value, of long lists and objects the first few."""
    if not isinstance(content, dict | list):
        return []
    keys = list(content)[:40] if isinstance(content, dict) else list(range(len(content)))[:3]
    return [place for key in keys for place in ((content, key), *_places(content[key]))]


def _spoil_judgements(path: Path, draw: Draw) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    at, how = draw.randrange(1, len(lines)), draw.choice(HOW_JUDGED)
    fields = lines[at].split("\t")
    if how == "value":
        place, word = draw.randrange(3), draw.choice(GRADES)
        fields[place] = word
        lines[at] = "\t".join(fields)
        how = f"column {place} is {word[:12]!r}"
    elif how == "twice":
        lines.append(lines[at])
    elif how == "another grade":
        lines.append("\t".join([*fields[:2], "2"]))
    elif how == "column":
        lines[at] = "\t".join(fields[:2])
    elif how == "columns":
        lines[at] += "\t0\t1"
    elif how == "no header":
        lines = lines[1:]
    else:
        lines[at] = "\t".join(["unknown", *fields[1:]] if draw.random() < 0.5 else [fields[0], "unknown", fields[2]])
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return how


def _spoil_yaml(path: Path, draw: Draw) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    top = [row for row, line in enumerate(lines) if not line.startswith((" ", "-"))]
    at, value = draw.choice(top), draw.choice(YAML)
    key = lines[at].partition(":")[0]
    if draw.random() < 0.2:
        lines.append(f"{draw.choice(SECTIONS)}: {value}")
        how = lines[-1]
    else:
        rest = [row for row in top if row > at]
        lines[at : rest[0] if rest else len(lines)] = [f"{key}: {value}"]
        how = f"{key}: {value}"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return how[:80]


def spoil_folder(folder: Path, draw: Draw) -> str:
    """Spoil something of a folder: mostly one of its files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    how = draw.random()
    if how < 0.9:
        path = draw.choice(files)
        return f"{path.relative_to(folder)}: {spoil_file(path, draw)}"
    if how < 0.93:
        shutil.rmtree(folder)
        folder.mkdir()
        return "empty"
    if how < 0.96:
        shutil.rmtree(folder)
        folder.write_text("a file")
        return "a file"
    name = os.fsdecode(b"\xff\xfe") + draw.choice([".md", ".jsonl", ".json", ".tsv", ".parquet"])
    (folder / name).write_text("{}")
    return "a file whose name is no UTF-8"
