"""The main job on real text: does pre-training pay on the documentation of this Python environment?

    python examples/demo.py --out build/demo

Builds a search collection from installed docstrings, pre-trains a small encoder on it by DupMAE, fine-tunes it and an
untrained one in the same way, measures both and BM25 on unseen queries, and the best together with BM25, which answers
three questions. The queries are sentences that are left out of the passages; what the three are asked of has them.
The encoders are trained side by side, one core each. A run that was interrupted goes on where it stopped.
"""

import argparse
import sys
import time
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from hf_dense.data.python_docs.collection import build_python_docs
from hf_dense.data.python_docs.documentation import read_documentation
from hf_dense.errors import run_main
from hf_dense.experiments.comparison import (
    FINETUNING,
    PRETRAINING,
    Settings,
    Variant,
    VariantResult,
    run_bm25,
    shared_tokenizer,
    train_variant,
)
from hf_dense.experiments.comparison_report import compare_to, format_table, write_report
from hf_dense.experiments.fused import Fused, fuse_best, measure_by_index, place_of
from hf_dense.experiments.processes import run_side_by_side
from hf_dense.search.index import SearchIndex, build_index
from hf_dense.storage.output import Output

PACKAGES = ["python", "numpy", "torch"]
QUESTIONS = [
    "how do I pin memory in a data loader",
    "sort an array along an axis",
    "run a function after some seconds in another thread",
]
VARIANTS = [Variant("no pre-training"), Variant("DupMAE", method="dupmae")]  # the best of nine: docs/evidence.md


def demo_settings(collection: Path) -> Settings:
    pretraining, finetuning = {**PRETRAINING, "max_steps": 5000}, {**FINETUNING, "max_steps": 500}  # what time allows
    return Settings(collection=str(collection), pretraining=pretraining, finetuning=finetuning)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="where everything is written")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one variant, in a process of its own
    options = parser.parse_args()
    out = Output(options.out)
    disable_progress_bar()  # of loading and saving weights, which takes no time here
    started = time.perf_counter()

    settings = demo_settings(out.path / "python_docs")
    if options.only:
        run_one(settings, options.only, out)
        return
    claims = ("results.json", "losses.png", "metrics.png", "logs")
    with out.occupy("demo", {}, claims=claims, again=True) as work:
        results, fused = compare(settings, out)
        baselines = {"no_pretraining": results[1], "bm25": results[0]}
        comparisons = {name: compare_to(baseline, results, "mrr@10") for name, baseline in baselines.items()}
        paths = write_report(results, settings, comparisons, out.path)
        index = index_documentation(settings, fused, out)
        work.complete()
    queries = len(results[0].retrieval.per_query["mrr@10"])
    print(f"\n{queries} unseen queries over {len(fused.index):,} passages\n\n{format_table(results)}\n")
    pretrained = [(result, baseline) for result in results[2:-1] for baseline in baselines]
    for result, baseline in [*pretrained, (fused.both, "bm25")]:
        found = comparisons[baseline][result.name]
        print(
            f"{result.name} against {baselines[baseline].name}: MRR@10 {found.difference:+.4f} "
            f"(95 % interval {found.low:+.4f} to {found.high:+.4f}, p = {found.p_value:.4f})"
        )
    print(f"\nAsked of {len(index):,} passages, the sentences that stood for queries among them:")
    for question in QUESTIONS:
        print(f"\n? {question}")
        for hit in index.search(question, 3):
            print(f"  {hit.score:.3f}  {hit.title}: {hit.text[:90]}")
    model = fused.best.model
    print("\nWritten:", *paths, sep="\n  ")
    place = out.at("documentation").path
    print(f"Model: {model}\nTry: .venv/bin/hf-dense search {model} {QUESTIONS[0]!r} --index {place}")
    print(f"The demo took {(time.perf_counter() - started) / 60:.1f} minutes.")


def compare(settings: Settings, out: Output) -> tuple[list[VariantResult], Fused]:
    """Build the collection, then train and measure the variants, side by side, and the best together with BM25."""
    say("Building a collection from the docstrings of", ", ".join(PACKAGES))
    build_python_docs(out.at("python_docs"), packages=PACKAGES, length=48, processes=2)
    say("BM25")
    results = [run_bm25(settings, out.at("bm25"))]
    shared_tokenizer(settings, out.at(f"tokenizer-{settings.vocabulary}"))
    say("Each encoder: pre-training (the one), fine-tuning, index, evaluation")
    command = [sys.executable, __file__, "--out", str(out.path), "--only"]
    run_side_by_side({variant.name: [*command, variant.name] for variant in VARIANTS}, out.path / "logs")
    results += [run_one(settings, variant.name, out) for variant in VARIANTS]
    say("The best of them, as dev has it, together with BM25")
    fused = fuse_best(settings, results[1:], out)
    return [*results, fused.both], fused


def index_documentation(settings: Settings, fused: Fused, out: Output) -> SearchIndex:
    """Index the whole documentation by the best encoder, to be asked together with BM25 likewise."""
    say("An index of the whole documentation")
    place, model, measured = out.at("documentation"), fused.best.model, fused.index
    assert model is not None
    documentation = read_documentation(settings.collection)
    build_index(model, documentation, place, weight=measured.weight, like=measured.directory)
    return SearchIndex.load(place.path, model)


def run_one(settings: Settings, name: str, out: Output) -> VariantResult:
    """One variant; what is complete is read back."""
    (variant,) = [variant for variant in VARIANTS if variant.name == name]
    place = place_of(name, out)
    return measure_by_index(settings, train_variant(settings, variant, place), place)


def say(*words: str) -> None:
    print("\n==", *words, flush=True, file=sys.stderr)


if __name__ == "__main__":
    run_main(main)
