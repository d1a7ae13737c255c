"""What people say of passages that were found: a file that grows, and that an adaptation reads as queries."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Final

from hf_dense.data.collections import judged_splits
from hf_dense.data.labels import Labels, read_judgements
from hf_dense.errors import InputError
from hf_dense.experiments.adaptation.options import NOTHING_KEPT, AdaptOptions
from hf_dense.search.index import Hit
from hf_dense.serving.passages import adaptation_around, home_of
from hf_dense.storage.files import plain_errors
from hf_dense.storage.manifest import Manifest

_SETTINGS: Final = ("budget", "method", "length", "precision", "seed")
_DEFAULTS: Final = {name: getattr(AdaptOptions, name) for name in (*_SETTINGS, "teacher", "keep")}


class Judgements:
    """A .jsonl file of judgements, one a line; several pages may append to it.

    `{"query": ..., "positive": text, "id": ...}` says that a passage answers a query, `negative` that it does not; of
    the same query and passage the last line counts. One's own pairs may stand there before.

    Args:
        path: of the file; the first judgement makes it.

    Raises:
        InputError: it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        _check(path)
        self.path = path
        self._known = read_judgements(path) if path.exists() else Labels()
        self._lock = Lock()

    def add(self, query: str, hit: Hit, good: bool) -> None:
        """Append one.

        Args:
            query: what was asked.
            hit: what was found.
            good: whether it answers.

        Raises:
            InputError: the passage is empty, or the file cannot be written.
        """
        query, text = query.strip(), hit.text.strip()
        if not text:
            raise InputError("This passage has a title alone; only texts can be judged.")
        row = {"query": query, "positive" if good else "negative": text, "id": hit.id}
        with self._lock:
            _append(self.path, json.dumps(row, ensure_ascii=False))
            if good:
                self._known.add(query, [self._known.keep(text)], ())
            else:
                self._known.reject(query, [self._known.keep(text)])

    def verdict(self, query: str, hit: Hit) -> bool | None:
        """Whether a passage answers a query; None where nobody said."""
        return self._known.verdict(query.strip(), hit.text.strip())

    @property
    def answered(self) -> int:
        """Queries with a passage that answers them: those that an adaptation can use."""
        with self._lock:
            return sum(any(grade > 0 for grade in graded.values()) for graded in self._known.grades.values())


def judgements_of(directory: Path) -> Path:
    """The file for the judgements of what is in a directory.

    It lies beside the outermost directory of ours: a file inside would be foreign there, and keep it from being
    replaced.
    """
    return _beside(directory, "judgements.jsonl")


def next_commands(directory: Path, judgements: Path) -> str:
    """The lines that use the judgements: the adaptation again, or the first one of a retriever.

    A collection with judged queries of its own takes no others, so that another one is made of its passages. Queries
    that an adaptation was made with stand before the judgements, of which the last counts.
    """
    made = adaptation_around(directory)
    documents, how = _again(directory, made)
    lines, queries, own = list[str](), judgements, Path(made.sources.get("queries", "")) if made else Path()
    if Path(documents).is_dir() and judged_splits(documents):
        labelled = str(_beside(directory, "labelled"))
        lines = [shlex.join(["hf-dense", "data", "labels", str(judgements), "--corpus", documents, "--out", labelled])]
        documents, given = labelled, []
    else:
        if own.suffix == ".jsonl" and own.is_file() and own.resolve() != judgements.resolve():
            queries = _free(directory, "queries")
            first, then, both = (shlex.quote(str(file)) for file in (own, judgements, queries))
            lines = [f"(cat {first}; echo; cat {then}) > {both}"]
        given = ["--queries", str(queries)]
    out = str(_beside(directory, "judged"))
    return "\n".join([*lines, shlex.join(["hf-dense", "adapt", documents, *how, *given, "--out", out])])


def _again(directory: Path, made: Manifest | None) -> tuple[str, list[str]]:
    """What is adapted to, and how."""
    if made is None:
        index = Manifest.load(directory / "index")
        corpus = index.sources["corpus"] if index else "DOCS"
        return corpus if Path(corpus).exists() else "DOCS", ["--base", str(directory)]
    given = {"base": made.sources.get("base"), **{name: made.made_from[name] for name in _SETTINGS}}
    given |= {"teacher": made.sources["teacher"], "keep": made.sources.get("kept", NOTHING_KEPT)}
    changed = {name: value for name, value in given.items() if value != _DEFAULTS.get(name)}
    return made.sources["documents"], [word for name, value in changed.items() for word in (f"--{name}", str(value))]


def _beside(directory: Path, ending: str) -> Path:
    """A path beside the outermost directory of ours, as one would type it here."""
    home, here = home_of(directory), Path.cwd()
    path = home.with_name(f"{home.name}-{ending}")
    return path.relative_to(here) if path.is_relative_to(here) else path


def _free(directory: Path, ending: str) -> Path:
    """A .jsonl file beside it that is not there yet, as one that is would be written over: the queries of before."""
    names = (ending if number == 1 else f"{ending}-{number}" for number in count(1))
    return next(path for name in names if not (path := _beside(directory, f"{name}.jsonl")).exists())


def _check(path: Path) -> None:
    if path.suffix != ".jsonl":
        raise InputError(f"Judgements are kept as .jsonl, which {path} is not; name another file with --judgements.")
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"{path} is no file that can be written; name another one with --judgements.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{path} may not be written; name another file with --judgements.")


def _append(path: Path, line: str) -> None:
    """Write a line at the end, one page at a time; a line that somebody left open is ended first.

    Where a disk is full nothing of it stays: half of a line would keep the file from being read.
    """
    with plain_errors(path), path.open("ab+", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # let go when the file is closed
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - 1, 0))
        left = (b"" if file.read(1) in (b"", b"\n") else b"\n") + line.encode("utf-8", "replace") + b"\n"
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:
            file.truncate(end)
            raise
