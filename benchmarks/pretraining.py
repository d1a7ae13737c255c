"""How fast a pre-training step is, against a plain one that computes the same loss as released implementations do.

    python benchmarks/pretraining.py [--methods retromae master] [--shapes tiny base] [--lengths real full]
        [--precision fp32 bf16] [--steps 20] [--warm_up 20] [--threads 1] [--peak_tflops 0.1]

A row of the results is a method at a shape, with lengths and a precision; a row that is measured again takes the place
of the one before it, so that runs of parts add up (the whole takes hours on one core). Both sides, ours and that of
`plain_pretraining.py`, start from the same weights and read the same batches of synthetic token ids, made beforehand by
our collator in the order of our sampler; what collation costs is measured by `collation.py`. Nothing is timed unless,
without dropout, both losses and both gradients' norms agree.

- time: a step is forward, backward and AdamW, fused in ours (the Trainer's default) and a loop over the parameters in
  the plain one. Steps of both alternate in one process, on one batch after the other. Seconds are medians, with both
  quartiles; the speed-up is the median over batches of plain seconds over ours, and the same by processor time, which
  is the fairer figure of one thread on a busy machine.
  In bf16 a CPU writes a program for every shape of a product that it meets, so the first dozens of steps are slower
  than all that follow, on both sides: `--warm_up 20` leaves them out.
- tokens are those that the encoders read, padding not counted; passages the texts of the first encoder's view. A batch
  holds as many texts for every method, so a method that reads pairs has half as many rows.
- memory: the peak of resident memory (VmHWM) beyond what the imports took, in a process of its own for each side, over
  steps on the longest of the batches. `state_gb` of it, on both sides, are weights, gradients and AdamW's moments.
- parts: of the forward and backward pass `vocabulary` are the operations that read a tensor with a side as long as the
  vocabulary (projections, losses, the word matrix's gradient); `encoder` is what all others take in the same method
  without its decoders, `decoder` the rest. SimLM's generator counts to the side whose view it fills.
- `mfu`: the operations that a method needs on its real tokens (`needed_operations`), as a share of `--peak_tflops`.

Lengths: `full`, every text is as long as the model reads; `real`, the share of that length is drawn from a beta
distribution with mean 0.65 (`BETA`), the ten queries of a passage have 4 to 16 tokens. SimLM's generator is a random
ELECTRA: of the size of google/electra-base-generator for the shape `base`, a smaller one for `tiny` (`SHAPES`).
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from needed_operations import needed_operations
from plain_pretraining import PlainPretraining, pad_views
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from tqdm import tqdm

from hf_dense.evaluation.plots import save_figure
from hf_dense.methods import METHODS
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.keywords import Keywords
from hf_dense.pretraining.sampler import PassageSampler, SiblingSampler
from hf_dense.pretraining.vocabulary import Vocabulary
from hf_dense.storage.files import write_text
from hf_dense.storage.markdown import markdown_table
from hf_dense.storage.provenance import describe_run

Views = dict[str, dict[str, Tensor]]

SEED, MEMORY_STEPS, CLOCKED = 0, 3, 2
BETA = (2.2, 1.2)
QUERIES = 10  # of a passage, as in MASTER's released sample
SIBLINGS = 4  # passages of a document
SPECIAL = {"first": 101, "last": 102, "mask": 103, "pad": 0}  # BERT's special tokens
LOSSES, NORMS = 1e-5, 1e-3  # greatest relative difference of both sides' losses and gradients' norms, in fp32
SIDES = ("ours", "plain")
PARTS = ("encoder", "decoder", "vocabulary", "optimizer")
KEY = ("method", "shape", "lengths", "precision")
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Shape:
    """Sizes of an encoder (BERT's) and a batch.

    Args:
        batch: texts that an encoder reads in a step.
        length: longest text in tokens, [CLS] and [SEP] included.
        rows: of the corpus that batches are taken from.
        generator: of SimLM.
    """

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    batch: int
    length: int
    generator: dict[str, int]
    vocab_size: int = 30522
    rows: int = 4096

    @property
    def sizes(self) -> dict[str, int]:
        """As a backbone's configuration names them."""
        names = ("vocab_size", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
        return {name: getattr(self, name) for name in names}


def generator(layers: int, hidden: int, heads: int, words: int) -> dict[str, int]:
    """Sizes of an ELECTRA generator; `words` is the length of its word vectors, that of the encoder's."""
    return {
        **{"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads},
        **{"intermediate_size": 4 * hidden, "embedding_size": words},
    }


SHAPES = {
    "tiny": Shape(4, 256, 4, 1024, batch=16, length=128, generator=generator(4, 64, 1, words=256)),
    "base": Shape(12, 768, 12, 3072, batch=4, length=144, generator=generator(12, 256, 4, words=768)),
    "toy": Shape(2, 32, 2, 64, batch=4, length=24, generator=generator(1, 16, 1, words=32), vocab_size=211, rows=64),
}
OFFERED = tuple(name for name in SHAPES if name != "toy")


class Case(NamedTuple):
    """What a row of the results is measured at."""

    method: str
    shape: str
    lengths: str
    precision: str

    @property
    def sizes(self) -> Shape:
        """The sizes behind the name of its shape."""
        return SHAPES[self.shape]


class Step(NamedTuple):
    """Seconds of the two halves of a step, and processor time (of all threads) of both."""

    passes: float  # forward and backward
    optimizer: float
    processor: float

    @property
    def total(self) -> float:
        """Of the whole step."""
        return self.passes + self.optimizer


@dataclass
class Side:
    """A model that is trained, with its optimizer; `batches` are what it reads, one after the other."""

    model: nn.Module
    loss: Callable[[Views], Tensor]
    optimizer: torch.optim.Optimizer
    batches: list[Views]
    precision: str

    def passes(self, at: int) -> Tensor:
        """The loss of a batch, after the backward pass."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
            loss = self.loss(self.batches[at])
        loss.backward()
        return loss

    def step(self, at: int) -> Step:
        """Train on a batch."""
        started, worked = time.perf_counter(), time.process_time()
        self.passes(at)
        passed = time.perf_counter()
        self.optimizer.step()
        done, processor = time.perf_counter(), time.process_time() - worked
        self.optimizer.zero_grad()
        return Step(passed - started, done - passed, processor)


def make_vocabulary(size: int) -> Vocabulary:
    """A vocabulary of which a fifth of the tokens continue a word; what is no special token begins behind [MASK]."""
    special = np.arange(size) <= SPECIAL["mask"]
    return Vocabulary(size, special=special, continues=(np.arange(size) % 5 == 0) & ~special, **SPECIAL)


def make_rows(shape: Shape, lengths: str) -> list[dict[str, Any]]:
    """The rows of a corpus: every column that a method reads, as token ids without special tokens."""
    rng, room = np.random.default_rng(SEED), shape.length - 2

    def text(shortest: int, longest: int) -> np.ndarray:
        size = int(rng.integers(shortest, longest + 1))
        return rng.integers(SPECIAL["mask"] + 1, shape.vocab_size, size=size).astype(np.int32)

    def passage() -> np.ndarray:
        size = max(round(float(rng.beta(*BETA)) * shape.length) - 2, 4) if lengths == "real" else room
        return text(size, size)

    def query() -> np.ndarray:
        return text(4, min(16, room)) if lengths == "real" else text(room, room)

    columns = ("text", "neighbour", "continuation")
    return [
        {name: passage() for name in columns}
        | {"queries": [query() for _ in range(QUERIES)], "document": at // SIBLINGS}
        for at in range(shape.rows)
    ]


def make_batches(case: Case, config: BottleneckConfig, count: int) -> list[Views]:
    """The views of the first batches of an epoch, in the order in which the trainer's sampler reads the rows."""
    return make_views(config, case.sizes, make_rows(case.sizes, case.lengths), count)


def make_views(config: BottleneckConfig, shape: Shape, rows: Sequence[Mapping[str, Any]], count: int) -> list[Views]:
    """The views of the first batches of an epoch over some rows, in the order of the trainer's sampler."""
    vocabulary = make_vocabulary(shape.vocab_size)
    size = shape.batch // max(len(encoder.view.sources) for encoder in config.encoder_specs.values())
    tokens = [sum(np.size(np.concatenate([*row[name]], axis=None)) for name in config.sources) for row in rows]
    sampler = PassageSampler(tokens, size, SEED)
    if config.siblings:
        sampler = SiblingSampler(tokens, [row["document"] for row in rows], size, SEED)
    keywords = Keywords.of((row["text"] for row in rows), vocabulary) if config.needs_keywords else None
    collator = ViewCollator(config, vocabulary, shape.length, SEED, keywords)
    order = sampler.order(epoch=0)
    return [collator([rows[row] for row in order[at : at + size]])["views"] for at in range(0, count * size, size)]


def make_model(case: Case, **changes: Any) -> BottleneckForPreTraining:
    """A method's model with random weights, wide enough for mistakes to show in the loss."""
    torch.manual_seed(SEED)
    method, shape = METHODS[case.method], case.sizes
    if method.config.has_generator:
        changes["generator_config"] = {"model_type": "electra", "vocab_size": shape.vocab_size, **shape.generator}
    backbone = {"model_type": "bert", "max_position_embeddings": 512, **shape.sizes}
    model = method.pretraining(method.config(backbone_config=backbone, **changes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * shape.hidden_size**-0.5)
    return model.train()


def make_side(name: str, case: Case, model: BottleneckForPreTraining, batches: list[Views], fixed: bool) -> Side:
    """Ours, or the plain one with a copy of the model's weights."""
    if name == "ours":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        return Side(model, lambda views: model(views).loss, optimizer, batches, case.precision)
    plain = PlainPretraining(model)
    if fixed:
        batches = [pad_views(model.config, views, case.sizes.length) for views in batches]
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-5, foreach=False, fused=False)
    return Side(plain, plain, optimizer, batches, case.precision)


def check_agreement(case: Case, sides: Mapping[str, Side]) -> float:
    """The relative difference of both losses without dropout; the benchmark ends where they or gradients disagree."""
    found = {}
    for name, side in sides.items():
        side.model.eval()
        loss = side.loss(side.batches[0])
        loss.backward()
        gradients = [parameter.grad for parameter in side.model.parameters() if parameter.grad is not None]
        found[name] = (loss.item(), nn.utils.get_total_norm(gradients).item())
        side.optimizer.zero_grad()
        side.model.train()
    differences = [abs(ours - plain) / abs(plain) for ours, plain in zip(found["ours"], found["plain"], strict=True)]
    for what, ours, plain, difference, most in zip(
        ("losses", "gradients' norms"), *found.values(), differences, (LOSSES, NORMS), strict=True
    ):
        if not difference <= most:
            sys.exit(f"{case.method}: the {what} differ, ours {ours}, plain {plain}; nothing is timed.")
    return differences[0]


def measure_times(case: Case, steps: int, warm_up: int, fixed: bool, peak: float | None, show: bool) -> dict[str, Any]:
    """Everything of a row but its memory."""
    model = make_model(case)
    batches = make_batches(case, model.config, warm_up + steps)
    sides = {name: make_side(name, case, model, batches, fixed) for name in SIDES}
    difference = check_agreement(case, sides)
    timed: dict[str, list[Step]] = {name: [] for name in sides}
    for at in tqdm(range(warm_up + steps), desc=" ".join(case), leave=False, disable=None if show else True):
        for name, side in sides.items():
            timed[name].append(side.step(at))
    batches, timed = batches[warm_up:], {name: taken[warm_up:] for name, taken in timed.items()}
    encoders = [*model.config.encoder_specs]
    tokens = [sum(int(views[name]["attention_mask"].sum()) for name in encoders) for views in batches]
    passages = [len(views[encoders[0]]["input_ids"]) for views in batches]
    needed = [needed_operations(model.config, views) for views in batches]
    slots = {
        name: sum(views[encoder]["input_ids"].numel() for views in side.batches[warm_up:] for encoder in encoders)
        for name, side in sides.items()
    }
    middle = warm_up + tokens.index(statistics.median_low(tokens))
    parts = measure_parts(case, sides, middle, min(CLOCKED, steps))
    figures = {}
    for name, taken in timed.items():
        seconds = [step.total for step in taken]
        passes = statistics.median(step.passes for step in taken)
        figures[name] = {
            "seconds": statistics.median(seconds),
            "quartiles": np.quantile(seconds, (0.25, 0.75)).tolist(),
            "processor_seconds": statistics.median(step.processor for step in taken),
            "tokens_per_second": median_rate(tokens, seconds),
            "passages_per_second": median_rate(passages, seconds),
            "parts": {part: share * passes for part, share in parts[name].items()}
            | {"optimizer": statistics.median(step.optimizer for step in taken)},
            "padding": 1 - sum(tokens) / slots[name],
            "mfu": median_rate(needed, seconds) / (peak * 1e12) if peak else None,
        }
    pairs = [*zip(timed["ours"], timed["plain"], strict=True)]
    ratios = [plain.total / ours.total for ours, plain in pairs]
    return {
        **figures,
        "speedup": statistics.median(ratios),
        "speedup_range": [min(ratios), max(ratios)],
        "processor_speedup": statistics.median(plain.processor / ours.processor for ours, plain in pairs),
        "tokens": statistics.mean(tokens),
        "needed_gflop": statistics.mean(needed) / 1e9,
        "loss_difference": difference,
        "state_gb": 16e-9 * sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
    }


def median_rate(amounts: Sequence[float], seconds: Sequence[float]) -> float:
    """The median over steps of an amount in a second."""
    return statistics.median(amount / taken for amount, taken in zip(amounts, seconds, strict=True))


def measure_parts(case: Case, sides: Mapping[str, Side], at: int, repeats: int) -> dict[str, dict[str, float]]:
    """The shares of encoder, decoder and vocabulary in the forward and backward passes on one batch."""
    whole = {name: clock_passes(side, at, case.sizes.vocab_size, repeats) for name, side in sides.items()}
    model = make_model(case, decoders=dict.fromkeys(METHODS[case.method].config.declared_decoders))
    read = [{name: views[name] for name in model.config.views} for views in sides["ours"].batches]
    padded = [{name: views[name] for name in model.config.views} for views in sides["plain"].batches]
    shares = {}
    for name, batches in zip(SIDES, (read, padded), strict=True):
        alone = make_side(name, case, model, batches, fixed=False)
        encoder, _ = clock_passes(alone, at, case.sizes.vocab_size, repeats)
        others, vocabulary = whole[name]
        encoder = min(encoder, others)
        total = others + vocabulary
        shares[name] = {
            "encoder": encoder / total,
            "decoder": (others - encoder) / total,
            "vocabulary": vocabulary / total,
        }
    return shares


def clock_passes(side: Side, at: int, vocabulary: int, repeats: int) -> tuple[float, float]:
    """Seconds of a forward and backward pass: in operations that score a vocabulary, and before them in all others."""
    side.passes(at)
    side.optimizer.zero_grad()
    with Clock(vocabulary) as clock:
        for _ in range(repeats):
            side.passes(at)
            side.optimizer.zero_grad()
    return clock.others / repeats, clock.scores / repeats


class Clock(TorchDispatchMode):
    """Seconds of all operations under it, of those that read a tensor with a side as long as the vocabulary apart.

    Looking up word vectors, and that look-up's backward pass, is no such operation. Seconds are processor time of the
    calling thread, which works as long as any other: interruptions do not count.
    """

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary, self.scores, self.others = vocabulary, 0.0, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation."""
        started = time.thread_time()
        result = func(*args, **(kwargs or {}))
        taken = time.thread_time() - started
        read = [part.shape for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)]
        if any(self.vocabulary in shape for shape in read) and "embedding" not in str(func):
            self.scores += taken
        else:
            self.others += taken
        return result


def measure_memory(case: Case, name: str, count: int, fixed: bool) -> dict[str, float]:
    """The highest resident memory of this process while it trains, beyond what it has before there is a model."""
    method, shape = METHODS[case.method], case.sizes
    config = method.config(backbone_config={"model_type": "bert", **shape.sizes})
    batches = make_batches(case, config, count)
    widest = max(
        batches, key=lambda views: sum(views[encoder]["input_ids"].numel() for encoder in config.encoder_specs)
    )
    before = resident("VmRSS")
    side = make_side(name, case, make_model(case), [widest], fixed)
    for _ in range(MEMORY_STEPS):
        side.step(0)
    return {"peak_gb": resident("VmHWM") - before}


def resident(field: str) -> float:
    """Resident memory of this process in GB: now (`VmRSS`), or at its highest (`VmHWM`)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e9


def run_apart(case: Case, what: str, threads: int) -> dict[str, Any]:
    """What this script, called again for `what` of a case, measures in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "measured.json"
        words = [*sys.argv[1:], "--only", ":".join([*case, what]), "--into", str(into)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        done = subprocess.run([sys.executable, __file__, *words], env=environment)
        if done.returncode:
            sys.exit(done.returncode)
        measured: dict[str, Any] = json.loads(into.read_text())
        return measured


def measure_case(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """A row of the results, without where it comes from."""
    measured = run_apart(case, "times", options.threads)
    for name in SIDES:
        measured[name] |= run_apart(case, name, options.threads)
    return measured


def measure_part(options: argparse.Namespace) -> None:
    """What `run_apart` asks this process for."""
    *names, what = options.only.split(":")
    case = Case(*names)
    fixed = case.method in options.fixed
    if what == "times":
        measured = measure_times(case, options.steps, options.warm_up, fixed, options.peak_tflops, show=True)
    else:
        measured = measure_memory(case, what, options.warm_up + options.steps, fixed)
    options.into.write_text(json.dumps(measured))


def check(options: argparse.Namespace) -> None:
    """Everything at toy size: both sides' losses agree for every case; nothing that is kept is written."""
    rows = []
    cases = [Case(*names, "fp32") for names in product(options.methods, ("toy",), options.lengths)]
    for case in (*cases, cases[0]._replace(precision="bf16")):
        fixed = case.method in options.fixed
        measured = measure_times(case, 1, 2, fixed, peak=1.0, show=False)
        measured["ours"] |= {"peak_gb": 0.0} if rows else run_apart(case, "ours", options.threads)
        measured["plain"] |= measure_memory(case, "plain", 3, fixed)
        rows.append({**case._asdict(), **measured})
        print(f"{' '.join(case)}: the losses agree within {measured['loss_difference']:.0e}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        written = keep(Path(folder) / "results.json", rows[1:])
        assert keep(Path(folder) / "results.json", rows[:2])[-len(written) :] == written[-len(written) :]
        draw(rows, Path(folder) / "plot.png")
    print(table(rows))


def keep(path: Path, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """All rows of a file of results when `rows` have taken the place of those measured at the same before."""
    kept = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    by_case = {tuple(row[name] for name in KEY): dict(row) for row in (*kept, *rows)}
    order = (tuple(METHODS), tuple(SHAPES), ("real", "full"), ("fp32", "bf16"))
    cases = sorted(by_case, key=lambda case: [values.index(name) for values, name in zip(order, case, strict=True)])
    written = [by_case[case] for case in cases]
    shapes = {name: asdict(shape) for name, shape in SHAPES.items() if name in OFFERED}
    write_text(path, json.dumps({"shapes": shapes, "beta": BETA, "rows": written}, indent=1) + "\n")
    return written


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows in Markdown: speed and memory, and below it what the parts of a step take."""
    head = [*KEY, "s / step", "plain", "speed-up", "tokens/s", "plain", "passages/s", "plain", "peak GB", "plain"]
    speeds, shares = [], []
    for row in rows:
        both, names = [row[name] for name in SIDES], [str(row[name]) for name in KEY]
        seconds = [f"{side['seconds']:.3f}" for side in both]
        rates = [f"{side[rate]:,.1f}" for rate in ("tokens_per_second", "passages_per_second") for side in both]
        speeds.append(
            [*names, *seconds, f"{row['speedup']:.2f}x", *rates, *(f"{side['peak_gb']:.2f}" for side in both)]
        )
        parts = [side["parts"][part] / sum(side["parts"].values()) for side in both for part in PARTS]
        shares.append([*names, *(f"{part:.0%}" for part in parts)])
    second = [*KEY, *(f"{name}: {part}" for name in SIDES for part in PARTS)]
    return "\n\n".join(
        markdown_table(names, lines, numbers=range(len(KEY), len(names)))
        for names, lines in ((head, speeds), (second, shares))
    )


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Tokens a second of both sides by method, a panel for each shape: texts of real lengths in fp32."""
    shown = [row for row in rows if row["lengths"] == "real" and row["precision"] == "fp32"]
    shapes = [name for name in SHAPES if any(row["shape"] == name for row in shown)]
    if not shapes:
        return
    most = max(sum(row["shape"] == name for row in shown) for name in shapes)
    figure = Figure(figsize=(5.6 * len(shapes), 1.6 + 0.5 * most), layout="constrained")
    for axes, shape in zip(figure.subplots(1, len(shapes), squeeze=False).flat, shapes, strict=True):
        part = [row for row in shown if row["shape"] == shape][::-1]
        places = np.arange(len(part))
        for offset, name, colour in ((0.2, "ours", "C0"), (-0.2, "plain", "0.7")):
            rates = [row[name]["tokens_per_second"] for row in part]
            bars = axes.barh(places + offset, rates, 0.38, color=colour, label={"ours": "hf_dense"}.get(name, name))
            if name == "ours":
                axes.bar_label(bars, [f" {row['speedup']:.1f}x" for row in part], fontsize=9)
        axes.set_yticks(places, [row["method"] for row in part])
        axes.set_xlabel("tokens read by the encoder in a second, without padding")
        axes.set_xlim(0, 1.15 * max(row[name]["tokens_per_second"] for row in part for name in SIDES))
        sizes = SHAPES[shape]
        axes.set_title(f"{sizes.num_hidden_layers} layers x {sizes.hidden_size}, {sizes.batch} x {sizes.length} tokens")
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--shapes", nargs="+", choices=OFFERED, default=[*OFFERED])
    parser.add_argument("--lengths", nargs="+", choices=("real", "full"), default=["real", "full"])
    parser.add_argument("--precision", nargs="+", choices=("fp32", "bf16"), default=["fp32"], help="default: fp32")
    parser.add_argument("--steps", type=int, default=10, help="that are timed (default: 10)")
    parser.add_argument("--warm_up", type=int, default=2, help="steps before them, on other batches (default: 2)")
    parser.add_argument("--threads", type=int, default=1, help="of each process (default: 1)")
    parser.add_argument("--peak_tflops", type=float, help="of these threads at this precision, to report mfu")
    parser.add_argument(
        "--fixed",
        nargs="*",
        choices=METHODS,
        default=["master"],
        help="methods whose plain views are all as long as the model reads, not as the longest (default: master)",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "pretraining.json")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs" / "pretraining_speed.png")
    parser.add_argument("--check", action="store_true", help="everything at toy size, in a minute; nothing is written")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # a part of a row, in a process of its own
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.only:
        measure_part(options)
        return
    if options.check:
        check(options)
        return
    cases = [Case(*names) for names in product(options.methods, options.shapes, options.lengths, options.precision)]
    packages = ("hf_dense", "torch", "transformers", "numpy")
    origin = {"seed": SEED, "threads": options.threads, "versions": {name: version(name) for name in packages}}
    measured = []
    for number, case in enumerate(cases, 1):
        print(f"[{number}/{len(cases)}] {' '.join(case)}", end=" ", flush=True)
        row = {**case._asdict(), **measure_case(case, options), "steps": options.steps, "warm_up": options.warm_up}
        row |= {"fixed": case.method in options.fixed, "peak_tflops": options.peak_tflops, **origin, **describe_run()}
        measured.append(row)
        print(
            f"{row['ours']['seconds']:.3f} s, plain {row['plain']['seconds']:.3f} s: {row['speedup']:.2f}x", flush=True
        )
        rows = keep(options.output, [row])
    draw(rows, options.plot)
    print(f"\n{table(measured)}\n\nWritten to {options.output} and {options.plot}")


if __name__ == "__main__":
    main()
