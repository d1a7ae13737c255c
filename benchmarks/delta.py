"""Can pre-training be added to an embedder that is finished? What it changed, added at several weights.

    python benchmarks/delta.py COLLECTION --kept OTHER --model EMBEDDER [--output RESULTS.json]

RetroMAE pre-trains the embedder on the collection; what that changed (pre-trained minus embedder) is added to the
embedder and to the embedder that was fine-tuned. Measured on a part of the dev queries and passages, and on
one of another collection that nothing was tuned for. A run that was killed goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from parts import METRIC, format_difference, parser_of_parts, write_parts
from transformers import TrainingArguments
from tuning import FINETUNING, NEGATIVES, TUNED_LENGTH, prepare_lists, tune

from hf_dense.data.collections import content_hash
from hf_dense.errors import run_main
from hf_dense.experiments.interpolation import Between
from hf_dense.experiments.merging import merge_best
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.pretraining.pretrain import PretrainingOptions, pretrain
from hf_dense.storage.files import write_text
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import provenance

PRETRAINING: dict[str, Any] = {
    "max_steps": 200,
    "per_device_train_batch_size": 16,
    "learning_rate": 2e-5,
    "warmup_steps": 0.1,
    "weight_decay": 0.01,
    "logging_steps": 20,
    "save_strategy": "no",
    "report_to": "none",
}
OPTIONS: dict[str, Any] = {
    "method": "retromae",
    "bottleneck": "mean",
    "decoder_learning_rate": 5e-4,
    "max_length": 64,
}
WEIGHTS = (0.25, 0.5, 1.0)
SIZES = {"own": (500, 2000), "kept": (100, 400)}  # queries, passages


def main() -> None:
    parser = parser_of_parts(__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/delta"), help="where models are written")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/delta.json"))
    options = parser.parse_args()
    out = Output(options.out)
    with out.occupy("delta", {}, reads=[options.collection, options.kept], again=True) as work:
        found = merge_all(options, out)
        work.complete()
    facts: dict[str, Any] = {"finished": found, "pre-training": {**PRETRAINING, **OPTIONS}, "fine-tuning": FINETUNING}
    facts |= {"negatives": NEGATIVES, "sizes": SIZES, "max_length": TUNED_LENGTH, "model": Path(options.model).name}
    facts |= provenance(options.seed, options.collection.resolve().name, content_hash(options.collection))
    facts["kept"] = {"path": options.kept.resolve().name, "content_hash": content_hash(options.kept)}
    write_text(options.output, json.dumps(facts, indent=1) + "\n")
    print(format_points(found))


def merge_all(options: argparse.Namespace, out: Output) -> dict[str, Any]:
    """The points of each finished embedder; what is there is read."""
    own, kept = write_parts(options, out, SIZES).values()
    base = export_sentence_transformer(options.model, out.at("base"), max_length=TUNED_LENGTH)
    pretrained = out.path / "pretrained"
    training = TrainingArguments(output_dir=str(pretrained), seed=options.seed, **PRETRAINING)
    pretrain(PretrainingOptions(corpus=str(options.collection), backbone=str(base), **OPTIONS), training)
    lists = prepare_lists(options.collection, out, options.seed)
    finished = {"untouched": base, "fine-tuned": tune(base, lists, out.at("fine-tuned"), options.seed)}
    points = {}
    for name, model in finished.items():
        merged = out.at("merged", name)
        merge_best(Between(str(model), str(pretrained), str(base)), WEIGHTS, own, kept, merged)
        points[name] = json.loads((merged.path / "merge.json").read_text(encoding="utf-8"))["points"]
    return points


def format_points(found: dict[str, Any]) -> str:
    cells = []
    for name, points in found.items():
        for point in points:
            line = [name, f"{point['weight']:g}"]
            for what in ("own", "kept"):
                line.append(f"{point[what]['metrics'][METRIC]:.3f}")
                line.append(format_difference(point[what].get("against base", {}).get(METRIC)))
            cells.append(line)
    head = ["added to", "w", "own: nDCG@10", "against w = 0", "kept: nDCG@10", "against w = 0"]
    return markdown_table(head, cells, range(1, 6))


if __name__ == "__main__":
    run_main(main)
