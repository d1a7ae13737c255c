"""The verb `hf-dense publish`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from hf_dense.errors import InputError

SUMMARY: Final = "Put a model, data or a report on the Hub, with its card."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `hf-dense publish`."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="what hf-dense wrote")
    parser.add_argument("repo", metavar="REPO", help="name on the Hub: me/name")
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="evaluations, of which those of this very model go into its card"
    )
    parser.add_argument(
        "--mteb",
        type=Path,
        metavar="DIR",
        help="also write the results on MTEB's tasks here, in the layout of its results repository",
    )
    parser.add_argument(
        "--trained_on",
        nargs="*",
        metavar="TASK",
        help="with --mteb: MTEB's names of the data that the model was trained on; without a name, none of them "
        "(default: not known)",
    )
    parser.add_argument(
        "--private",
        action="store_true",
        help="make a new repository private, and refuse a public one (default: as the account has it)",
    )
    parser.add_argument("--revision", metavar="BRANCH", help="branch that is written to (default: main)")


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

    if arguments.mteb is not None and arguments.results is None:
        raise InputError("--mteb writes results in another layout; name the evaluations with --results DIR.")
    if arguments.trained_on is not None and arguments.mteb is None:
        raise InputError("--trained_on is told to MTEB; say where its results are written with --mteb DIR.")
    results, place = [], published_part(arguments.directory)[0]
    if arguments.results is not None:
        from hf_dense.evaluation.measured import measured_of

        results = measured_of(place, arguments.results)
    options = {"private": True if arguments.private else None, "revision": arguments.revision}
    if arguments.mteb is None:
        return publish(arguments.directory, arguments.repo, results=results, **options)
    from huggingface_hub import HfApi

    from hf_dense.evaluation.mteb_results import check_mteb_results, write_mteb_results
    from hf_dense.hub.repositories import Repository

    measured = (place, arguments.results)
    named = {"name": Repository(arguments.repo).check(), "trained_on": arguments.trained_on}
    out = check_mteb_results(*measured, arguments.mteb, **named)
    address = publish(arguments.directory, arguments.repo, results=results, **options)
    commit = str(HfApi().model_info(named["name"], revision=arguments.revision).sha)
    write_mteb_results(*measured, out, revision=commit, **named)
    return address
