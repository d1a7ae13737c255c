"""What vectors are worth that are cut to their first dimensions, of a retriever that was trained for it and of others.

    python benchmarks/matryoshka.py COLLECTION --model EMBEDDER [--output RESULTS.json]

The same fine-tuning without and with the loss of cut vectors. Measured on a part of the collection's dev queries and
passages. A run that was killed goes on.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parts import METRIC, format_difference, write_part
from tuning import FINETUNING, NEGATIVES, TUNED_LENGTH, prepare_lists, tune

from hf_dense.data.collections import content_hash
from hf_dense.errors import run_main
from hf_dense.evaluation.benchmark import evaluate_tasks
from hf_dense.evaluation.dimensions import cut_row
from hf_dense.evaluation.significance import compare_paired
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.storage.files import write_text
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import provenance

DIMENSIONS = (192, 96, 48, 24)
SIZE = (500, 2000)  # queries, passages
UNTOUCHED, PLAIN, CUT = "untouched", "fine-tuned", "fine-tuned for cut vectors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, help="directory with train and dev judgements")
    parser.add_argument("--model", required=True, help="ready embedder: directory or Hub id")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/matryoshka"), help="where models are written")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/matryoshka.json"))
    options = parser.parse_args()
    out = Output(options.out)
    with out.occupy("matryoshka", {}, reads=[options.collection], again=True) as work:
        found = measure(options, out)
        work.complete()
    facts: dict[str, Any] = {"dimensions": found, "trained for": DIMENSIONS, "fine-tuning": FINETUNING}
    facts |= {"negatives": NEGATIVES, "size": SIZE, "max_length": TUNED_LENGTH, "model": Path(options.model).name}
    facts |= provenance(options.seed, options.collection.resolve().name, content_hash(options.collection))
    write_text(options.output, json.dumps(facts, indent=1) + "\n")
    print(format_dimensions(found))


def measure(options: argparse.Namespace, out: Output) -> dict[str, Any]:
    """nDCG@10 of each model by dimensions, with a paired test against that which was not trained for it."""
    part = write_part(options.collection, out.at("own"), *SIZE)
    base = export_sentence_transformer(options.model, out.at("base"), max_length=TUNED_LENGTH)
    lists, dimensions = prepare_lists(options.collection, out, options.seed), [*DIMENSIONS]
    models = {
        UNTOUCHED: base,
        PLAIN: tune(base, lists, out.at("plain"), options.seed),
        CUT: tune(base, lists, out.at("cut"), options.seed, matryoshka=dimensions),
    }
    task = f"{part.collection}:{part.split}"
    results = evaluate_tasks(models, [task], out.at("evaluation"), dimensions=dimensions)
    found: dict[str, Any] = {}
    for size in (None, *dimensions):
        rows = {name: next(iter(results[cut_row(name, size) if size else name].values())) for name in models}
        scores = {name: result.per_query[METRIC] for name, result in rows.items()}
        found[str(size or "whole")] = {
            name: {"metrics": result.metrics, "against fine-tuned": asdict(compare_paired(scores[name], scores[PLAIN]))}
            for name, result in rows.items()
        }
    return found


def format_dimensions(found: dict[str, Any]) -> str:
    cells = []
    for size, rows in found.items():
        shown = format_difference(rows[CUT]["against fine-tuned"])
        cells.append([size, *(f"{row['metrics'][METRIC]:.3f}" for row in rows.values()), shown])
    return markdown_table(["dimensions", UNTOUCHED, PLAIN, CUT, "difference of the last two"], cells, range(5))


if __name__ == "__main__":
    run_main(main)
