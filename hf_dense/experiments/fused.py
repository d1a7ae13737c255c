"""Retrievers of a comparison asked by their indexes, and the best of them together with BM25, as dev has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hf_dense.evaluation.result import RetrievalResult
from hf_dense.experiments.asked import METRIC, fused_weight, measure
from hf_dense.experiments.comparison import Settings, Trained, VariantResult
from hf_dense.search.index import SearchIndex, build_index, update_index
from hf_dense.storage.output import Output

DEV: Final = "dev"


@dataclass(frozen=True)
class Fused:
    """What is searched with in the end.

    Attributes:
        best: the dense retriever that dev prefers.
        both: its row, with BM25.
        index: of its passages, which asks both by that weight where none is named.
    """

    best: VariantResult
    both: VariantResult
    index: SearchIndex


def measure_by_index(settings: Settings, trained: Trained, out: Path | Output) -> VariantResult:
    """Index the passages beside a trained model, and ask the queries of dev and of `settings.split`.

    Args:
        settings: what the variants share.
        trained: the variant.
        out: its directory; what is done there is read.

    Returns:
        Its row, of `settings.split`.
    """
    index, output = _index(settings, trained.model), Output.of(out)
    asked = [_ask(settings, index, split, 1.0, output, trained.name) for split in (DEV, settings.split)]
    return trained.measured(asked[-1])


def fuse_best(settings: Settings, results: Sequence[VariantResult], out: Path | Output) -> Fused:
    """Ask the best retriever together with BM25.

    Args:
        settings: what the variants share.
        results: of `measure_by_index`, each in its `place_of` below `out`.
        out: the directory of the comparison.

    Returns:
        The best by nDCG@10 on dev, and its row with BM25 on `settings.split`; the weight is the best on dev too.
    """
    output = Output.of(out)
    dev = {each.name: place_of(each.name, output).path / _place(DEV) for each in results}
    best = max(results, key=lambda each: RetrievalResult.load(dev[each.name]).metrics[METRIC])
    assert best.model is not None
    index, place = _index(settings, best.model), output.at("fused")
    _ask(settings, index, DEV, 0.0, place, "BM25")
    weight = fused_weight(dev[best.name], place.path / _place(DEV), Path(settings.collection), DEV)
    name = f"{best.name} + BM25"
    found = _ask(settings, index, settings.split, weight, place, name)
    update_index(index.retriever, settings.collection, index.directory, weight=weight, name=best.model)
    both = replace(best, name=name, retrieval=found, pretraining_history=[], finetuning_history=[])
    return Fused(best, both, SearchIndex(index.retriever, index.directory))


def place_of(name: str, out: Output) -> Output:
    """Where a comparison keeps what belongs to a variant."""
    return out.at(name.lower().replace(" ", "-"))


def _ask(settings: Settings, index: SearchIndex, split: str, weight: float, out: Output, name: str) -> RetrievalResult:
    return measure(index, Path(settings.collection), split, weight, out.at(_place(split)), name)


def _place(split: str) -> str:
    return f"asked-{split}"


def _index(settings: Settings, model: str) -> SearchIndex:
    return SearchIndex.load(build_index(model, settings.collection, Path(model) / "index"), model)
