"""What teaches a ready embedder more at the same cost: many queries of a step, or few with negatives that BM25 found?

    python benchmarks/negatives.py COLLECTION --kept OTHER --model EMBEDDER [--results RESULTS.json]

Every arm reads as many passages in a step, give or take a fifth, and takes as many steps. Measured on a small part of
the dev queries and of the passages, and on those of a collection that no arm was tuned for. The figures of a collection
are added to those of others in `--results`; a run that was killed goes on.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parts import METRIC, format_difference, parser_of_parts, write_parts

from hf_dense.data.collections import content_hash
from hf_dense.errors import run_main
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.evaluation.significance import compare_paired
from hf_dense.experiments.keeping import Kept
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.finetuning.lists import load_lists
from hf_dense.finetuning.negatives import build_lexical_negatives
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.storage.files import write_text
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import provenance

MAX_LENGTH = 128  # tokens
DEPTH = 20  # negatives of a query that are drawn from
SIZES = {"own": (250, 800), "kept": (100, 300)}  # queries, passages
TRAINING: dict[str, Any] = {"max_steps": 20, "warmup_steps": 0.1, "logging_steps": 5, "report_to": "none"}
UNTOUCHED, PLAIN = "untouched", "32 queries, no negatives, 5e-5"
ARMS: dict[str, tuple[int, int, float]] = {  # queries of a step, negatives of each, learning rate
    PLAIN: (32, 0, 5e-5),
    "32 queries, no negatives, 1e-4": (32, 0, 1e-4),
    "10 queries, 3 negatives, 1e-4": (10, 3, 1e-4),
}


def main() -> None:
    parser = parser_of_parts(__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/negatives"), help="where models are written")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/negatives.json"))
    options = parser.parse_args()
    name = options.collection.resolve().name
    out = Output(options.out / name)
    with out.occupy("negatives", {}, reads=[options.collection, options.kept], again=True) as work:
        arms = run_arms(options, out)
        work.complete()
    facts = {"training": TRAINING, "arms": describe(arms), "sizes": SIZES, "max_length": MAX_LENGTH}
    facts |= {"depth": DEPTH, "model": Path(options.model).name, "kept": options.kept.resolve().name}
    facts |= provenance(options.seed, name, content_hash(options.collection))
    known = json.loads(options.results.read_text(encoding="utf-8")) if options.results.is_file() else {}
    write_text(options.results, json.dumps({**known, name: facts}, indent=1, sort_keys=True) + "\n")
    print(format_arms(facts["arms"]))


def run_arms(options: argparse.Namespace, out: Output) -> dict[str, dict[str, RetrievalResult]]:
    """The results of every arm on both parts; what is there is read."""
    parts = write_parts(options, out, SIZES)
    base = export_sentence_transformer(options.model, out.at("base"), max_length=MAX_LENGTH)
    negatives = build_lexical_negatives(options.collection, out.at("lists"), "train", DEPTH)
    found = {UNTOUCHED: measure(base, parts, out.at("untouched"))}
    for name, (queries, number, rate) in ARMS.items():
        place = out.at(name.replace(", ", "-").replace(" ", "-"))
        arguments = BiencoderTrainingArguments(
            output_dir=str(place.at("training").path),
            seed=options.seed,
            per_device_train_batch_size=queries,
            learning_rate=rate,
            **TRAINING,
        )
        lists = load_lists(negatives, options.collection, 1 + number, options.seed, depth=DEPTH)
        model = finetune(base, lists, arguments, output=place.at("training"))
        found[name] = measure(model, parts, place)
    return found


def measure(model: Path, parts: dict[str, Kept], out: Output) -> dict[str, RetrievalResult]:
    return {
        what: evaluate_retriever(model, part.collection, part.split, name=what, out=out.at(f"measured-{what}"))
        for what, part in parts.items()
    }


def describe(arms: dict[str, dict[str, RetrievalResult]]) -> dict[str, Any]:
    """The figures of each arm, with a paired test against no negatives."""
    described: dict[str, Any] = {}
    for name, results in arms.items():
        described[name] = {}
        for what, result in results.items():
            test = compare_paired(result.per_query[METRIC], arms[PLAIN][what].per_query[METRIC])
            described[name][what] = {
                "metrics": result.metrics,
                "queries": len(result.per_query[METRIC]),
                "against no negatives": asdict(test),
            }
    return described


def format_arms(arms: dict[str, Any]) -> str:
    cells = []
    for name, found in arms.items():
        shown = format_difference(None if name == PLAIN else found["own"]["against no negatives"])
        own, kept = (f"{found[what]['metrics'][METRIC]:.3f}" for what in ("own", "kept"))
        cells.append([name, own, shown, kept])
    return markdown_table(["", "own: nDCG@10", "against no negatives", "kept: nDCG@10"], cells, range(1, 4))


if __name__ == "__main__":
    run_main(main)
