"""Measure retrievers on one split of a dataset directory, next to BM25, and say whether they differ.

python examples/evaluate.py --dataset_dir data/python_docs --split test --output_dir runs/evaluation \
    --models bm25 plain=runs/plain/model retromae=runs/retromae/model
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from hf_dense.errors import run_main
from hf_dense.evaluation.plots import plot_metrics
from hf_dense.evaluation.provenance import provenance
from hf_dense.evaluation.retrieval import METRICS, evaluate_retriever
from hf_dense.evaluation.significance import compare_paired
from hf_dense.files import write_text
from hf_dense.options import parse_options


@dataclass(frozen=True)
class EvaluationOptions:
    """What to measure, on what."""

    dataset_dir: str = field(metadata={"help": "Dataset directory with corpus, queries and qrels."})
    output_dir: str = field(metadata={"help": "Receives one directory per model, results.json and metrics.png."})
    models: list[str] = field(metadata={"help": "Any of: bm25, NAME=MODEL with a directory or Hub id."})
    split: str = field(default="test", metadata={"help": "Which qrels."})
    batch_size: int = field(default=64, metadata={"help": "Texts encoded at once."})
    seed: int = field(default=0, metadata={"help": "Of the randomisation test."})


def main() -> None:
    options = parse_options(EvaluationOptions)[0]
    output_dir = Path(options.output_dir)
    results = []
    for entry in options.models:
        name, _, model = entry.rpartition("=")
        name = name or Path(model).name
        results.append(
            evaluate_retriever(
                model,
                options.dataset_dir,
                options.split,
                name=name,
                output_dir=output_dir / name,
                batch_size=options.batch_size,
            )
        )

    print(f"{'':20}" + "".join(f"{metric:>12}" for metric in METRICS))
    for result in results:
        print(f"{result.name:20}" + "".join(f"{result.metrics[metric]:12.3f}" for metric in METRICS))

    comparisons = []
    for before, after in pairwise(results):
        found = compare_paired(after.per_query["mrr@10"], before.per_query["mrr@10"], seed=options.seed)
        comparisons.append({"metric": "mrr@10", "first": after.name, "second": before.name, **asdict(found)})
        print(
            f"mrr@10, {after.name} - {before.name}: {found.difference:+.3f} "
            f"[{found.low:+.3f}, {found.high:+.3f}], p = {found.p_value:.4f} on {found.queries} queries"
        )

    rows = [{"name": result.name, **result.metrics} for result in results]
    plot_metrics(rows, output_dir / "metrics.png")
    record = {"rows": rows, "comparisons": comparisons, "provenance": provenance(options.seed, options.dataset_dir)}
    write_text(output_dir / "results.json", json.dumps(record, indent=1))


if __name__ == "__main__":
    run_main(main)
