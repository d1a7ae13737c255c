"""Should the texts that coCondenser contrasts have similar lengths? Both ways on the Python documentation, three seeds.

    python benchmarks/batch_lengths.py --out build/batch_lengths

Texts of one batch are each other's negatives. Where all have one length, length tells none from another; where lengths
are mixed it may give pairs away, or be learned in place of what texts say. Measured of each: the contrastive loss on
held-out texts, whose batches hold all lengths, and dev queries after the fine-tuning of `evidence.py`. Two runs go side
by side, one thread each; a run that was interrupted goes on. It takes about 25 minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hf_dense.data.collections import content_hash
from hf_dense.data.python_docs.collection import build_python_docs
from hf_dense.errors import run_main
from hf_dense.evaluation.significance import compare_paired
from hf_dense.experiments.comparison import (
    FINETUNING,
    PRETRAINING,
    Settings,
    Variant,
    VariantResult,
    mean_per_query,
    run_variant,
    shared_tokenizer,
)
from hf_dense.experiments.processes import run_side_by_side
from hf_dense.storage.files import write_text
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import provenance

PACKAGES = ["python", "numpy", "torch"]
SEEDS = (0, 1, 2)
STEPS = {"max_steps": 2000, "per_device_train_batch_size": 32, "per_device_eval_batch_size": 32}
HELD_OUT = "eval_encoder_contrast_loss"
METRICS = ("mrr@10", "ndcg@10", "recall@100")
WAYS = {"similar lengths": True, "mixed lengths": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/batch_lengths"), help="where everything is written")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/batch_lengths.json"))
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one run, in a process of its own
    options = parser.parse_args()
    out = Output(options.out)
    settings = Settings(
        str(out.path / "python_docs"), pretraining={**PRETRAINING, **STEPS}, finetuning=FINETUNING, split="dev"
    )
    if options.only:
        run_one(settings, *options.only.rsplit(":", 1), out)
        return
    with out.occupy("batch lengths", {}, claims=("logs",), again=True) as work:
        build_python_docs(out.at("python_docs"), packages=PACKAGES, length=48, processes=2)
        shared_tokenizer(settings, out.at(f"tokenizer-{settings.vocabulary}"))
        names = {f"{way}:{seed}": (way, str(seed)) for seed in SEEDS for way in WAYS}
        command = [sys.executable, __file__, "--out", str(out.path), "--only"]
        run_side_by_side({name: [*command, name] for name in names}, out.path / "logs")
        results = {way: [run_one(settings, way, str(seed), out) for seed in SEEDS] for way in WAYS}
        work.complete()
    name = Path(settings.collection).name
    facts = describe(results) | {"settings": asdict(replace(settings, collection=name)), "seeds": SEEDS}
    facts |= provenance(SEEDS[0], name, content_hash(settings.collection))
    write_text(options.output, json.dumps(facts, indent=1) + "\n")
    print(format_facts(facts))


def run_one(settings: Settings, way: str, seed: str, out: Output) -> VariantResult:
    """One way with one seed; what is complete is read back."""
    variant = Variant(way, method="cocondenser", options={"group_by_length": WAYS[way]})
    return run_variant(replace(settings, seed=int(seed)), variant, out.at(f"{way.replace(' ', '-')}-{seed}"))


def describe(results: dict[str, list[VariantResult]]) -> dict[str, Any]:
    """By way: means over seeds and each seed's; a paired test of the second against the first."""
    per_query = {way: mean_per_query([result.retrieval for result in runs]) for way, runs in results.items()}
    ways = {
        way: {
            **{name: [result.retrieval.metrics[name] for result in runs] for name in METRICS},
            "held_out_contrast": [held_out(result) for result in runs],
            "pretraining_seconds": [result.seconds["pretraining"] for result in runs],
        }
        for way, runs in results.items()
    }
    first, second = (per_query[way]["mrr@10"] for way in WAYS)
    return {"ways": ways, "mixed against similar, mrr@10": asdict(compare_paired(second, first))}


def held_out(result: VariantResult) -> float:
    """The contrastive loss on held-out texts at the end."""
    return next(float(row[HELD_OUT]) for row in reversed(result.pretraining_history) if HELD_OUT in row)


def format_facts(facts: dict[str, Any]) -> str:
    names = list(next(iter(facts["ways"].values())))
    rows = [[way, *(f"{sum(found[name]) / len(SEEDS):.4g}" for name in names)] for way, found in facts["ways"].items()]
    return f"{markdown_table(['', *names], rows, range(1, len(names) + 1))}\n{facts['mixed against similar, mrr@10']}"


if __name__ == "__main__":
    run_main(main)
