"""The options of every verb that writes a directory."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from hf_dense.commands.options import Flags
from hf_dense.hub.precision import FP32, PRECISIONS
from hf_dense.storage.output import Output


def add_output_arguments(parser: argparse.ArgumentParser, *, license_of: str | None = None, push: bool = False) -> None:
    """Add `--out` and `--overwrite`.

    Args:
        parser: of the verb.
        license_of: what `--license` is of (`the texts`); None adds no such option.
        push: whether `--push_to_hub` is added.
    """
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="directory to write")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace what hf_dense wrote there from other inputs or settings"
    )
    if license_of:
        parser.add_argument("--license", default="other", help=f"of {license_of}, for the card (default: other)")
    if push:
        parser.add_argument("--push_to_hub", metavar="REPO", help="also publish it under this name")


def add_encoding_arguments(parser: Flags, *, kept: bool = False, pairs: bool = False) -> None:
    """Add how and where texts are encoded: `--precision`, `--max_length`, `--batch_size` and `--ray`.

    Args:
        parser: of the verb, or a group of it.
        kept: whether what is not given is that of an index that is there.
        pairs: whether what is read are pairs alone, which `--max_length` does not cut and this machine reads.
    """
    index = "that of the index that is there, else " if kept else ""
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default=None if kept else FP32,
        help=f"what models compute in; vectors are float32 in each (default: {index}{FP32}, the same on every machine)",
    )
    if not pairs:
        parser.add_argument(
            "--max_length",
            type=int,
            metavar="N",
            help=f"longest text of a retriever in tokens (default: {index}the model's own)",
        )
        parser.add_argument(
            "--ray", metavar="HOST:PORT", help="address of a Ray cluster whose machines encode passages"
        )
    parser.add_argument(
        "--batch_size", type=positive, default=64, help="texts, or pairs, encoded at once (default: 64)"
    )


def encoding_of(arguments: argparse.Namespace) -> AbstractContextManager[None]:
    """Where a verb encodes passages: on the cluster that `--ray` names, or here."""
    if getattr(arguments, "ray", None) is None:
        return nullcontext()
    from hf_dense.search.cluster import encoding_on

    return encoding_on(arguments.ray)


def losses_aside() -> AbstractContextManager[Any]:
    """While a verb trains: the losses that the Trainer prints go to standard error, so the result stands alone."""
    return redirect_stdout(sys.stderr)


def positive(word: str) -> int:
    """A whole number of 1 or more, as argparse reads it."""
    if not re.fullmatch(r"0*[1-9]\d{,17}", word, re.ASCII):
        raise argparse.ArgumentTypeError(f"{word!r} is no whole number of 1 or more")
    return int(word)


def output_of(arguments: argparse.Namespace) -> Output:
    """The output that the arguments name, with the command line for its manifest."""
    return Output(
        arguments.out, arguments.overwrite, command_line(arguments), getattr(arguments, "license", "other").lower()
    )


def check_publishing(repo: str, kind: str = "model") -> None:
    """Raise `InputError` where nothing can be published, before long work begins.

    Args:
        repo: name on the Hub.
        kind: `model` or `dataset`.
    """
    from hf_dense.hub.repositories import Repository

    Repository(repo, kind).check_room()


def publish_output(path: Path, repo: str) -> None:
    """Publish what was written, and say where."""
    from hf_dense.hub.publish import publish

    print(f"published as {publish(path, repo)}")


def command_line(arguments: argparse.Namespace) -> str:
    """The command as a person would type it again; a token of the Hub is left out."""
    words = " ".join(["hf-dense", *map(shlex.quote, getattr(arguments, "words", ()))])
    return re.sub(r"(--hub_token[= ])\S+", r"\1...", words)
