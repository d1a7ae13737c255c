"""The verb `hf-dense evaluate`."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from hf_dense.commands.output import add_encoding_arguments, add_output_arguments, output_of
from hf_dense.errors import InputError
from hf_dense.hub.precision import Reading

SUMMARY = "Measure retrievers on tasks."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    parser.add_argument("models", nargs="+", metavar="[NAME=]MODEL", help="directories or Hub ids, or bm25")
    parser.add_argument(
        "--tasks",
        nargs="+",
        required=True,
        metavar="TASK",
        help="names of MTEB's retrieval tasks, beir, web, or COLLECTION[:SPLIT] (split: test), a directory or, of the "
        "Hub, owner/name[@revision]",
    )
    parser.add_argument(
        "--protocol",
        choices=("passages", "documents", "answers", "candidates"),
        default="passages",
        help="how directories are measured: by passages; documents by their best passages (MS MARCO); answers in "
        "passages (Natural Questions); given candidates (MIND) (default: passages)",
    )
    parser.add_argument(
        "--rerank",
        nargs="+",
        default=[],
        metavar="[NAME=]MODEL",
        help="cross-encoders or retrievers that order the first passages anew",
    )
    parser.add_argument(
        "--rerank_depth", type=int, default=100, help="passages that --rerank orders, at most 1000 (default: 100)"
    )
    parser.add_argument(
        "--dimensions",
        nargs="+",
        type=int,
        default=[],
        metavar="N",
        help="measure every model also with its vectors cut to the first N dimensions, a row for each",
    )
    add_encoding_arguments(parser)
    parser.add_argument("--no_bm25", action="store_true", help="leave out the row of BM25")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate what the arguments name, and print the table and the comparison of all that is in the directory."""
    logging.getLogger("hf_dense").setLevel(logging.INFO)
    print(measure(arguments), end="")


def measure(arguments: argparse.Namespace) -> str:
    """Evaluate what the arguments name.

    Returns:
        The table and the comparison of all that is in the directory, as Markdown.

    Raises:
        InputError: two models have the same name; or what an evaluation raises.
    """
    from hf_dense.evaluation.benchmark import TABLE_FILE, evaluate_tasks

    models, rerankers = (_named(words) for words in (arguments.models, arguments.rerank))
    # It searches, and so has no candidates to order.
    added = not (arguments.no_bm25 or arguments.protocol == "candidates" or "bm25" in {*models, *models.values()})
    models = {**({"bm25": "bm25"} if added else {}), **models}
    options = {
        "protocol": arguments.protocol,
        "rerankers": rerankers,
        "rerank_depth": arguments.rerank_depth,
        "dimensions": arguments.dimensions,
        "batch_size": arguments.batch_size,
        "reading": Reading(arguments.precision, arguments.max_length),
        "baselines": ["bm25"] if added else [],
    }
    evaluate_tasks(models, arguments.tasks, output_of(arguments), **options)
    table: str = (arguments.out / TABLE_FILE).read_text(encoding="utf-8")
    return table


def _named(words: Sequence[str]) -> dict[str, str]:
    """`NAME=MODEL` as a mapping; a model without a name has that of its directory."""
    pairs = [(name or _last(model), model) for name, model in map(_divided, words)]
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"Two models are called {name!r}; name them: NAME=MODEL.")
    return dict(pairs)


def _last(model: str) -> str:
    """The name of a model's directory, also where it is typed as `.` or `..`."""
    name = Path(model).name
    return Path(model).resolve().name if name in ("", "..") else name


def _divided(word: str) -> tuple[str, str]:
    """Name ("" where there is none) and model; the path of a model may have a = of its own.

    >>> _divided("mine=runs/lr=1e-4/model"), _divided("runs/lr=1e-4/model")
    (('mine', 'runs/lr=1e-4/model'), ('', 'runs/lr=1e-4/model'))
    """
    name, equals, model = word.partition("=")
    return (name, model) if equals and "/" not in name and not os.path.exists(word) else ("", word)
