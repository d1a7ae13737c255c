"""The verb `hf-dense analyse`. Heavy imports belong inside the functions that run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hf_dense.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LENGTHS = (16, 32, 64, 128, 256, 512)

Drawn = tuple[Sequence[Any], "Figure"]


@dataclass(frozen=True)
class Analysis:
    """One analysis: its help line, its arguments, and what gives its figures and their picture."""

    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Drawn]


def add_analyse_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every analysis to the parser of `hf-dense analyse`."""
    verbs = parser.add_subparsers(dest="analysis", required=True, metavar="WHAT")
    for name, analysis in ANALYSES.items():
        verb = verbs.add_parser(name, help=analysis.summary, description=analysis.summary)
        analysis.add_arguments(verb)
        verb.add_argument("--seed", type=int, default=0, help="of all draws (default: 0)")
        verb.add_argument("--out", required=True, metavar="DIR", help="receives a PNG and a JSON of what it shows")


def run_analyse(arguments: argparse.Namespace) -> None:
    """Run the analysis that the arguments name, and write it.

    Raises:
        InputError: what the analysis raises, or something else is where it should be written.
    """
    from transformers.utils.logging import disable_progress_bar

    from hf_dense.evaluation.analysis_plots import marker_of, save_analysis
    from hf_dense.storage.legacy import check_replaceable

    disable_progress_bar()
    kind = arguments.analysis
    check_replaceable(arguments.out, marker=marker_of(kind))
    rows, figure = ANALYSES[kind].run(arguments)
    settings = {name: value for name, value in vars(arguments).items() if name not in ("verb", "analysis", "out")}
    save_analysis(kind, rows, figure, arguments.out, settings=settings, provenance=_provenance(arguments))
    for row in rows:
        print("  ".join(f"{name} {_shown(value)}" for name, value in vars(row).items()))
    print(f"drawn in {arguments.out}/{kind}.png")


def _provenance(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Where the figures come from; None where the corpus is no collection on disk."""
    from hf_dense.data.collections import content_hash
    from hf_dense.storage.provenance import provenance

    try:
        return (
            provenance(arguments.seed, arguments.corpus, content_hash(arguments.corpus))
            if "corpus" in arguments
            else None
        )
    except InputError:
        return None


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpus", metavar="CORPUS", help="passages: a directory, file or Hub dataset")


def _draw_texts(arguments: argparse.Namespace) -> list[str]:
    """As many texts of the corpus as were asked for, none empty."""
    import numpy as np

    from hf_dense.data.corpus import load_passages

    corpus = load_passages(arguments.corpus)
    drawn = np.random.default_rng(arguments.seed).permutation(len(corpus))[: arguments.texts]
    return [text for text in corpus.select(drawn)["text"] if text and text.strip()]


def _add_lengths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="exported retriever, or directory of an encoder")
    _add_corpus(parser)
    parser.add_argument(
        "--lengths",
        type=int,
        nargs="+",
        default=_LENGTHS,
        metavar="N",
        help="greatest number of tokens of each bucket (default: 16 32 64 128 256 512)",
    )
    parser.add_argument("--texts", type=int, default=10_000, help="texts drawn from the corpus (default: 10000)")
    parser.add_argument("--pairs", type=int, default=1000, help="pairs drawn for each length (default: 1000)")


def _lengths(arguments: argparse.Namespace) -> Drawn:
    from hf_dense.evaluation.analyses import similarity_by_length
    from hf_dense.evaluation.analysis_plots import draw_lengths

    rows = similarity_by_length(
        arguments.model,
        _draw_texts(arguments),
        lengths=arguments.lengths,
        pairs=arguments.pairs,
        seed=arguments.seed,
    )
    return rows, draw_lengths(rows)


def _add_positions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="pre-training checkpoint of seed_encoder")
    _add_corpus(parser)
    parser.add_argument("--max_length", type=int, default=128, help="longest text in tokens (default: 128)")
    parser.add_argument("--texts", type=int, default=1000, help="texts drawn from the corpus (default: 1000)")


def _positions(arguments: argparse.Namespace) -> Drawn:
    from hf_dense.evaluation.analysis_plots import draw_positions
    from hf_dense.evaluation.positions import similarity_by_position

    rows = similarity_by_position(arguments.checkpoint, _draw_texts(arguments), arguments.max_length)
    return rows, draw_positions(rows)


def _add_contexts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="exported retriever")
    _add_corpus(parser)
    parser.add_argument("--pairs", type=int, default=1000, help="passages drawn from the corpus (default: 1000)")


def _contexts(arguments: argparse.Namespace) -> Drawn:
    from hf_dense.data.corpus import load_passages
    from hf_dense.evaluation.analyses import pair_correlation
    from hf_dense.evaluation.analysis_plots import draw_contexts

    rows = pair_correlation(
        arguments.model, load_passages(arguments.corpus), pairs=arguments.pairs, seed=arguments.seed
    )
    return rows, draw_contexts(rows)


def _add_curve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results",
        nargs="+",
        metavar="[CURVE:]X=DIR",
        help="an evaluation and the number it stands at, e.g. retromae:10000=runs/retromae-10k/evaluation-dev",
    )
    parser.add_argument("--x_label", required=True, metavar="TEXT", help='e.g. "pre-training steps"')
    parser.add_argument("--metric", default="mrr@10", help="(default: mrr@10)")


def _curve(arguments: argparse.Namespace) -> Drawn:
    from hf_dense.evaluation.analyses import curves
    from hf_dense.evaluation.analysis_plots import draw_curves

    results: dict[str, list[tuple[float, str]]] = {}
    for given in arguments.results:
        place, _, directory = given.partition("=")
        name, _, x = place.rpartition(":")
        try:
            results.setdefault(name, []).append((float(x), directory))
        except ValueError as error:
            raise InputError(f"{given!r} is not of the form X=DIR or CURVE:X=DIR with a number X.") from error
    points = curves(results, metric=arguments.metric, seed=arguments.seed)
    return points, draw_curves(points, metric=arguments.metric, x_label=arguments.x_label)


ANALYSES = {
    "lengths": Analysis("How alike random texts are, by length.", _add_lengths, _lengths),
    "positions": Analysis("How near a decoder stays to the bottleneck, by position.", _add_positions, _positions),
    "contexts": Analysis("How much passages share with their contexts.", _add_contexts, _contexts),
    "curve": Analysis("A metric against steps or training data.", _add_curve, _curve),
}
