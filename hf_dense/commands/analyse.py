"""The verb `hf-dense analyse`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hf_dense.commands.output import add_output_arguments, output_of, positive
from hf_dense.errors import InputError
from hf_dense.storage.places import Source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "Draw the papers' analyses, and what kinds of indexes find."
_LENGTHS = (16, 32, 64, 128, 256, 512)
_INPUTS = ("model", "checkpoint", "corpus", "index", "collection")  # known by what is in them
_NO_SETTINGS = ("verb", "analysis", "out", "overwrite", "rest", "words")

Draw = Callable[[], tuple[Sequence[Any], "Figure"]]


@dataclass(frozen=True)
class Analysis:
    """One analysis: its help line, its arguments, and what loads what it reads and gives its figures and picture."""

    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    prepare: Callable[[argparse.Namespace], tuple[dict[str, Source], Draw]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every analysis."""
    verbs = parser.add_subparsers(dest="analysis", required=True, metavar="WHAT")
    for name, analysis in ANALYSES.items():
        verb = verbs.add_parser(name, help=analysis.summary, description=analysis.summary, allow_abbrev=False)
        analysis.add_arguments(verb)
        verb.add_argument("--seed", type=int, default=0, help="of all draws (default: 0)")
        add_output_arguments(verb)


def run(arguments: argparse.Namespace) -> None:
    """Run the analysis that the arguments name, and write its picture and its figures.

    Raises:
        InputError: what the analysis raises, or something else is where it should be written.
    """
    from transformers.utils.logging import disable_progress_bar

    from hf_dense.evaluation.analysis_plots import save_analysis

    disable_progress_bar()
    kind, output = arguments.analysis, output_of(arguments)
    sources, draw = ANALYSES[kind].prepare(arguments)
    settings = {name: value for name, value in vars(arguments).items() if name not in _NO_SETTINGS}
    decisive = {name: value for name, value in settings.items() if name not in _INPUTS}
    with output.stage(f"analysis of {kind}", decisive, sources, seed=arguments.seed) as work:
        if work.done:
            print(f"{output.path} is there already")
            return
        rows, figure = draw()
        save_analysis(kind, rows, figure, work.result, settings=settings, provenance=_provenance(arguments))
    for row in rows:
        print("  ".join(f"{name} {_shown(value)}" for name, value in vars(row).items()))
    print(f"drawn in {output.path}/{kind}.png")


def _provenance(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Where the figures come from; None where what is read is no collection on disk."""
    from hf_dense.data.collections import content_hash
    from hf_dense.storage.provenance import provenance

    given = vars(arguments)
    read = given.get("corpus") or given.get("collection")
    try:
        return provenance(arguments.seed, read, content_hash(read)) if read else None
    except InputError:
        return None


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpus", metavar="CORPUS", help="passages: a directory, file or Hub dataset")


def _draw_texts(arguments: argparse.Namespace) -> tuple[list[str], Source]:
    """As many texts of the corpus as were asked for, none empty."""
    import numpy as np

    from hf_dense.data.corpus import load_passages
    from hf_dense.storage.fingerprints import fingerprint_texts

    corpus = load_passages(arguments.corpus)
    drawn = np.random.default_rng(arguments.seed).permutation(len(corpus))[: arguments.texts]
    texts = [text for text in corpus.select(drawn)["text"] if text and text.strip()]
    return texts, Source(arguments.corpus, fingerprint_texts(texts))


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
    parser.add_argument("--texts", type=positive, default=10_000, help="texts drawn from the corpus (default: 10000)")
    parser.add_argument("--pairs", type=positive, default=1000, help="pairs drawn for each length (default: 1000)")


def _lengths(arguments: argparse.Namespace) -> tuple[dict[str, Source], Draw]:
    from hf_dense.evaluation.analyses import as_retriever, similarity_by_length
    from hf_dense.evaluation.analysis_plots import draw_lengths
    from hf_dense.search.fingerprints import retriever_source

    retriever = as_retriever(arguments.model, max(arguments.lengths))
    texts, drawn = _draw_texts(arguments)

    def draw() -> tuple[Sequence[Any], Figure]:
        options = {"lengths": arguments.lengths, "pairs": arguments.pairs, "seed": arguments.seed}
        rows = similarity_by_length(retriever, texts, **options)
        return rows, draw_lengths(rows)

    return {"model": retriever_source(retriever, arguments.model), "texts drawn": drawn}, draw


def _add_positions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="pre-training checkpoint of seed_encoder")
    _add_corpus(parser)
    parser.add_argument("--max_length", type=int, default=128, help="longest text in tokens (default: 128)")
    parser.add_argument("--texts", type=positive, default=1000, help="texts drawn from the corpus (default: 1000)")


def _positions(arguments: argparse.Namespace) -> tuple[dict[str, Source], Draw]:
    from hf_dense.evaluation.analysis_plots import draw_positions
    from hf_dense.evaluation.positions import load_with_decoders, similarity_by_position
    from hf_dense.hub.fingerprints import encoder_fingerprint
    from hf_dense.hub.loading import load_tokenizer

    model, tokenizer = load_with_decoders(arguments.checkpoint), load_tokenizer(arguments.checkpoint)
    texts, drawn = _draw_texts(arguments)

    def draw() -> tuple[Sequence[Any], Figure]:
        rows = similarity_by_position(arguments.checkpoint, texts, arguments.max_length)
        return rows, draw_positions(rows)

    checkpoint = Source(arguments.checkpoint, encoder_fingerprint(model, tokenizer))
    return {"checkpoint": checkpoint, "texts drawn": drawn}, draw


def _add_contexts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="exported retriever")
    _add_corpus(parser)
    parser.add_argument("--pairs", type=positive, default=1000, help="passages drawn from the corpus (default: 1000)")


def _contexts(arguments: argparse.Namespace) -> tuple[dict[str, Source], Draw]:
    from hf_dense.data.corpus import load_passages
    from hf_dense.evaluation.analyses import CONTEXT_COLUMNS, pair_correlation
    from hf_dense.evaluation.analysis_plots import draw_contexts
    from hf_dense.hub.loading import load_retriever
    from hf_dense.search.fingerprints import retriever_source
    from hf_dense.storage.fingerprints import fingerprint_rows

    retriever, corpus = load_retriever(arguments.model), load_passages(arguments.corpus)
    read = [name for name in ("text", *CONTEXT_COLUMNS) if name in corpus.column_names]

    def draw() -> tuple[Sequence[Any], Figure]:
        rows = pair_correlation(retriever, corpus, pairs=arguments.pairs, seed=arguments.seed)
        return rows, draw_contexts(rows)

    sources = {
        "model": retriever_source(retriever, arguments.model),
        "corpus": Source(arguments.corpus, fingerprint_rows(corpus, read)),
    }
    return sources, draw


def _add_curve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results",
        nargs="+",
        metavar="[CURVE:]X=DIR",
        help="an evaluation and the number it stands at, e.g. retromae:10000=runs/retromae-10k/evaluation-dev",
    )
    parser.add_argument("--x_label", required=True, metavar="TEXT", help='e.g. "pre-training steps"')
    parser.add_argument("--metric", default="mrr@10", help="(default: mrr@10)")


def _curve(arguments: argparse.Namespace) -> tuple[dict[str, Source], Draw]:
    from hf_dense.evaluation.analyses import curves
    from hf_dense.evaluation.analysis_plots import draw_curves
    from hf_dense.storage.fingerprints import fingerprint_path

    results: dict[str, list[tuple[float, str]]] = {}
    sources = {}
    for given in arguments.results:
        place, _, directory = given.partition("=")
        name, _, x = place.rpartition(":")
        try:
            results.setdefault(name, []).append((float(x), directory))
        except ValueError as error:
            raise InputError(f"{given!r} is not of the form X=DIR or CURVE:X=DIR with a number X.") from error
        sources[f"result at {place}"] = Source(directory, fingerprint_path(directory))
    if not "".join([arguments.x_label, *results]).isprintable():
        raise InputError("--x_label, or the name of a curve, has a character that cannot be printed.")

    def draw() -> tuple[Sequence[Any], Figure]:
        points = curves(results, metric=arguments.metric, seed=arguments.seed)
        return points, draw_curves(points, metric=arguments.metric, x_label=arguments.x_label)

    return sources, draw


def _add_kinds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", metavar="INDEX", help="directory that hf-dense search wrote, of any kind")
    parser.add_argument("collection", metavar="COLLECTION", help="of the same passages, whose judged queries are asked")
    parser.add_argument("--split", default="test", help="of the judgements (default: test)")
    parser.add_argument(
        "--model", metavar="MODEL", help="model that made the index (default: the directory it lies in)"
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        default=[],
        metavar="KIND",
        help="beside exact: hnsw, ivfpq, int8, binary (default: all that so many passages allow)",
    )


def _kinds(arguments: argparse.Namespace) -> tuple[dict[str, Source], Draw]:
    from hf_dense.data.collections import content_hash
    from hf_dense.evaluation.analysis_plots import draw_kinds
    from hf_dense.evaluation.index_kinds import compare_kinds
    from hf_dense.search.index import SearchIndex
    from hf_dense.storage.fingerprints import fingerprint_values

    index = SearchIndex.load(arguments.index, arguments.model)

    def draw() -> tuple[Sequence[Any], Figure]:
        rows = compare_kinds(index, arguments.collection, arguments.split, arguments.kinds)
        return rows, draw_kinds(rows)

    made_from = {name: index.manifest.made_from[name] for name in ("model", "corpus")} | index.reading.settings
    sources = {
        "index": Source(arguments.index, fingerprint_values(made_from)),  # its vectors, whatever its kind
        "collection": Source(arguments.collection, content_hash(arguments.collection)),
    }
    return sources, draw


ANALYSES = {
    "lengths": Analysis("How alike random texts are, by length.", _add_lengths, _lengths),
    "positions": Analysis("How near a decoder stays to the bottleneck, by position.", _add_positions, _positions),
    "contexts": Analysis("How much passages share with their contexts.", _add_contexts, _contexts),
    "curve": Analysis("A metric against steps or training data.", _add_curve, _curve),
    "kinds": Analysis("What kinds of indexes find, take, and how fast they are.", _add_kinds, _kinds),
}
