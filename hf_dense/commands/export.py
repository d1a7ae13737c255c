"""The verb `hf-dense export`. Heavy imports belong inside the functions that run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_dense.errors import InputError


@dataclass(frozen=True)
class Kind:
    """One form of a checkpoint: its help line, the options that it takes, those it cannot do without, its function."""

    summary: str
    export: Callable[..., Path]
    options: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


def _retriever(checkpoint: str, out: str, query_prompt: str = "", document_prompt: str = "", **options: Any) -> Path:
    from hf_dense.hub.export import export_sentence_transformer

    prompts = {"query": query_prompt, "document": document_prompt}
    return export_sentence_transformer(checkpoint, out, prompts=prompts, **options)


def _encoder(checkpoint: str, out: str) -> Path:
    from hf_dense.hub.export import export_encoder

    return export_encoder(checkpoint, out)


def _cross_encoder(checkpoint: str, out: str, **options: Any) -> Path:
    from hf_dense.hub.export import export_cross_encoder

    return export_cross_encoder(checkpoint, out, **options)


def _hybrid(checkpoint: str, out: str, **options: Any) -> Path:
    from hf_dense.hub.hybrid import export_hybrid

    return export_hybrid(checkpoint, out, **options)


def _onnx(checkpoint: str, out: str) -> Path:
    from hf_dense.hub.onnx import export_onnx

    return export_onnx(checkpoint, out)


_LENGTH = ("max_length",)

KINDS = {
    "retriever": Kind(
        "for SentenceTransformer",
        _retriever,
        (*_LENGTH, "pooling", "normalize", "similarity", "query_prompt", "document_prompt"),
        needed=_LENGTH,
    ),
    "encoder": Kind("for AutoModel", _encoder),
    "cross-encoder": Kind("for CrossEncoder", _cross_encoder, _LENGTH),
    "hybrid": Kind("DupMAE's vectors, to be fine-tuned", _hybrid, (*_LENGTH, "dense", "sparse"), needed=_LENGTH),
    "onnx": Kind("an ONNX file of a retriever", _onnx),
}


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `hf-dense export` to its parser."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="directory or Hub id of what is exported")
    parser.add_argument("--out", required=True, metavar="DIR", help="directory to write, complete or not at all")
    forms = "; ".join(f"{name}, {kind.summary}" for name, kind in KINDS.items())
    parser.add_argument("--kind", choices=KINDS, default="retriever", help=f"(default: retriever) {forms}")
    for name, described in (
        ("max_length", "longest input in tokens"),
        ("dense", "hybrid: numbers of the dense part (default: 384)"),
        ("sparse", "hybrid: words that a document keeps (default: 384)"),
    ):
        parser.add_argument(f"--{name}", type=int, help=described, default=argparse.SUPPRESS)
    for name, choices in (("pooling", ("cls", "mean")), ("similarity", ("dot", "cosine"))):
        parser.add_argument(
            f"--{name}", choices=choices, help=f"retriever: (default: {choices[0]})", default=argparse.SUPPRESS
        )
    parser.add_argument(
        "--normalize", action="store_true", help="retriever: vectors of length 1", default=argparse.SUPPRESS
    )
    for role in ("query", "document"):
        parser.add_argument(
            f"--{role}_prompt", metavar="TEXT", help=f"retriever: put before every {role}", default=argparse.SUPPRESS
        )
    parser.add_argument("--push_to_hub", metavar="REPO", help="also publish it under this name")


def run_export(arguments: argparse.Namespace) -> None:
    """Export what the arguments name.

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
    path = kind.export(arguments.checkpoint, arguments.out, **given)
    print(f"exported to {path}")
    if arguments.push_to_hub:
        from huggingface_hub import create_repo, upload_folder

        create_repo(arguments.push_to_hub, exist_ok=True)
        upload_folder(repo_id=arguments.push_to_hub, folder_path=path, commit_message="Upload the model")
        print(f"published as {arguments.push_to_hub}")
