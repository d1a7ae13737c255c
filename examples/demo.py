"""The main job on real text: does pre-training pay on the documentation of this Python environment?

    python examples/demo.py --out build/demo

Builds a search collection from installed docstrings, pre-trains two small encoders on it, fine-tunes them and an
untrained one in the same way, measures all of them and BM25 on unseen queries, and answers three questions.
The encoders are trained side by side, one core each. A run that was interrupted goes on where it stopped.
"""

import argparse
import sys
import time
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from hf_dense.data.collections import load_corpus
from hf_dense.data.python_docs.collection import build_python_docs
from hf_dense.errors import run_main
from hf_dense.experiments.comparison import (
    FINETUNING,
    PRETRAINING,
    Settings,
    Variant,
    VariantResult,
    run_bm25,
    run_variant,
    shared_tokenizer,
)
from hf_dense.experiments.comparison_report import compare_to, format_table, write_report
from hf_dense.experiments.processes import run_side_by_side
from hf_dense.search.index import SearchIndex, build_index
from hf_dense.storage.output import Output

PACKAGES = ["python", "numpy", "torch"]
QUESTIONS = [
    "how do I pin memory in a data loader",
    "sort an array along an axis",
    "run a function after a delay in another thread",
]
VARIANTS = [
    Variant("no pre-training"),
    Variant("RetroMAE", method="retromae"),
    Variant("CoT-MAE", method="cotmae", pretraining={"per_device_train_batch_size": 8}),  # pairs: 16 texts
]
LONGEST_FIRST = ("CoT-MAE", "RetroMAE", "no pre-training")


def demo_settings(collection: Path) -> Settings:
    return Settings(collection=str(collection), pretraining={**PRETRAINING, "max_steps": 2500}, finetuning=FINETUNING)


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
        results = compare(settings, out)
        comparisons = compare_to(results[1], results, "mrr@10")
        paths = write_report(results, settings, comparisons, out.path)
        work.complete()
    model = Path(max(results[1:], key=lambda result: result.retrieval.metrics["mrr@10"]).model or "")
    say("Indexing the collection with the best model")
    index = SearchIndex.load(build_index(model, load_corpus(settings.collection), model / "index"), model)
    queries = len(results[0].retrieval.per_query["mrr@10"])
    print(f"\n{queries} unseen queries over {len(index):,} passages\n\n{format_table(results)}\n")
    for result in results[2:]:
        found = comparisons[result.name]
        print(
            f"{result.name} against no pre-training: MRR@10 {found.difference:+.4f} "
            f"(95 % interval {found.low:+.4f} to {found.high:+.4f}, p = {found.p_value:.4f})"
        )
    for question in QUESTIONS:
        print(f"\n? {question}")
        for hit in index.search(question, 3):
            print(f"  {hit.score:.3f}  {hit.title}: {hit.text[:90]}")
    print("\nWritten:", *paths, sep="\n  ")
    print(f"Model: {model}\nTry: .venv/bin/hf-dense search {model} {QUESTIONS[0]!r}")
    print(f"The demo took {(time.perf_counter() - started) / 60:.1f} minutes.")


def compare(settings: Settings, out: Output) -> list[VariantResult]:
    """Build the collection, then train and measure every variant, side by side."""
    say("Building a collection from the docstrings of", ", ".join(PACKAGES))
    build_python_docs(out.at("python_docs"), packages=PACKAGES, length=48, processes=2)
    say("BM25")
    results = [run_bm25(settings, out.at("bm25"))]
    shared_tokenizer(settings, out.at(f"tokenizer-{settings.vocabulary}"))
    say("Each encoder: pre-training (but for one), fine-tuning, evaluation")
    command = [sys.executable, __file__, "--out", str(out.path), "--only"]
    run_side_by_side({name: [*command, name] for name in LONGEST_FIRST}, out.path / "logs")
    return results + [run_one(settings, variant.name, out) for variant in VARIANTS]


def run_one(settings: Settings, name: str, out: Output) -> VariantResult:
    """One variant; what is complete is read back."""
    (variant,) = [variant for variant in VARIANTS if variant.name == name]
    return run_variant(settings, variant, out.at(name.lower().replace(" ", "-")))


def say(*words: str) -> None:
    print("\n==", *words, flush=True, file=sys.stderr)


if __name__ == "__main__":
    run_main(main)
