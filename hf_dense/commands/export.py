"""The verb `hf-dense export`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from hf_dense.commands.options import read_boolean
from hf_dense.commands.output import add_output_arguments, check_publishing, output_of, publish_output
from hf_dense.errors import InputError
from hf_dense.storage.manifest import Manifest

SUMMARY = "Write a model in the form others load."


@dataclass(frozen=True)
class Kind:
    """One form of a checkpoint.

    Args:
        summary: for the help.
        function: that exports it, with its module in `hf_dense.hub`.
        options: that it takes.
        needed: of them.
    """

    summary: str
    function: str
    options: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


_LENGTH, _PROMPTS = ("max_length",), ("query_prompt", "document_prompt")

KINDS = {
    "retriever": Kind(
        "for SentenceTransformer",
        "export.export_sentence_transformer",
        (*_LENGTH, "query_length", "pooling", "normalize", "similarity", *_PROMPTS),
    ),
    "encoder": Kind("for AutoModel", "export.export_encoder"),
    "cross-encoder": Kind("for CrossEncoder", "export.export_cross_encoder", _LENGTH),
    "hybrid": Kind(
        "DupMAE's vectors, to be fine-tuned",
        "hybrid.export_hybrid",
        (*_LENGTH, "query_length", "dense", "sparse"),
        needed=_LENGTH,
    ),
    "onnx": Kind("an ONNX file of a retriever", "onnx.export_onnx"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `hf-dense export`; the options of its kinds are absent unless they are given."""
    parser.add_argument("checkpoint", metavar="MODEL", help="directory or Hub id of what is exported")
    add_output_arguments(parser, license_of="the model", push=True)
    forms = "; ".join(f"{name}, {kind.summary}" for name, kind in KINDS.items())
    parser.add_argument("--kind", choices=KINDS, default="retriever", help=f"{forms} (default: retriever)")
    options = parser.add_argument_group("of some kinds", argument_default=argparse.SUPPRESS)
    options.add_argument(
        "--max_length",
        type=int,
        help="retriever, cross-encoder, hybrid: longest input in tokens; needed where MODEL is a plain encoder",
    )
    options.add_argument(
        "--query_length", type=int, help="retriever, hybrid: longest query in tokens (default: max_length)"
    )
    options.add_argument("--dense", type=int, help="hybrid: numbers of the dense part, or 0 (default: 384)")
    options.add_argument("--sparse", type=int, help="hybrid: words that a document keeps (default: 384)")
    own = "(default: the model's own"
    options.add_argument("--pooling", choices=("cls", "mean"), help=f"retriever: {own}, else cls)")
    options.add_argument("--similarity", choices=("dot", "cosine"), help=f"retriever: {own}, else dot)")
    options.add_argument(
        "--normalize",
        type=read_boolean,
        nargs="?",
        const=True,
        metavar="true",
        help=f"retriever: vectors of length 1, or with false as they are {own}, else false)",
    )
    for name in _PROMPTS:
        options.add_argument(f"--{name}", metavar="TEXT", help=f"retriever: put before every {name.split('_')[0]}")


def run(arguments: argparse.Namespace) -> None:
    """Export what the arguments name, say what that changes, and publish it where a name on the Hub is given."""
    before = Manifest.load(arguments.out)
    path = export(arguments)
    print(f"{path} is there already" if before and before == Manifest.load(path) else f"exported to {path}")
    if arguments.push_to_hub:
        publish_output(path, arguments.push_to_hub)


def export(arguments: argparse.Namespace) -> Path:
    """Export what the arguments name, and warn of what that changes.

    Raises:
        InputError: an option that the kind does not take, or one absent that it needs; or what the export raises.
    """
    kind = KINDS[arguments.kind]
    every = {option for form in KINDS.values() for option in form.options}
    given = {name: value for name, value in vars(arguments).items() if name in every}
    for name in given:
        if name not in kind.options:
            raise InputError(f"--{name} does not belong to --kind {arguments.kind}; leave it off.")
    for name in kind.needed:
        if name not in given:
            raise InputError(f"--kind {arguments.kind} needs --{name}.")
    if prompts := {name.split("_")[0]: given.pop(name) for name in _PROMPTS if name in given}:
        given["prompts"] = prompts
    if arguments.push_to_hub:
        check_publishing(arguments.push_to_hub)
    module, function = kind.function.split(".")
    write = getattr(import_module(f"hf_dense.hub.{module}"), function)
    path: Path = write(arguments.checkpoint, output_of(arguments), **given)
    return path
