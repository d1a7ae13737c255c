"""The best model of a comparison, asked together with BM25: both it and the weight are chosen on dev."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hf_dense.evaluation.result import RetrievalResult
from hf_dense.experiments.asked import METRIC, fused_weight, measure
from hf_dense.experiments.comparison import Settings, VariantResult
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


def measure_on_dev(settings: Settings, result: VariantResult, out: Path | Output) -> RetrievalResult:
    """Index the passages beside the model of a variant, and ask the queries of dev; what is done is read."""
    index = _index(settings, result)
    return measure(index, Path(settings.collection), DEV, 1.0, Output.of(out).at("evaluation-dev"), result.name)


def fuse_best(settings: Settings, results: Sequence[VariantResult], out: Path | Output) -> Fused:
    """Ask the best retriever together with BM25; each is measured by its index.

    Args:
        settings: what the variants share.
        results: of dense retrievers; each was measured on dev below `out`, or is now.
        out: the directory of the comparison.

    Returns:
        The best by nDCG@10 on dev, and its row with BM25 on `settings.split`.
    """
    output, collection = Output.of(out), Path(settings.collection)
    worth = {each.name: measure_on_dev(settings, each, place_of(each.name, output)).metrics[METRIC] for each in results}
    best = max(results, key=lambda each: worth[each.name])
    index, place = _index(settings, best), output.at("fused")
    measure(index, collection, DEV, 0.0, place.at("bm25-dev"), "BM25")
    dense = place_of(best.name, output).path / "evaluation-dev"
    weight = fused_weight(dense, place.path / "bm25-dev", collection, DEV)
    name = f"{best.name} + BM25"
    found = measure(index, collection, settings.split, weight, place.at(f"evaluation-{settings.split}"), name)
    update_index(index.retriever, index.passages, index.directory, weight=weight, name=best.model)
    both = replace(best, name=name, retrieval=found, pretraining_history=[], finetuning_history=[])
    return Fused(best, both, SearchIndex(index.retriever, index.directory))


def place_of(name: str, out: Output) -> Output:
    """Where a comparison keeps what belongs to a variant."""
    return out.at(name.lower().replace(" ", "-"))


def _index(settings: Settings, result: VariantResult) -> SearchIndex:
    assert result.model is not None
    return SearchIndex.load(build_index(result.model, settings.collection, Path(result.model) / "index"), result.model)
