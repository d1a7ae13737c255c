"""What fine-tuning forgets, and what two remedies keep: similarities as a second loss, weights between two models.

    python benchmarks/forgetting.py COLLECTION --kept OTHER --model EMBEDDER [--output RESULTS.json]

A small part of each collection, drawn by hashes: an embedder is tuned on the first one's training pairs and measured on
dev queries of both. Of the weights the point that `merge` chooses is marked. A run that was killed goes on; on one core
it takes about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parts import METRIC, format_difference, parser_of_parts, write_parts

from hf_dense.data.collections import content_hash, training_pairs
from hf_dense.errors import run_main
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.evaluation.significance import compare_paired
from hf_dense.experiments.interpolation import Between
from hf_dense.experiments.keeping import Kept
from hf_dense.experiments.merging import merge_best
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.storage.files import write_text
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import provenance

MAX_LENGTH = 64  # tokens
TRAINING: dict[str, Any] = {
    "per_device_train_batch_size": 16,
    "max_steps": 100,
    "learning_rate": 1e-4,
    "temperature": 0.05,
    "logging_steps": 10,
    "report_to": "none",
}
KEEPING = (0.0, 0.3, 1.0)  # weights of the loss against forgetting
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # between the untouched and the tuned model
SIZES = {"own": (300, 2500), "kept": (300, 1000)}  # queries, passages
UNTOUCHED, TUNED = "untouched", "tuned"


def main() -> None:
    parser = parser_of_parts(__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/forgetting"), help="where models are written")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/forgetting.json"))
    options = parser.parse_args()
    out = Output(options.out)
    with out.occupy("forgetting", {}, reads=[options.collection, options.kept], again=True) as work:
        arms = run_arms(options, write_parts(options, out, SIZES), out)
        work.complete()
    facts = {"arms": describe(arms), "chosen": json.loads((out.path / "merged/merge.json").read_text())["chosen"]}
    facts |= {"training": TRAINING, "max_length": MAX_LENGTH, "sizes": SIZES, "model": Path(options.model).name}
    facts |= {"seconds": {f"keeping {weight:g}": training_seconds(out, weight) for weight in KEEPING}}
    facts |= provenance(options.seed, options.collection.name, content_hash(options.collection))
    facts["kept"] = {"path": options.kept.name, "content_hash": content_hash(options.kept)}
    write_text(options.output, json.dumps(facts, indent=1) + "\n")
    print(format_arms(facts["arms"]))


def run_arms(options: argparse.Namespace, tasks: dict[str, Kept], out: Output) -> dict[str, dict[str, RetrievalResult]]:
    """Train and measure; what is there is read. The results of each arm on both collections."""
    base = export_sentence_transformer(options.model, out.at("base"), max_length=MAX_LENGTH)
    pairs, arms = training_pairs(options.collection), {}
    for weight in KEEPING:
        place = out.at(f"keeping-{weight:g}")
        arguments = BiencoderTrainingArguments(
            output_dir=str(place.path), seed=options.seed, keep_similarities=weight, **TRAINING
        )
        model = finetune(base, pairs, arguments, output=place)
        if weight:
            arms[f"similarities kept, weight {weight:g}"] = {
                what: evaluate_retriever(
                    model, task.collection, task.split, name=what, out=place.at(f"measured-{what}")
                )
                for what, task in tasks.items()
            }
    between, merged = Between(str(base), str(out.path / "keeping-0" / "model")), out.at("merged")
    merge_best(between, WEIGHTS, tasks["own"], tasks["kept"], merged)
    names = {0.0: UNTOUCHED, 1.0: TUNED}
    points = {
        names.get(weight, f"weights at {weight:g}"): {
            what: RetrievalResult.load(merged.path / "evaluation" / f"weight-{weight:g}" / what) for what in tasks
        }
        for weight in WEIGHTS
    }
    return {UNTOUCHED: points[UNTOUCHED], TUNED: points[TUNED], **arms, **points}


def training_seconds(out: Output, weight: float) -> float:
    manifest = json.loads((out.path / f"keeping-{weight:g}" / "hf_dense.json").read_text(encoding="utf-8"))
    return float(manifest["facts"]["seconds"])


def describe(arms: dict[str, dict[str, RetrievalResult]]) -> dict[str, Any]:
    """The figures of each arm, and paired tests against no tuning and against tuning alone."""
    found: dict[str, Any] = {}
    for name, results in arms.items():
        found[name] = {}
        for what, result in results.items():
            found[name][what] = {"metrics": result.metrics, "queries": len(result.per_query[METRIC])}
            for other in (UNTOUCHED, TUNED):
                if name != other:
                    test = compare_paired(result.per_query[METRIC], arms[other][what].per_query[METRIC])
                    found[name][what][f"against {other}"] = asdict(test)
    return found


def format_arms(arms: dict[str, Any]) -> str:
    cells = []
    for name, found in arms.items():
        line = [name]
        for what in ("own", "kept"):
            line.append(f"{found[what]['metrics'][METRIC]:.3f}")
            line.append(format_difference(found[what].get(f"against {TUNED}")))
        cells.append(line)
    head = ["", "own: nDCG@10", f"against {TUNED}", "kept: nDCG@10", f"against {TUNED}"]
    return markdown_table(head, cells, range(1, 5))


if __name__ == "__main__":
    run_main(main)
