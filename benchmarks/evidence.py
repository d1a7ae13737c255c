"""Does pre-training pay, from scratch, on the Python documentation? Three seeds, unseen queries, paired tests.

    python benchmarks/evidence.py --out build/evidence

Two comparisons, both with the same encoder shape, initial weights, tokenizer, pairs and fine-tuning recipe:

1. equal fine-tuning: no pre-training against each method;
2. equal total compute: no pre-training, fine-tuned for as many more steps as pre-training would have cost
   (counted in floating-point operations of forward and backward passes).

Writes results.json, metrics.png and losses.png; a run that was interrupted goes on where it stopped. Variants run side
by side, one thread each.
"""

import argparse
import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

from operations import BATCHES, finetuning_operations, pretraining_operations
from transformers import AutoTokenizer, BertConfig, BertModel

from hf_dense.data.collections import content_hash
from hf_dense.data.corpus import load_passages
from hf_dense.data.python_docs.collection import build_python_docs
from hf_dense.errors import run_main
from hf_dense.evaluation.measures import METRICS
from hf_dense.evaluation.plots import draw_losses, draw_metrics, save_figure
from hf_dense.evaluation.significance import compare_paired
from hf_dense.experiments.comparison import (
    FINETUNING,
    PRETRAINING,
    Settings,
    Variant,
    VariantResult,
    encoder_shape,
    mean_per_query,
    pairs_of,
    run_bm25,
    run_variant,
    shared_tokenizer,
)
from hf_dense.experiments.processes import run_side_by_side
from hf_dense.methods import get_method
from hf_dense.storage.files import write_text
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import provenance

PACKAGES = ["python", "numpy", "torch"]
SEEDS = (0, 1, 2)
METHODS = {
    "RetroMAE": Variant("RetroMAE", method="retromae"),
    "CoT-MAE": Variant("CoT-MAE", method="cotmae", pretraining={"per_device_train_batch_size": 8}),  # pairs: 16 texts
}
BASELINE, LONGER = "no pre-training", "no pre-training, equal compute"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/evidence"), help="where everything is written")
    parser.add_argument("--side_by_side", type=int, help="variants run at once; one per core when absent")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one variant, in a process of its own
    options = parser.parse_args()
    out = Output(options.out)
    settings = Settings(str(out.path / "python_docs"), pretraining=PRETRAINING, finetuning=FINETUNING)
    if options.only:
        name, seed = options.only.rsplit(":", 1)
        run_one(settings, make_variants(read_costs(out.path))[name], int(seed), out)
        return
    claims = ("costs.json", "results.json", "metrics.png", "losses.png", "logs")
    with out.occupy("evidence", {}, claims=claims, again=True) as work:
        build_python_docs(out.at("python_docs"), packages=PACKAGES, length=48, processes=2)
        tokenizer = shared_tokenizer(settings, out.at(f"tokenizer-{settings.vocabulary}"))
        write_text(out.path / "costs.json", json.dumps(measure_costs(settings, tokenizer)))
        compare(settings, out, options.side_by_side)
        work.complete()


def compare(settings: Settings, out: Output, side_by_side: int | None) -> None:
    """Train and measure every variant with every seed, so many at once."""
    costs = read_costs(out.path)
    variants = make_variants(costs)
    names = {f"{name}:{seed}": (name, seed) for name in variants for seed in SEEDS}
    command = [sys.executable, __file__, "--out", str(out.path), "--only"]
    run_side_by_side({label: [*command, label] for label in names}, out.path / "logs", side_by_side)
    results = {(name, seed): run_one(settings, variants[name], seed, out) for name, seed in names.values()}
    report(settings, results, run_bm25(settings, out.at("bm25")), costs, out.path)


def read_costs(directory: Path) -> dict[str, float]:
    """What `measure_costs` found."""
    costs: dict[str, float] = json.loads((directory / "costs.json").read_text(encoding="utf-8"))
    return costs


def make_variants(costs: dict[str, float]) -> dict[str, Variant]:
    """The variants; the longer fine-tuning makes up for the costlier pre-training."""
    pretraining = max(costs[name] for name in METHODS) * PRETRAINING["max_steps"]
    steps = round(FINETUNING["max_steps"] + pretraining / costs["finetuning"])
    return {
        LONGER: Variant(LONGER, finetuning={"max_steps": steps}),
        "CoT-MAE": METHODS["CoT-MAE"],
        BASELINE: Variant(BASELINE),
        "RetroMAE": METHODS["RetroMAE"],
    }


def run_one(settings: Settings, variant: Variant, seed: int, out: Output) -> VariantResult:
    """One variant with one seed; everything that is complete is read back."""
    name = f"{variant.name.lower().replace(' ', '-').replace(',', '')}-{seed}"
    return run_variant(replace(settings, seed=seed), variant, out.at(name))


def measure_costs(settings: Settings, tokenizer_dir: Path) -> dict[str, float]:
    """Floating-point operations of one step (forward and backward) of each method and of fine-tuning."""
    tokenizer, length = AutoTokenizer.from_pretrained(str(tokenizer_dir)), settings.max_length
    sizes = {"vocab_size": len(tokenizer), **encoder_shape(settings)}
    corpus = load_passages(settings.collection).select(range(3000))
    costs = {}
    for name, variant in METHODS.items():
        assert variant.method is not None
        method, size = get_method(variant.method), {**PRETRAINING, **variant.pretraining}["per_device_train_batch_size"]
        model = method.pretraining(method.config(backbone_config=sizes))
        costs[name] = pretraining_operations(model, corpus, tokenizer, size, length)
    encoder, size = BertModel(BertConfig(**sizes), add_pooling_layer=False), FINETUNING["per_device_train_batch_size"]
    pairs = pairs_of(settings).shuffle(seed=0).select(range(BATCHES * size))
    return {**costs, "finetuning": finetuning_operations(encoder, pairs, tokenizer, size, length)}


def report(
    settings: Settings,
    results: dict[tuple[str, int], VariantResult],
    bm25: VariantResult,
    costs: dict[str, float],
    output_dir: Path,
) -> None:
    """Means over seeds, paired tests over queries (each query's mean over seeds), plots and one JSON file."""
    names = list(dict.fromkeys(name for name, _ in results))
    per_query = {name: mean_per_query([results[name, seed].retrieval for seed in SEEDS]) for name in names}
    per_query["BM25"] = bm25.retrieval.per_query
    means = {
        name: {metric: sum(values[metric].values()) / len(values[metric]) for metric in METRICS}
        for name, values in per_query.items()
    }
    tests = {
        f"{name} against {other}": vars(compare_paired(per_query[name]["mrr@10"], per_query[other]["mrr@10"]))
        for name, other in product(METHODS, (BASELINE, LONGER))
    }
    facts = {
        "means": means,
        "by_seed": {f"{name}, seed {seed}": r.retrieval.metrics for (name, seed), r in results.items()},
        "mrr@10_tests": tests,
        "seconds": {f"{name}, seed {seed}": r.seconds for (name, seed), r in results.items()},
        "operations_per_step": costs,
        "steps": {
            name: {**FINETUNING, **variant.finetuning}["max_steps"] for name, variant in make_variants(costs).items()
        },
        "settings": vars(settings),
        **provenance(SEEDS[0], settings.collection, content_hash(settings.collection)),
        "seeds": SEEDS,
    }
    write_text(output_dir / "results.json", json.dumps(facts, indent=1))
    order = ["BM25", BASELINE, *METHODS, LONGER]
    save_figure(draw_metrics([{"name": name, **means[name]} for name in order]), output_dir / "metrics.png")
    histories = {f"{name}: fine-tuning": results[name, SEEDS[0]].finetuning_history for name in names}
    histories |= {f"{name}: pre-training": results[name, SEEDS[0]].pretraining_history for name in METHODS}
    save_figure(draw_losses(histories), output_dir / "losses.png")
    print(json.dumps({"means": means, "mrr@10_tests": tests}, indent=1))


if __name__ == "__main__":
    run_main(main)
