"""Does pre-training pay when the start is a ready, mean-pooled embedder? What does each arm forget?

    python benchmarks/ready_embedder.py COLLECTION --model EMBEDDER --kept OTHER_COLLECTION --seeds 0 1 2

Every arm ends in the same fine-tuning, that of `adapt` (queries with negatives from BM25), with the embedder's own
pooling and similarity; one has as many more steps as pre-training costs (in floating-point operations, forward and
backward). Measured on a part of the collection's dev queries and passages, and on one of a collection that no arm was
tuned for. Arms run side by side, one thread each; a run that was killed goes on. Its figures are added to those in
`--results`, of other collections and seeds; table and pictures are made anew.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from operations import BATCHES, encoding_operations, pretraining_operations
from parts import METRIC, write_part
from transformers import TrainingArguments
from tuning import DEPTH, FINETUNING, NEGATIVES, TUNED_LENGTH, prepare_lists, tune

from hf_dense.data.collections import content_hash
from hf_dense.data.corpus import load_passages
from hf_dense.errors import run_main
from hf_dense.evaluation.plots import draw_metrics, save_figure
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.evaluation.significance import compare_paired
from hf_dense.experiments.keeping import Kept
from hf_dense.experiments.processes import run_side_by_side
from hf_dense.finetuning.lists import PassageLists
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.hub.loading import load_encoder, load_tokenizer
from hf_dense.methods import get_method
from hf_dense.pretraining.pretrain import PretrainingOptions, pretrain
from hf_dense.storage.files import write_text
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import provenance

MAX_LENGTH = {"pre-training": 64, "retriever": TUNED_LENGTH}  # tokens
PRETRAINING: dict[str, Any] = {
    "max_steps": 200,
    "per_device_train_batch_size": 16,
    "warmup_steps": 0.1,
    "weight_decay": 0.01,
    "logging_steps": 20,
    "save_strategy": "no",
}
SIZES = {"own": (500, 2000), "kept": (100, 400)}  # queries, passages


@dataclass(frozen=True)
class Arm:
    """One way to a retriever.

    Args:
        method: of pre-training, if any.
        bottleneck: where it sits.
        tuned: whether it is fine-tuned.
        longer: whether that takes as much compute as pre-training and fine-tuning together.
    """

    method: str | None = None
    bottleneck: str = "cls"
    tuned: bool = True
    longer: bool = False


UNTOUCHED, TUNED, LONGER = "untouched", "fine-tuned", "fine-tuned, equal compute"
ARMS = {
    UNTOUCHED: Arm(tuned=False),
    TUNED: Arm(),
    LONGER: Arm(longer=True),
    "RetroMAE at [CLS]": Arm("retromae"),
    "RetroMAE at the mean": Arm("retromae", "mean"),
    "DupMAE at [CLS]": Arm("dupmae"),
    "DupMAE at the mean": Arm("dupmae", "mean"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, help="directory with train and dev judgements")
    parser.add_argument("--model", required=True, help="ready embedder: directory or Hub id")
    parser.add_argument("--kept", required=True, type=Path, help="a collection that no arm is tuned for")
    trained = [*ARMS][1:]
    parser.add_argument("--arms", nargs="+", choices=trained, default=trained, metavar="ARM", help="default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=PRETRAINING["max_steps"], help="of pre-training")
    parser.add_argument("--tuning_steps", type=int, default=FINETUNING["max_steps"], help="of fine-tuning")
    parser.add_argument("--rate", type=float, default=2e-5, help="peak learning rate of the encoder in pre-training")
    parser.add_argument("--decoder_rate", type=float, default=5e-4, help="of the decoders and the head")
    parser.add_argument("--out", type=Path, default=Path("build/ready_embedder"), help="where models are written")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/ready_embedder"))
    parser.add_argument("--side_by_side", type=int, help="arms run at once; one per core when absent")
    parser.add_argument("--bf16", action="store_true", help="train and encode in bfloat16, on a processor that has it")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one arm with one seed, in a process of its own
    options = parser.parse_args()
    out = Output(options.out / _name(options))
    if options.only:
        name, seed = options.only.rsplit(":", 1)
        run_arm(options, name, int(seed), out)
        return
    with out.occupy("ready embedder", {}, claims=("costs-*.json", "logs"), again=True) as work:
        prepare_parts(options, out)
        lists = prepare_lists(options.collection, out, options.seeds[0])
        write_text(out.path / f"costs-{options.steps}.json", json.dumps(measure_costs(options, lists)))
        labels = [UNTOUCHED + ":0", *(f"{name}:{seed}" for seed in options.seeds for name in options.arms)]
        command = [sys.executable, __file__, *sys.argv[1:], "--only"]
        run_side_by_side({label: [*command, label] for label in labels}, out.path / "logs", options.side_by_side)
        rows = [row for label in labels for row in run_arm(options, *_split(label), out)]
        report(options, rows)
        work.complete()


def run_arm(options: argparse.Namespace, name: str, seed: int, out: Output) -> list[dict[str, Any]]:
    """Train and measure one arm with one seed; what is complete is read back.

    Returns:
        A row for every query of both collections.
    """
    arm = ARMS[name]
    own = f"-{recipe(options)}" if arm.method else f"-{options.steps} steps" if arm.longer else ""
    place = out.at(f"{name}-{seed}{own}".lower().translate(str.maketrans(" /", "--", ",[]")))
    start: str | Path = options.model
    if arm.method is not None:
        start = place.path / "pretrained"
        training = TrainingArguments(
            output_dir=str(start),
            bf16=options.bf16,
            use_cpu=options.bf16,  # which transformers wants to be told
            learning_rate=options.rate,
            seed=seed,
            report_to="none",
            **{**PRETRAINING, "max_steps": options.steps},
        )
        given = {"method": arm.method, "bottleneck": arm.bottleneck, "backbone": options.model}
        given |= {"decoder_learning_rate": options.decoder_rate, "max_length": MAX_LENGTH["pre-training"]}
        pretrain(PretrainingOptions(corpus=str(options.collection), **given), training)
    model = export_sentence_transformer(start, place.at("exported"), max_length=MAX_LENGTH["retriever"])
    if arm.tuned:
        costs = json.loads((out.path / f"costs-{options.steps}.json").read_text(encoding="utf-8"))
        steps = costs["equal steps"] if arm.longer else options.tuning_steps
        lists = prepare_lists(options.collection, out, seed)
        precision = {"bf16": True, "use_cpu": True} if options.bf16 else {}
        model = tune(model, lists, place.at("finetuned"), seed, max_steps=steps, **precision)
    rows = []
    for what, part in prepare_parts(options, out).items():
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            found = evaluate_retriever(model, part.collection, part.split, name=name, out=place.at(what))
        shared = {
            "collection": options.collection.resolve().name,
            "pre-training": recipe(options),
            "arm": name,
            "seed": seed,
        }
        values = found.per_query[METRIC].items()
        rows += [{**shared, "measured": what, "query": query, METRIC: round(value, 4)} for query, value in values]
    return rows


def prepare_parts(options: argparse.Namespace, out: Output) -> dict[str, Kept]:
    """What is measured on; what is there is read."""
    collections = {"own": options.collection, "kept": options.kept}
    return {what: write_part(place, out.at(what), *SIZES[what]) for what, place in collections.items()}


def measure_costs(options: argparse.Namespace, lists: PassageLists) -> dict[str, Any]:
    """Operations of a step of each method and of fine-tuning, and the steps of fine-tuning that cost as much in all."""
    tokenizer, size = load_tokenizer(options.model), PRETRAINING["per_device_train_batch_size"]
    corpus = load_passages(str(options.collection)).select(range(BATCHES * size))
    costs: dict[str, Any] = {}
    for name in ("retromae", "dupmae"):
        model = get_method(name).pretraining.from_backbone(options.model)
        costs[name] = pretraining_operations(model, corpus, tokenizer, size, MAX_LENGTH["pre-training"])
    queries = BATCHES * FINETUNING["per_device_train_batch_size"]
    rows = lists.dataset().shuffle(seed=0)[:queries]
    texts = [*rows["query"], *(text for passages in rows["passages"] for text in passages)]
    operations = encoding_operations(load_encoder(options.model), texts, tokenizer, MAX_LENGTH["retriever"])
    costs["fine-tuning"] = operations / BATCHES
    more = max(costs["retromae"], costs["dupmae"]) * options.steps / costs["fine-tuning"]
    return {**costs, "equal steps": round(options.tuning_steps + more)}


def report(options: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add the rows to the results, and write the table, the tests and the picture of all."""
    table = pd.DataFrame(rows)
    named = options.collection.resolve().name
    run = provenance(options.seeds[0], named, content_hash(options.collection))  # before a committed file changes
    folder: Path = options.results
    folder.mkdir(parents=True, exist_ok=True)
    file, facts_file = folder / "queries.parquet", folder / "results.json"
    known = ["collection", "pre-training", "arm", "seed", "measured", "query"]
    if file.is_file():
        table = pd.concat([pd.read_parquet(file), table]).drop_duplicates(known, keep="last")
    table = table.sort_values(known, ignore_index=True)
    table.to_parquet(file, index=False)
    facts = json.loads(facts_file.read_text(encoding="utf-8")) if facts_file.is_file() else {"runs": {}}
    name = f"{named}, {recipe(options)}"
    same = (table["collection"] == named) & (table["pre-training"] == recipe(options))
    last = facts["runs"].get(name)
    before = last.get("before", []) if last else []
    if last and set(options.seeds) - set(last["seeds"]):
        before = [*before, {key: last[key] for key in ("seeds", "commit", "date", "hardware", "operations")}]
    costs = json.loads((options.out / _name(options) / f"costs-{options.steps}.json").read_text(encoding="utf-8"))
    facts["runs"][name] = {
        "operations": costs,
        "kept": options.kept.resolve().name,
        "sizes": SIZES,
        "negatives": {"of a query": NEGATIVES, "drawn from": DEPTH},
        "max_length": MAX_LENGTH,
        "precision": "bfloat16" if options.bf16 else "float32",
        "pretraining": {
            **PRETRAINING,
            "max_steps": options.steps,
            "learning_rate": options.rate,
            "decoder_learning_rate": options.decoder_rate,
        },
        "finetuning": {**FINETUNING, "max_steps": options.tuning_steps},
        "arms": {arm: asdict(what) for arm, what in ARMS.items()},
        **run,
        "before": before,  # runs whose seeds are kept
        "seeds": sorted({int(seed) for seed in table.loc[same, "seed"]}),
    }
    facts["figures"] = {
        f"{of}, {how}": summarise(part) for (of, how), part in table.groupby(["collection", "pre-training"])
    }
    write_text(facts_file, json.dumps(facts, indent=1) + "\n")
    lines = [f"## {title}\n\n{format_arms(figures)}\n" for title, figures in facts["figures"].items()]
    write_text(folder / "results.md", "\n".join(lines))
    for title, figures in facts["figures"].items():
        shown = [
            {"name": arm, **{f"nDCG@10, {part} queries": found[part]["mean"] for part in ("own", "kept")}}
            for arm, found in figures.items()
        ]
        save_figure(draw_metrics(shown), folder / f"{re.sub(r'[^a-z0-9.-]+', '-', title)}.png")
    print((folder / "results.md").read_text(encoding="utf-8"))


def summarise(table: pd.DataFrame) -> dict[str, Any]:
    """Means of every arm and seed, and the paired test of each query's mean over seeds against fine-tuning alone."""
    figures: dict[str, Any] = {}
    for arm in [name for name in ARMS if name in set(table.arm)]:
        figures[arm] = {}
        for what in ("own", "kept"):
            part = table[(table.arm == arm) & (table.measured == what)]
            against = table[(table.arm == TUNED) & (table.measured == what) & table.seed.isin(part.seed)]
            found = {"mean": float(part[METRIC].mean()), "queries": int(part["query"].nunique())}
            found["by seed"] = {int(seed): float(mean) for seed, mean in part.groupby("seed")[METRIC].mean().items()}
            if arm not in (UNTOUCHED, TUNED) and len(against):
                means = [one.groupby("query")[METRIC].mean().to_dict() for one in (part, against)]
                found["against fine-tuned"] = asdict(compare_paired(*means))
            figures[arm][what] = found
    return figures


def format_arms(figures: Mapping[str, Any]) -> str:
    """A Markdown table."""
    cells = []
    for arm, found in figures.items():
        test = found["own"].get("against fine-tuned")
        shown = (
            "-"
            if test is None
            else f"{test['difference']:+.4f} ({test['low']:+.4f} to {test['high']:+.4f}), p = {test['p_value']:.4f}"
        )
        seeds = " / ".join(f"{value:.4f}" for value in found["own"]["by seed"].values())
        cells.append([arm, f"{found['own']['mean']:.4f}", shown, seeds, f"{found['kept']['mean']:.4f}"])
    return markdown_table(["", "nDCG@10", "against fine-tuned", "by seed", "nDCG@10, kept"], cells, [1, 4])


def _name(options: argparse.Namespace) -> str:
    """Of the directory of what is trained."""
    tuned = "" if options.tuning_steps == FINETUNING["max_steps"] else f"-tuned-{options.tuning_steps}"
    return f"{options.collection.resolve().name}{'-bf16' if options.bf16 else ''}{tuned}"


def recipe(options: argparse.Namespace) -> str:
    """How long, and how fast, pre-training learns: steps, and the rates of the encoder and of what is added.

    With the steps of fine-tuning after it, where they are not those of `adapt`.
    """
    tuned = "" if options.tuning_steps == FINETUNING["max_steps"] else f", then {options.tuning_steps} of fine-tuning"
    return f"{options.steps} steps at {options.rate:g}/{options.decoder_rate:g}{tuned}"


def _split(label: str) -> tuple[str, int]:
    name, seed = label.rsplit(":", 1)
    return name, int(seed)


if __name__ == "__main__":
    run_main(main)
