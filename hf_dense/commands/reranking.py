"""The options of a cross-encoder that orders anew what was found."""

from __future__ import annotations

import argparse

from hf_dense.commands.output import positive
from hf_dense.errors import InputError


def add_reranking_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--rerank` and `--rerank_depth`."""
    parser.add_argument(
        "--rerank", metavar="MODEL", help="cross-encoder, directory or Hub id, that orders the first passages anew"
    )
    parser.add_argument(
        "--rerank_depth", type=positive, metavar="N", help="passages that --rerank orders (default: 100)"
    )


def check_reranking(arguments: argparse.Namespace) -> None:
    """Raise `InputError` for a depth without a cross-encoder."""
    if arguments.rerank is None and arguments.rerank_depth is not None:
        raise InputError("--rerank_depth is of a re-ranker; name it with --rerank MODEL.")
