"""The command `hf-dense`: each verb is a module of this folder, imported when it is asked for."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from io import TextIOWrapper
from typing import Any, Final, NoReturn, Protocol, cast

from hf_dense.commands.output import encoding_of
from hf_dense.errors import InputError, one_line, run_main
from hf_dense.storage.scratch import advice_on, settle_home
from hf_dense.storage.training_values import check_seed
from hf_dense.version import __version__

VERBS: Final = (
    "adapt",
    "data",
    "pretrain",
    "finetune",
    "merge",
    "export",
    "publish",
    "evaluate",
    "report",
    "search",
    "serve",
    "analyse",
    "glue",
    "sweep",
    "recipes",
    "completion",
)
_TOGETHER: Final = ("data", "pretrain", "finetune", "export", "sweep")  # what several processes may be started for

_QUIET: Final = 10  # seconds between two states of a progress bar in a file, where each stays

_ALONE: Final = ("recipes", "completion")  # what asks nothing of the Hub, and is there at once


class Verb(Protocol):
    """What the module of a verb has. Nothing heavy is imported before `run`."""

    SUMMARY: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's arguments; the default `rest=()` says that it reads others' options (the Trainer's) too."""

    def run(self, arguments: argparse.Namespace) -> None:
        """Do what the arguments say; `rest` are those that nobody knew, `words` all of them."""


class _CommandLine(argparse.ArgumentParser):
    """Says what is wrong with a word without all of an endless one; `innermost` becomes the parser read last."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read what is known, of it the words of a verb by a parser of its own."""
        found, rest = super().parse_known_args(args, namespace)
        found.innermost = getattr(found, "innermost", self)
        return found, rest

    def error(self, message: str) -> NoReturn:
        """End with exit code 2; of what can be chosen, what is like the word that was given is named."""
        super().error(one_line(f"{message}{_meant(message)}"))


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    _open_streams()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be text
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_MININTERVAL", str(_QUIET))  # read when tqdm is imported
    words = [_with_underscores(word) for word in (sys.argv[1:] if argv is None else argv)]
    parser = build_parser(VERBS if not words or words[0] not in VERBS else words[:1])
    arguments, rest = parser.parse_known_args(words)
    innermost = arguments.__dict__.pop("innermost")
    if len(rest) == 1 and getattr(arguments, "question", "") is None and not rest[0].startswith("-"):
        arguments.question = rest.pop()  # argparse finds a word that may be left out before the options alone
    if rest and not hasattr(arguments, "rest"):
        innermost.error(f"unrecognized arguments: {' '.join(rest)}{_instead(rest, innermost)}")
    arguments.rest, arguments.words = rest, words
    run_main(lambda: _run(arguments))


def _open_streams() -> None:
    """Lead nowhere what is closed (`>&-`): else the next file to be opened takes its number, and what is printed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def _run(arguments: argparse.Namespace) -> None:
    if arguments.verb not in _TOGETHER and int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ:
        raise InputError(f"hf-dense {arguments.verb} is one process; start it without accelerate launch.")
    check_seed(getattr(arguments, "seed", 0))
    logging.basicConfig(level=logging.WARNING, format="%(message)s")  # here alone: of Python's callers it is theirs
    try:
        with nullcontext() if arguments.verb in _ALONE else _settled(), encoding_of(arguments):
            load_verb(arguments.verb).run(arguments)
    except Exception as error:  # of what is not the output: temporary files, the caches of libraries
        if said := advice_on(error):
            raise InputError(said) from error
        raise


def _settled() -> AbstractContextManager[None]:
    """See to what libraries look for when they are imported, or first used."""
    settle_home()
    from hf_dense.hub.reach import noticing_offline

    return noticing_offline()


def _instead(words: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """What a verb has that is like the first option it does not know, or where its options are listed."""
    from hf_dense.commands.recipes import closest

    option = next((word.partition("=")[0] for word in words if word.startswith("--")), "")
    return closest(option, re.findall(r"--\w+", parser.format_help()), f"; {parser.prog} --help lists what there is")


def _meant(message: str) -> str:
    """How argparse's sentence about a choice that there is not ends: with those that are like it."""
    from hf_dense.commands.recipes import closest

    found = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)$", message)
    return closest(found[1], re.findall(r"[\w-]+", found[2]), "") if found else ""


def build_parser(verbs: Sequence[str] = VERBS) -> argparse.ArgumentParser:
    """Make the parser of some verbs."""
    parser = _CommandLine(prog="hf-dense", description="Dense retrieval, from your documents to answers.")
    parser.add_argument("--version", action="version", version=f"hf-dense {__version__}")
    choice = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name in verbs:
        verb = load_verb(name)
        verb.add_arguments(choice.add_parser(name, help=verb.SUMMARY, description=verb.SUMMARY, allow_abbrev=False))
    return parser


def _with_underscores(word: str) -> str:
    """`--max-length` as `--max_length`."""
    name, equals, value = word.partition("=")
    return name.replace("-", "_").replace("__", "--", 1) + equals + value if re.match(r"--\w[\w-]*$", name) else word


def load_verb(name: str) -> Verb:
    """The module of a verb."""
    return cast(Verb, import_module(f"hf_dense.commands.{name}"))


if __name__ == "__main__":
    main()
