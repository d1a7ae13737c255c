"""The verb `hf-dense publish`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

SUMMARY: Final = "Put a model, data or a report on the Hub, with its card."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `hf-dense publish`."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="what hf-dense wrote")
    parser.add_argument("repo", metavar="REPO", help="name on the Hub: me/name")
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="evaluations, of which those of this very model go into its card"
    )
    parser.add_argument("--private", action="store_true", help="where the repository is new (default: as the account)")
    parser.add_argument("--revision", metavar="BRANCH", help="that is written to (default: main)")


def run(arguments: argparse.Namespace) -> None:
    """Publish what the arguments name, and say where."""
    print(f"published as {put_on_hub(arguments)}")


def put_on_hub(arguments: argparse.Namespace) -> str:
    """Publish what the arguments name.

    Returns:
        The address of the repository.

    Raises:
        InputError: what is there cannot be published, or evaluations are of another model.
    """
    from hf_dense.hub.publish import publish, published_part

    results = []
    if arguments.results is not None:
        from hf_dense.evaluation.measured import measured_of

        results = measured_of(published_part(arguments.directory)[0], arguments.results)
    private = True if arguments.private else None
    return publish(arguments.directory, arguments.repo, results=results, private=private, revision=arguments.revision)
