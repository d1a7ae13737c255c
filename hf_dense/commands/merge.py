"""The verb `hf-dense merge`: between a retriever and what tuning made of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from hf_dense.commands.options import read_number
from hf_dense.commands.output import add_output_arguments, output_of
from hf_dense.errors import InputError

SUMMARY: Final = "Find the retriever between two that is best for your collection and for another."
_WEIGHTS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)  # measured where none are named
_INTRODUCTION: Final = """\
Write the retriever whose weights are BASE + w (TUNED - BASE): what tuning gained without all that it forgot. Several w
are measured on your collection and on another; the one with the largest sum of both nDCG@10 is written.

  hf-dense merge EMBEDDER build/retriever/model --collection COLLECTION --keep OTHER --out build/merged
  hf-dense merge EMBEDDER build/retromae --delta EMBEDDER --collection COLLECTION --out build/merged
  hf-dense merge EMBEDDER build/retriever/model --weight 0.5 --out build/merged

With --delta the weights are BASE + w (TUNED - START): what training changed in START is added, with BASE's pooling.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    parser.description, parser.formatter_class = _INTRODUCTION, argparse.RawDescriptionHelpFormatter
    parser.add_argument("base", metavar="BASE", help="retriever before tuning: directory or Hub id")
    parser.add_argument("tuned", metavar="TUNED", help="retriever, or pre-training checkpoint, after it")
    parser.add_argument("--delta", metavar="START", help="encoder that TUNED was trained from, where it is not BASE")
    parser.add_argument("--collection", metavar="DIR", help="the collection that TUNED was tuned for")
    parser.add_argument("--split", default="dev", help="split of it that w is chosen on; not test (default: dev)")
    parser.add_argument(
        "--keep",
        default="python_docs",
        metavar="COLLECTION[:SPLIT]",
        help="another collection that w is chosen on (split: dev); python_docs, a small part of Python's "
        "documentation, is built when it is first needed (default: python_docs)",
    )
    parser.add_argument(
        "--weights",
        nargs="+",
        type=read_number,
        metavar="W",
        help="values of w that are measured (default: 0 0.25 0.5 0.75 1)",
    )
    parser.add_argument("--weight", type=read_number, metavar="W", help="write the model at this w, without measuring")
    parser.add_argument("--batch_size", type=int, default=64, help="texts encoded at once (default: 64)")
    add_output_arguments(parser, license_of="the model")


def run(arguments: argparse.Namespace) -> None:
    """Write the model at the weight that was asked for, or at the best one.

    Raises:
        InputError: neither a weight nor a collection is given, or what merging raises.
    """
    if arguments.weight is None and arguments.collection is None:
        raise InputError("Name the collection that w is chosen on (--collection), or the w that is wanted (--weight).")
    for name in ("collection", "weights"):
        if arguments.weight is not None and getattr(arguments, name) is not None:
            raise InputError(f"--weight is written without measuring; leave it out, or --{name}.")
    from hf_dense.experiments.interpolation import Between
    from hf_dense.experiments.keeping import Kept, open_kept
    from hf_dense.experiments.merging import check_weights, merge_at, merge_best, read_table

    output, models = output_of(arguments), (arguments.base, arguments.tuned, arguments.delta)
    weights = _WEIGHTS if arguments.weights is None else arguments.weights
    check_weights([arguments.weight] if arguments.weight is not None else weights)
    if arguments.weight is not None:
        model = merge_at(Between(*models), arguments.weight, output)
    else:
        own = Kept(Path(arguments.collection).resolve().name, Path(arguments.collection), arguments.split)
        kept = open_kept(arguments.keep, arguments.collection)
        model = merge_best(Between(*models), weights, own, kept, output, arguments.batch_size)
        print(read_table(arguments.out))
    print(f"The model is in {model}")
