"""What pre-training on long texts takes: RetroMAE on ModernBERT, tokens a second and memory against the texts' length.

    python benchmarks/long_texts.py [--lengths 512 1024 2048 4096 8192]

All texts are as long as the model reads. Two figures for each length, in processes of their own: `step`, a step of as
many tokens as the longest text has (16 texts of 512 tokens, 1 of 8,192), so that what a step costs whatever it reads
counts alike; `text`, a step of one text, without and with gradient checkpointing. Memory is the highest resident one
beyond what a process holds before there is a model. Layers are ModernBERT-base's, three of them (one of full attention,
two of a window); the decoder's layer reads the whole text. The median of the steps after the first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from pretraining import SEED, Shape, make_rows, make_views, resident

from hf_dense.evaluation.plots import save_figure
from hf_dense.methods import METHODS
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.storage.files import write_text
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.provenance import describe_run

METHOD, KIND = "retromae", "modernbert"
LENGTHS = (512, 1024, 2048, 4096, 8192)
SIZES: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
    "vocab_size": 8000,
}
WAYS = {"step": "as many tokens a step", "text": "one text", "checkpointed": "one text, checkpointing"}
ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="tokens of a text")
    parser.add_argument("--steps", type=int, default=2, help="timed, after one to warm up (default: 2)")
    parser.add_argument("--hidden", type=int, default=SIZES["hidden_size"], help="width (default: 768)")
    parser.add_argument("--threads", type=int, default=1, help="of each process (default: 1)")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "long_texts.json")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs" / "long_texts.png")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one figure, in a process of its own
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.only:
        way, length = options.only.split(":")
        options.into.write_text(json.dumps(measure(options, way, int(length))))
        return
    rows = []
    for length in options.lengths:
        rows.append({"length": length, **{way: run_apart(options, way, length) for way in WAYS}})
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    facts = {
        "rows": rows,
        "sizes": {**SIZES, "hidden_size": options.hidden},
        "steps": options.steps,
        "threads": options.threads,
        "seed": SEED,
        "versions": {name: version(name) for name in ("hf_dense", "torch", "transformers")},
        **describe_run(),
    }
    write_text(options.output, json.dumps(facts, indent=1) + "\n")
    save_figure(draw(rows), options.plot)
    print(f"\n{table(rows)}\n\nWritten to {options.output} and {options.plot}")


def run_apart(options: argparse.Namespace, way: str, length: int) -> dict[str, float]:
    """What a process of its own measures."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "measured.json"
        words = [*sys.argv[1:], "--only", f"{way}:{length}", "--into", str(into)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
        done = subprocess.run([sys.executable, __file__, *words], env=environment, check=False)
        if done.returncode:
            sys.exit(done.returncode)
        measured: dict[str, float] = json.loads(into.read_text())
        return measured


def measure(options: argparse.Namespace, way: str, length: int) -> dict[str, float]:
    """Tokens a second, and the highest memory in GB."""
    texts = max(options.lengths) // length if way == "step" else 1
    sizes = {**SIZES, "hidden_size": options.hidden, "intermediate_size": 3 * options.hidden // 2}
    shape = Shape(**sizes, batch=texts, length=length, generator={}, rows=texts)
    rows = make_rows(shape, "full")
    before = resident("VmRSS")
    model = build_model(shape)
    [views] = make_views(model.config, shape, rows, 1)
    if way == "checkpointed":
        getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    seconds = []
    for _ in range(1 + options.steps):
        started = time.perf_counter()
        model(views).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - started)
    tokens = sum(int(views[name]["attention_mask"].sum()) for name in model.config.encoder_specs)
    median = statistics.median(seconds[1:])
    return {"tokens_per_second": tokens / median, "seconds": median, "peak_gb": resident("VmHWM") - before}


def build_model(shape: Shape) -> BottleneckForPreTraining:
    """A model of random weights."""
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    backbone = {"model_type": KIND, "max_position_embeddings": shape.length, **special, **shape.sizes}
    torch.manual_seed(SEED)
    classes = METHODS[METHOD]
    return classes.pretraining(classes.config(backbone_config=backbone)).train()


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    head = ["tokens of a text", "tokens/s, as many tokens a step", *(f"GB, {name}" for name in WAYS.values())]
    lines = [
        [
            f"{row['length']:,}",
            f"{row['step']['tokens_per_second']:,.0f}",
            *(f"{row[way]['peak_gb']:.2f}" for way in WAYS),
        ]
        for row in rows
    ]
    return markdown_table(head, lines, range(len(head)))


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Tokens a second and memory against the length of texts."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    speed, memory = figure.subplots(1, 2)
    lengths = [row["length"] for row in rows]
    speed.plot(lengths, [row["step"]["tokens_per_second"] for row in rows], "o-")
    speed.set_ylabel("tokens read by the encoder in a second")
    for way in WAYS:
        memory.plot(lengths, [row[way]["peak_gb"] for row in rows], "o-", label=WAYS[way])
    memory.set_ylabel("highest memory (GB)")
    memory.legend(frameon=False, fontsize=8)
    for axes in (speed, memory):
        axes.set_xlabel("tokens of a text")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()
