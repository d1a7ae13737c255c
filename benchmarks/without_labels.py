"""Do retrievers that `hf-dense adapt` makes of documents alone serve people's questions better? Is its choice right?

    python benchmarks/without_labels.py COLLECTION ... --base EMBEDDER --budget 15m

Adapts the base to a part of each collection's passages, without a judged query, and then asks the collection's own
queries, of which adapt has seen none: BM25, the base, both together, and every arm. Its figures are added to those in
`--results`, of other collections; the table is made anew. A run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parts import METRIC, format_difference, write_part

from hf_dense.data.collections import content_hash
from hf_dense.errors import run_main
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.significance import compare_paired
from hf_dense.experiments.adaptation.arms import BASE
from hf_dense.experiments.adaptation.options import AdaptOptions
from hf_dense.experiments.adaptation.report import Adaptation
from hf_dense.experiments.adaptation.run import adapt
from hf_dense.experiments.asked import measure
from hf_dense.experiments.keeping import Kept
from hf_dense.search.index import SearchIndex, build_index
from hf_dense.storage.files import write_text
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output

UNTRAINED = "base + BM25, half each"  # had without any training
HALF = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path, nargs="+", help="directories with judgements")
    parser.add_argument("--base", required=True, help="ready embedder: directory or Hub id")
    parser.add_argument("--budget", default="15m", help="of each adaptation (default: 15m)")
    parser.add_argument("--split", default="dev", help="whose queries are asked (default: dev)")
    parser.add_argument("--queries", type=int, default=500, help="of it, at most (default: 500)")
    parser.add_argument("--passages", type=int, default=2000, help="adapted to and searched, at most (default: 2000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/without_labels"), help="where models are written")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/without_labels.json"))
    options = parser.parse_args()
    for collection in options.collections:
        out = Output(options.out / collection.resolve().name)
        part = write_part(collection, out, options.queries, options.passages, options.split)
        given = {"base": options.base, "budget": options.budget, "seed": options.seed}
        passages = str(part.collection / "corpus.jsonl")
        adapted = adapt(AdaptOptions(docs=passages, out=str(out.path / "adapted"), **given))
        about = {name: adapted.facts[name] for name in ("plan", "commit", "hardware", "date", "seed", "versions")}
        sizes = {"queries": options.queries, "passages": options.passages, "content": content_hash(part.collection)}
        found = {**given, **sizes, **about, "arms": ask(adapted, part, out)}
        name = f"{part.name} ({part.split}), {Path(options.base).name}, {options.budget}, seed {options.seed}"
        add(options.results, f"{name}, {options.passages:,} passages at most", found)


def ask(adapted: Adaptation, part: Kept, out: Output) -> dict[str, Any]:
    """What every arm is worth on the made queries that adapt reported on, and on the collection's own."""
    arms = adapted.facts["arms"]
    made = {arm["name"]: arm["metrics"][METRIC] for arm in arms}
    base = next(arm for arm in arms if arm["name"] == BASE)
    wanted = [(arm["name"], arm["model"], arm["weight"]) for arm in arms] + [(UNTRAINED, base["model"], HALF)]
    real: dict[str, RetrievalResult] = {}
    indexes: dict[str, Output] = {}  # of models, several of which are in two arms
    for name, model, weight in wanted:
        place = indexes.setdefault(model, out.at("indexes", name))
        index = SearchIndex.load(build_index(model, part.collection, place), model)
        real[name] = measure(index, part.collection, part.split, weight, out.at("asked", name), name)
    best = adapted.facts["verdict"]["best"]
    return {
        name: {
            "chosen": name == best,
            "weight": weight,
            "made": made.get(name),
            "real": result.metrics,
            "against": {other: _test(result, real[other]) for other in (BASE, UNTRAINED) if other != name},
        }
        for (name, _, weight), result in zip(wanted, real.values(), strict=True)
    }


def add(file: Path, title: str, found: Mapping[str, Any]) -> None:
    """Add what was found of a collection to the results, and write the tables of all."""
    facts = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    facts[title] = found
    write_text(file, json.dumps(facts, indent=1) + "\n")
    tables = "\n\n".join(f"## {name}\n\n{as_table(facts[name]['arms'])}" for name in facts)
    write_text(file.with_suffix(".md"), tables + "\n")
    print(f"{title}\n\n{as_table(found['arms'])}")


def as_table(arms: Mapping[str, Mapping[str, Any]]) -> str:
    """A row for each arm; the one that adapt chose is bold."""
    rows = []
    for name, arm in arms.items():
        shown = [format_difference(arm["against"].get(other)) for other in (BASE, UNTRAINED)]
        made = "-" if arm["made"] is None else f"{arm['made']:.3f}"
        label = f"**{name}**" if arm["chosen"] else name
        rows.append([label, f"{arm['weight']:g}", made, f"{arm['real'][METRIC]:.3f}", *shown])
    header = ["arm", "weight", f"made queries: {METRIC}", f"real queries: {METRIC}", "against the base"]
    return markdown_table([*header, f"against {UNTRAINED}"], rows, range(1, 6))


def _test(result: RetrievalResult, other: RetrievalResult) -> dict[str, Any]:
    return asdict(compare_paired(result.per_query[METRIC], other.per_query[METRIC]))


if __name__ == "__main__":
    run_main(main)
