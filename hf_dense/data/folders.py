"""The files of a folder that people wrote: not those that tools keep or write there, nor those that git ignores."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pathspec import GitIgnoreSpec

_OF_TOOLS: Final = ("__pycache__", "node_modules", "site-packages", "venv")
_ENVIRONMENT: Final = "pyvenv.cfg"  # in the folder of a virtual environment
# By what a generator of sites leaves beside its pages: what there holds the pages again, or lists of them.
_COPIES: Final = {
    name: (re.compile(mark), re.compile(copies))
    for name, mark, copies in (
        ("Sphinx", r"\.buildinfo|genindex\.html", r"_sources|(?:genindex.*|py-modindex|search)\.html"),
        ("mdBook", r"book(?:-\w+)?\.js", r"(?:print|toc)\.html"),
        (
            "Javadoc",
            r"(?:overview|package)-tree\.html",
            r"class-use|(?:index-all|all(?:classes|packages)(?:-\w+)?|(?:overview|package)-(?:tree|use|frame)|"
            r"constant-values|deprecated-list|serialized-form|help-doc|search)\.html",
        ),
        (
            "Doxygen",
            r"doxygen\.css",
            r".*(?:_source|-members)\.html|(?:functions|globals|namespacemembers)(?:_\w+)?\.html|"
            r"(?:annotated|classes|files|hierarchy|inherits|dir_\w+)\.html",
        ),
    )
}
_IGNORED, _RULES = "ignored by .gitignore", ".gitignore"


def written_files(folder: Path, skipped: Counter[str]) -> list[Path]:
    """The files of a folder and of the folders in it, sorted; what is hidden, of tools or ignored is left out, and so
    are copies and lists of the pages of a site.

    Args:
        folder: where to look; it may be hidden itself. Links to folders are not followed.
        skipped: receives the number of files and folders left out, each kind by its name.
    """
    return sorted(_walk(folder, [], skipped))


def _walk(folder: Path, rules: list[tuple[Path, GitIgnoreSpec]], skipped: Counter[str]) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except PermissionError:
        skipped["skipped for lack of permission"] += 1
        return
    if (folder / _RULES).is_file():
        lines = (folder / _RULES).read_text(encoding="utf-8", errors="replace").splitlines()
        rules = [*rules, (folder, _ignoring(lines))]
    names = [entry.name for entry in found]
    for entry in found:
        path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
        if reason := _reason(path, is_folder, rules) or _copied(path.name, names):
            skipped[f"skipped {reason}"] += 1
        elif is_folder:
            yield from _walk(path, rules, skipped)
        elif path.is_file():
            yield path
        elif entry.is_symlink():
            skipped["skipped links to folders" if path.is_dir() else "skipped broken links"] += 1


def _ignoring(lines: Iterable[str]) -> GitIgnoreSpec:
    """The rules of a file; a line that is none is passed over, as git does."""
    patterns: list[Any] = []
    for line in lines:
        with suppress(ValueError):
            patterns += GitIgnoreSpec.from_lines([line]).patterns
    return GitIgnoreSpec(patterns)


def _copied(name: str, beside: Collection[str]) -> str:
    """Which generator's copies or lists of pages something is; "" where of none."""
    for generator, (mark, copies) in _COPIES.items():
        if copies.fullmatch(name) and any(map(mark.fullmatch, beside)):
            return f"{generator}'s copies and lists of its pages"
    return ""


def _reason(path: Path, is_folder: bool, rules: list[tuple[Path, GitIgnoreSpec]]) -> str:
    """Why something is left out; "" where it is not."""
    if is_folder and (path.name in _OF_TOOLS or path.name == ".git"):
        return path.name
    if path.name.startswith("."):
        return "hidden"
    if is_folder and (path / _ENVIRONMENT).is_file():
        return "virtual environments"
    for folder, spec in reversed(rules):
        name = path.relative_to(folder).as_posix()
        verdict = spec.check_file(f"{name}/" if is_folder else name).include
        if verdict is not None:
            return _IGNORED if verdict else ""
    return ""
