"""The verb `hf-dense completion`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from hf_dense.commands.recipes import FOLDER

SUMMARY: Final = "Print what lets a shell complete these commands."
_SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    parser.add_argument("shell", choices=_SHELLS, help="source <(hf-dense completion bash), say")


def run(arguments: argparse.Namespace) -> None:
    """Print the script of a shell."""
    import shtab

    from hf_dense.commands.main import build_parser

    whole = build_parser()
    recipes = _recipes(sorted(path.stem for path in FOLDER.glob("*.yaml")))
    for parser in _parsers(whole):
        parser.description = ""  # so that the one line of a verb's help stands beside it
        for action in parser._actions:
            if action.dest == "config":
                action.complete = recipes  # type: ignore[attr-defined]
            elif action.nargs != 0 and action.choices is None and action.type in (None, str, Path):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(whole, arguments.shell))


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser, those of its verbs, and of theirs."""
    yield parser
    for action in parser._actions:
        for inner in action.choices.values() if isinstance(action.choices, dict) else ():
            if isinstance(inner, argparse.ArgumentParser):
                yield from _parsers(inner)


def _recipes(names: Sequence[str]) -> dict[str, Any]:
    """How shtab completes the name of a recipe, or the path of a file."""
    function, words = "_hf_dense_recipe_or_file", " ".join(names)
    return {
        "bash": function,
        "zsh": function,
        "fish": f"{words} (__fish_complete_path (commandline -ct))",
        "preamble": {
            "bash": f'{function}() {{\n  compgen -W \'{words}\' -- "$1"\n  compgen -f -- "$1"\n}}',
            "zsh": f'{function}() {{\n  compadd "$@" -- {words}\n  _files "$@"\n}}',
        },
    }
