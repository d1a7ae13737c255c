"""Where is a model ahead of BM25: on queries of every kind, or of one? And on collections that it never saw?

    hf-dense evaluate MODELS --tasks build/medquad:dev ... --out build/evaluated
    python benchmarks/query_kinds.py build/evaluated --collection build/medquad [--results FILE.json]

Reads what `hf-dense evaluate` wrote, BM25 among it, and the kinds of the queries in a column of the first collection.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from hf_dense.data.collections import content_hash, query_table
from hf_dense.errors import InputError, run_main
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.significance import compare_paired
from hf_dense.storage.files import write_text
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.provenance import provenance

BM25, METRIC = "bm25", "ndcg@10"
FEWEST = 20  # queries of a kind that has a row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evaluation", type=Path, help="directory that hf-dense evaluate wrote")
    parser.add_argument("--collection", type=Path, required=True, help="whose queries have kinds")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--column", default="qtype", help="of its queries")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/past_bm25_kinds.json"))
    options = parser.parse_args()
    names = json.loads((options.evaluation / "results.json").read_text(encoding="utf-8"))["models"]
    if BM25 not in names:
        raise InputError(f"{options.evaluation} has no row of BM25; evaluate without --no_bm25.")
    results = {
        task: {name: RetrievalResult.load(options.evaluation / name / task) for name in names}
        for task in names[BM25]["tasks"]
    }
    task = f"{options.collection.resolve().name}-{options.split}"
    if task not in results:
        raise InputError(f"{options.evaluation} has no results of {task}; it has those of {', '.join(results)}.")
    table = query_table(options.collection)
    if options.column not in table.column_names:
        raise InputError(f"The queries have no column {options.column!r}; they have {', '.join(table.column_names)}.")
    kind_of = dict(zip(table.column("id").to_pylist(), table.column(options.column).to_pylist(), strict=True))
    manifest = Manifest.load(options.evaluation)
    facts: dict[str, Any] = {
        "tasks": {task: _against_bm25(results[task], None) for task in results},
        "kinds": {
            kind: _against_bm25(results[task], {query for query, its in kind_of.items() if its == kind})
            for kind in _kinds(results[task][BM25], kind_of)
        },
        "evaluation": None if manifest is None else {"command": manifest.command, "run": manifest.run},
        **provenance(0, options.collection.resolve().name, content_hash(options.collection)),
    }
    write_text(options.results, json.dumps(facts, indent=1) + "\n")
    print("\n\n".join(_table(facts[part], list(names)) for part in ("tasks", "kinds")))


def _kinds(result: RetrievalResult, kind_of: Mapping[str, str | None]) -> list[str]:
    """The kinds of which enough queries were measured, most first."""
    counted = Counter(kind_of[query] for query in result.per_query[METRIC])
    return [kind for kind, count in counted.most_common() if kind and count >= FEWEST]


def _against_bm25(results: Mapping[str, RetrievalResult], among: set[str] | None) -> dict[str, Any]:
    """By model, its mean over all measured queries, or those among some, and how that differs from BM25's."""
    scores = {
        name: {query: value for query, value in result.per_query[METRIC].items() if among is None or query in among}
        for name, result in results.items()
    }
    return {
        name: {
            "queries": len(values),
            METRIC: fmean(values.values()),
            "against bm25": None if name == BM25 else asdict(compare_paired(values, scores[BM25])),
        }
        for name, values in scores.items()
    }


def _table(rows: Mapping[str, Mapping[str, Any]], names: list[str]) -> str:
    lines = []
    for title, found in rows.items():
        cells = []
        for name in names:
            cell, other = f"{found[name][METRIC]:.3f}", found[name]["against bm25"]
            cells.append(cell if other is None else f"{cell} ({other['low']:+.3f} to {other['high']:+.3f})")
        lines.append([title, str(found[names[0]]["queries"]), *cells])
    return markdown_table([METRIC, "queries", *names], lines, range(1, len(names) + 2))


if __name__ == "__main__":
    run_main(main)
