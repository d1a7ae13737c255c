"""The verb `hf-dense report`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from hf_dense.commands.output import add_output_arguments, output_of
from hf_dense.errors import InputError

SUMMARY = "Compare evaluations on one page."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    parser.add_argument("runs", nargs="+", metavar="NAME=DIR", help="evaluations, by their names in the report")
    parser.add_argument("--collection", required=True, metavar="COLLECTION", help="the collection that they searched")
    parser.add_argument("--baseline", metavar="NAME", help="what the others are held against (default: the first)")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Write the report that the arguments describe.

    Raises:
        InputError: a run without a name, a name given twice, or what `write_html_report` raises.
    """
    runs = _by_name(arguments.runs)
    from hf_dense.evaluation.html_report import write_html_report

    for path in write_html_report(runs, arguments.collection, output_of(arguments), baseline=arguments.baseline):
        print(path)


def _by_name(given: Sequence[str]) -> dict[str, str]:
    runs: dict[str, str] = {}
    for word in given:
        name, _, directory = word.partition("=")
        if not name or not directory:
            raise InputError(f"{word!r} is not NAME=DIR, a name and the directory of an evaluation.")
        if name in runs:
            raise InputError(f"Two runs are called {name!r}; give each a name of its own.")
        runs[name] = directory
    return runs
