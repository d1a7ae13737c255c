"""The verb `hf-dense report`. Heavy imports belong inside the function that runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from hf_dense.errors import InputError


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `hf-dense report` to its parser."""
    parser.add_argument("runs", nargs="+", metavar="NAME=DIR", help="evaluations, by their names in the report")
    parser.add_argument("--collection", required=True, metavar="DIR", help="dataset directory that they searched")
    parser.add_argument("--out", required=True, metavar="DIR", help="receives report.html and report.md")
    parser.add_argument("--baseline", metavar="NAME", help="what the others are held against (default: the first)")


def run_report(arguments: argparse.Namespace) -> None:
    """Write the report that the arguments describe.

    Raises:
        InputError: a run without a name, a name given twice, or what `write_html_report` raises.
    """
    runs = _by_name(arguments.runs)
    from hf_dense.evaluation.html_report import write_html_report

    for path in write_html_report(runs, arguments.collection, arguments.out, baseline=arguments.baseline):
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
