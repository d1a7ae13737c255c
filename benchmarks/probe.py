"""Does the probe of a pre-training say what its checkpoints are worth when they have been fine-tuned?

    python benchmarks/probe.py COLLECTION --model EMBEDDER --methods retromae dupmae cotmae --steps 600 --every 100

A fifth of the documents is left out of pre-training, which starts from an encoder or (`--model none`) from random
weights; the probe asks for passages of that fifth, with queries made of them. Every checkpoint is fine-tuned for a
short time on the collection's training pairs, and measured by nDCG@10 on its dev queries. Written, for each collection:
the rank correlations (Spearman) of the probe's two figures with that quality, over the checkpoints of a training and
over methods at a step; what the checkpoint is worth that the probe would keep; and what the probes cost, as a share of
the training's time (where none was interrupted). Trainings run side by side, one thread each; a run that was killed
goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from parts import with_document
from scipy.stats import spearmanr
from transformers import TrainingArguments

from hf_dense.data.collections import content_hash, load_corpus, training_pairs
from hf_dense.data.queries.collection import KINDS, build_queries
from hf_dense.data.splits import divide_documents
from hf_dense.errors import InputError, run_main
from hf_dense.evaluation.plots import save_figure
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.experiments.comparison import FINETUNING, PRETRAINING, Settings, encoder_shape, shared_tokenizer
from hf_dense.experiments.processes import run_side_by_side
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.methods import METHODS
from hf_dense.pretraining.pretrain import PretrainingOptions, pretrain
from hf_dense.pretraining.probe import FEW, PLAIN, SECONDS, WHITENED, Pool
from hf_dense.storage.files import write_text
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.output import Output
from hf_dense.storage.provenance import provenance

METRIC, SPLIT = "ndcg@10", "dev"
FIGURES = {PLAIN: "as it is", WHITENED: "whitened"}
SCRATCH = "none"
MAX_LENGTH = 64  # tokens
TEXTS = 16  # of a step of pre-training; CoT-MAE's rows have two
LIMIT = 600  # passages that queries are made of
SHARES = {"read": 0.8, "probed": 0.2}  # of the documents
FROM_ENCODER: dict[str, dict[str, Any]] = {
    "pre-training": {"learning_rate": 1e-4, "warmup_steps": 0.1, "weight_decay": 0.01, "logging_steps": 20},
    "fine-tuning": {"max_steps": 100, "per_device_train_batch_size": 32, "learning_rate": 5e-5, "temperature": 0.05},
}
FROM_SCRATCH: dict[str, dict[str, Any]] = {"pre-training": PRETRAINING, "fine-tuning": FINETUNING}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, help="directory with train and dev judgements")
    parser.add_argument("--model", default=SCRATCH, help="encoder to start from: directory or Hub id (default: none)")
    parser.add_argument("--methods", nargs="+", default=["retromae", "dupmae", "cotmae"])
    parser.add_argument("--steps", type=int, default=3000, help="of pre-training (default: 3000)")
    parser.add_argument("--every", type=int, default=300, help="steps from one checkpoint to the next (default: 300)")
    parser.add_argument("--queries", nargs="+", choices=KINDS, default=["headings", "sentences"], help="of the probe")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=Path("build/probe"), help="where models are written")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/probe"))
    parser.add_argument("--side_by_side", type=int, help="trainings run at once; one per core when absent")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one training, in a process of its own
    options = parser.parse_args()
    start = "scratch" if options.model == SCRATCH else Path(options.model).name
    out = Output(options.out / f"{options.collection.resolve().name}-{start}-{options.steps}")
    if options.only:
        run_training(options, *options.only.split(":"), out)
        return
    reads = [options.collection, options.model]
    with out.occupy("probe", {}, claims=("corpus-*.jsonl", "logs"), reads=reads, again=True) as work:
        prepare(options, out)
        labels = [f"{method}:{seed}" for seed in options.seeds for method in options.methods]
        command = [sys.executable, __file__, *sys.argv[1:], "--only"]
        run_side_by_side({label: [*command, label] for label in labels}, out.path / "logs", options.side_by_side)
        found = {label: run_training(options, *label.split(":"), out) for label in labels}
        report(options, found, out.path.name)
        work.complete()


def prepare(options: argparse.Namespace, out: Output) -> None:
    """The passages that are pre-trained on, the probe's queries, and a tokenizer where there is none."""
    rows = [with_document(row) for row in load_corpus(options.collection)]
    if not any("document" in row or "neighbour" in row for row in rows):
        needy = [method for method in options.methods if "neighbour" in METHODS[method].config().sources]
        if needy:
            raise InputError(f"{options.collection} knows no neighbours, which {', '.join(needy)} reads; leave it out.")
    parts = divide_documents({row.get("document") or row["id"] for row in rows}, SHARES)
    for part in SHARES:
        if not (file := out.path / f"corpus-{part}.jsonl").exists():
            lines = [json.dumps(row) for row in rows if parts[row.get("document") or row["id"]] == part]
            write_text(file, "\n".join(lines) + "\n")
    source = str(out.path / "corpus-probed.jsonl")
    made = build_queries(source, out.at("queries"), options.queries, limit=LIMIT, split="0/100/0")
    if (count := len(Pool.load(made, SPLIT).queries)) < FEW:
        raise InputError(f"Of {options.collection} {count} queries can be made, too few to probe with; name others.")
    if options.model == SCRATCH:
        shared_tokenizer(settings_of(options), out.at("tokenizer"))


def settings_of(options: argparse.Namespace) -> Settings:
    """Shape and tokenizer of an encoder of random weights."""
    return Settings(str(options.collection), max_length=MAX_LENGTH)


def run_training(options: argparse.Namespace, method: str, seed: str, out: Output) -> dict[str, Any]:
    """Pre-train, and fine-tune and measure every checkpoint; what is complete is read back.

    Returns:
        `rows`, a step each: the probe's figures, and nDCG@10 after fine-tuning; and the `seconds` of `probes` and of
        the `training` without them.
    """
    place = out.at(f"{method}-{seed}")
    recipe = FROM_SCRATCH if options.model == SCRATCH else FROM_ENCODER
    saving = {"save_strategy": "steps", "save_steps": options.every, "save_total_limit": None, "report_to": "none"}
    size = TEXTS // 2 if method == "cotmae" else TEXTS
    given = {**recipe["pre-training"], **saving, "max_steps": options.steps, "per_device_train_batch_size": size}
    training = TrainingArguments(output_dir=str(place.path / "pretrained"), seed=int(seed), **given)
    result = pretrain(pretraining_options(options, method, out), training)
    probes = [row for row in result.history if WHITENED in row]
    rows = []
    for row in probes:
        checkpoint = result.path / f"checkpoint-{row['step']}"
        start: str | Path = checkpoint if row["step"] else options.model
        if start != SCRATCH:  # whose random weights are not kept
            at = place.at(f"step-{row['step']}")
            figures = {name: row[name] for name in FIGURES}
            rows.append({"step": row["step"], **figures, METRIC: tuned_quality(options, start, int(seed), at)})
    manifest = Manifest.load(result.path)
    assert manifest is not None
    spent = sum(row[SECONDS] for row in probes)
    return {"rows": rows, "seconds": {"probes": spent, "training": manifest.facts["seconds"] - spent}}


def pretraining_options(options: argparse.Namespace, method: str, out: Output) -> PretrainingOptions:
    """What is pre-trained, and probed at every checkpoint."""
    start: dict[str, Any] = {"backbone": options.model}
    if options.model == SCRATCH:
        start = {"backbone_config": encoder_shape(settings_of(options)), "tokenizer": str(out.path / "tokenizer")}
    return PretrainingOptions(
        method=method,
        corpus=str(out.path / "corpus-read.jsonl"),
        max_length=MAX_LENGTH,
        probe=f"{out.path / 'queries'}:{SPLIT}",
        probe_steps=options.every,
        **start,
    )


def tuned_quality(options: argparse.Namespace, start: str | Path, seed: int, place: Output) -> float:
    """nDCG@10 of a checkpoint after a short fine-tuning."""
    model = export_sentence_transformer(start, place.at("exported"), max_length=MAX_LENGTH, similarity="cosine")
    recipe = (FROM_SCRATCH if options.model == SCRATCH else FROM_ENCODER)["fine-tuning"]
    target = str(place.path / "finetuned")
    arguments = BiencoderTrainingArguments(output_dir=target, seed=seed, report_to="none", **recipe)
    tuned = finetune(model, training_pairs(options.collection), arguments)
    found = evaluate_retriever(tuned, options.collection, SPLIT, name=place.path.name, out=place.at(SPLIT))
    return float(found.metrics[METRIC])


def report(options: argparse.Namespace, found: Mapping[str, Mapping[str, Any]], name: str) -> None:
    """Write figures, tables and a picture."""
    table = pd.DataFrame(
        [
            {"method": method, "seed": int(seed), **row}
            for label, one in found.items()
            for method, seed in [label.split(":")]
            for row in one["rows"]
        ]
    )
    seconds = {label: one["seconds"] for label, one in found.items()}
    facts = {
        "model": Path(options.model).name,
        "steps": options.steps,
        "every": options.every,
        "queries": options.queries,
        "max_length": MAX_LENGTH,
        "texts": TEXTS,
        "recipe": FROM_SCRATCH if options.model == SCRATCH else FROM_ENCODER,
        "correlations": {figure: correlate(table, figure) for figure in FIGURES},
        "kept": kept(table),
        "seconds": seconds,
        "overhead": {label: spent["probes"] / spent["training"] for label, spent in seconds.items()},
        "checkpoints": table.to_dict("records"),
        **provenance(options.seeds[0], options.collection.resolve().name, content_hash(options.collection)),
        "seeds": options.seeds,
    }
    folder: Path = options.results
    write_text(folder / f"{name}.json", json.dumps(facts, indent=1) + "\n")
    write_text(folder / f"{name}.md", tables(facts))
    draw(table, folder / f"{name}.png")
    print(tables(facts))


def correlate(table: pd.DataFrame, figure: str) -> dict[str, Any]:
    """Spearman's correlations of a figure of the probe with the quality after fine-tuning; None where one is constant.

    Over the checkpoints of each training; over all checkpoints; over the methods (means over seeds) at each step but
    the start, which they share.
    """
    by_training = table.groupby(["method", "seed"])
    trainings = {f"{method}:{seed}": spearman(part, figure) for (method, seed), part in by_training}
    means = table[table.step > 0].groupby(["step", "method"], as_index=False)[[figure, METRIC]].mean()
    methods = {int(step): spearman(part, figure) for step, part in means.groupby("step")}
    return {"over checkpoints": trainings, "over all": spearman(table, figure), "over methods": methods}


def spearman(table: pd.DataFrame, figure: str) -> float | None:
    """One correlation."""
    if min(table[figure].nunique(), table[METRIC].nunique()) < 2:
        return None
    return float(spearmanr(table[figure], table[METRIC]).statistic)


def kept(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """For each training what its last checkpoint is worth, its best one, and the one that the probe finds best."""
    found = {}
    for (method, seed), part in table.groupby(["method", "seed"]):
        chosen = part.loc[part[WHITENED].idxmax()]
        found[f"{method}:{seed}"] = {
            "chosen step": int(chosen.step),
            "chosen": float(chosen[METRIC]),
            "last": float(part.loc[part.step.idxmax(), METRIC]),
            "best step": int(part.loc[part[METRIC].idxmax(), "step"]),
            "best": float(part[METRIC].max()),
        }
    return found


def tables(facts: Mapping[str, Any]) -> str:
    """Markdown: correlations, what would be kept, and the figures behind them."""
    correlations, trainings = facts["correlations"], list(facts["kept"])
    rows = [[f"checkpoints of {label}", *_shown(correlations, "over checkpoints", label)] for label in trainings]
    steps = list(correlations[WHITENED]["over methods"])
    rows += [[f"methods at step {step}", *_shown(correlations, "over methods", step)] for step in steps]
    rows.append(["all checkpoints", *(_two(correlations[figure]["over all"]) for figure in FIGURES)])
    kept_rows = [
        [
            label,
            f"{one['chosen']:.4f} (step {one['chosen step']})",
            f"{one['last']:.4f}",
            f"{one['best']:.4f} (step {one['best step']})",
            f"{facts['overhead'][label]:.1%}",
        ]
        for label, one in facts["kept"].items()
    ]
    figures = [
        [row["method"], str(row["seed"]), str(row["step"]), *(f"{row[name]:.4f}" for name in (*FIGURES, METRIC))]
        for row in facts["checkpoints"]
    ]
    parts = [
        markdown_table(["Spearman with nDCG@10 after fine-tuning", *FIGURES.values()], rows, {1, 2}),
        markdown_table(["fine-tuned", "chosen by the probe", "last", "best", "probes' cost"], kept_rows, {1, 2, 3, 4}),
        markdown_table(
            ["method", "seed", "step", *(f"probe, {name}" for name in FIGURES.values()), "fine-tuned"],
            figures,
            {1, 2, 3, 4, 5},
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _shown(correlations: Mapping[str, Any], over: str, key: Any) -> list[str]:
    return [_two(correlations[figure][over][key]) for figure in FIGURES]


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def draw(table: pd.DataFrame, path: Path) -> None:
    """Quality after fine-tuning against both figures of the probe, and all three over the steps."""
    figure = Figure(figsize=(15, 4.6), layout="constrained")
    styles = {METRIC: ("-", "fine-tuned"), WHITENED: ("--", "probe, whitened"), PLAIN: (":", "probe, as it is")}
    *scatters, curves = figure.subplots(1, 3)
    for number, (method, part) in enumerate(table.groupby("method")):
        colour = f"C{number}"
        for axes, name in zip(scatters, FIGURES, strict=True):
            axes.scatter(part[name], part[METRIC], s=18, color=colour, label=method)
        means = part.groupby("step")[[*FIGURES, METRIC]].mean()
        for name, (style, _) in styles.items():
            curves.plot(means.index, means[name], style, color=colour)
    for axes, title in zip(scatters, FIGURES.values(), strict=True):
        axes.set_xlabel(f"probe, {title}: nDCG@10")
        axes.set_ylabel("fine-tuned: nDCG@10")
    curves.set_xlabel("step of pre-training")
    curves.set_ylabel("nDCG@10")
    lines = [Line2D([], [], color="grey", linestyle=style, label=label) for style, label in styles.values()]
    figure.legend(handles=[*scatters[0].collections, *lines], loc="outside lower center", ncols=9, frameon=False)
    for axes in (*scatters, curves):
        axes.grid(alpha=0.3)
    save_figure(figure, path)


if __name__ == "__main__":
    run_main(main)
