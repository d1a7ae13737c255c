"""What `gpu.py` measures, stage by stage; every row is written as soon as it is there.

It wants the folder `tests` on the path, where what released implementations computed is recorded.

Of the package only what needs neither `datasets`, `mteb`, `bm25s` nor `faiss` is imported: the models, the collator and
the samplers, in a plain loop. The Trainer's own loop is not measured.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import statistics
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from gpu_text import Text, bm25, evaluate, read_text, tokenize, tune
from needed_operations import needed_operations
from plain_pretraining import PlainPretraining
from pretraining import LOSSES, NORMS, SEED, SHAPES, Case, Shape, Views, make_model, make_rows, make_views
from recorded_references import METHODS as RECORDED
from recorded_references import (
    OUR_BOTTLENECKS,
    recorded_results,
    recorded_views,
    recorded_weights,
    reference_losses,
    reference_model,
)
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase

from hf_dense.data.tokenizers import train_tokenizer
from hf_dense.hub.convert import REFERENCES, load_reference
from hf_dense.methods import METHODS
from hf_dense.modeling.bottleneck_decoder import Block
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig
from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.sampler import PassageSampler
from hf_dense.pretraining.vocabulary import Vocabulary
from hf_dense.storage.provenance import PACKAGES, describe_run

Batch = dict[str, Any]  # what `ViewCollator` gives: `views` and their `plan`

PEAKS = {  # dense bf16 TFLOP/s by what the device calls itself; the first name that is in it counts
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "H200": 989.0,
    "A100": 312.0,
}
WARM_UP, PROFILED = 4, 2  # steps
RECORDED_LIMITS = {torch.float64: (1e-6, 1e-6), torch.float32: (5e-5, 1e-3)}  # losses; gradients' norms, relative
PLAIN_LIMITS = 10 * LOSSES, NORMS  # a GPU adds up in other orders than a CPU
BF16_LIMITS = 1e-2, 0.98  # relative difference of losses; least cosine of the gradients
POINTS = 60  # of a loss curve, at most
CURVES = (
    ("retromae", "ours", "bf16"),
    ("retromae", "ours", "fp32"),
    ("retromae", "plain", "bf16"),
    ("dupmae", "ours", "bf16"),
)
NO_TIME = "no time was left"
WHOLE_SECONDS = 35.0  # kept for compiling a whole model


@dataclass(frozen=True)
class Plan:
    """Sizes of everything that is measured.

    Args:
        shapes: of the two kinds of backbone.
        agreement: shape at which the fast paths are compared with the plain ones, by its name in `SHAPES`; and with how
            many texts, enough that losses are made in several chunks.
        steps: timed.
        long: tokens of the longest text.
        compiled: backend of `torch.compile`, and the methods that are tried.
        curve: seconds of each loss curve, at most.
        text: packages and number of their files that are read, None for all.
        small: the encoder that is pre-trained and evaluated, and its longest text, vocabulary and batch.
        pretraining: seconds of that, at most.
        tuning: steps.
    """

    shapes: dict[str, Shape]
    agreement: tuple[str, int]
    steps: int
    long: int
    compiled: tuple[str, tuple[str, ...]]
    curve: float
    text: tuple[tuple[str, ...] | None, int | None]
    small: Shape
    pretraining: float
    tuning: int


BASE = replace(SHAPES["base"], batch=128)
MODERN = {"num_hidden_layers": 22, "intermediate_size": 1152, "vocab_size": 50368}
SMALL = Shape(6, 384, 12, 1536, batch=256, length=128, generator={}, vocab_size=16_384)
TOY = SHAPES["toy"]
WHOLE = Plan(
    shapes={"bert": BASE, "modernbert": replace(BASE, **MODERN)},
    agreement=("tiny", 64),
    steps=12,
    long=8192,
    compiled=("inductor", ("retromae", *(name for name in METHODS if name != "retromae"))),
    curve=30.0,
    text=(None, None),
    small=SMALL,
    pretraining=math.inf,
    tuning=300,
)
TINY = Plan(
    shapes={"bert": TOY, "modernbert": replace(TOY, num_hidden_layers=3)},
    agreement=("toy", TOY.batch),
    steps=2,
    long=192,
    compiled=("aot_eager", ("retromae",)),
    curve=1.5,
    text=(("python",), 60),
    small=replace(TOY, batch=16, length=48, vocab_size=600),
    pretraining=3.0,
    tuning=3,
)


class Report(Protocol):
    """Where rows go; see `gpu.py`."""

    def add(self, stage: str, row: Mapping[str, Any]) -> None:
        """Write a row of a stage."""


class Broken(Exception):
    """The device does not answer any more; whatever is left needs a new process."""


@dataclass
class Bench:
    """A stage while it runs.

    Args:
        until: the time (`time.time`) at which it should be done.
    """

    stage: str
    report: Report
    plan: Plan
    until: float
    device: torch.device

    @property
    def left(self) -> float:
        """Seconds."""
        return self.until - time.time()

    @property
    def cuda(self) -> bool:
        """Whether this is a GPU."""
        return self.device.type == "cuda"

    def wait(self) -> None:
        """Until the device is done."""
        if self.cuda:
            torch.cuda.synchronize()

    def row(self, case: str, measure: Callable[..., Mapping[str, Any]], *given: Any) -> dict[str, Any]:
        """Call `measure` with what is given, or say in a line why that failed; either is written.

        Raises:
            Broken: not even the device answers.
        """
        row: dict[str, Any] = {"case": case}
        started = time.perf_counter()
        try:
            row |= measure(*given) if self.left > 0 else {"error": NO_TIME}
        except Exception as error:
            row["error"] = one_line(error)
        row["seconds"] = round(time.perf_counter() - started, 2)
        self.report.add(self.stage, row)
        gc.collect()
        if self.cuda:
            try:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
            except Exception as error:
                raise Broken(one_line(error)) from error
        return row


def one_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    return f"{type(error).__name__}: {(str(error).strip() or 'nothing is said').splitlines()[0][:300]}"


def describe(device: torch.device) -> dict[str, Any]:
    """Where the numbers come from."""
    names = ("triton", "tokenizers", *(name for name in PACKAGES if name != "hf_dense"))
    found = {name: _version(name) for name in names}
    versions = {"python": platform.python_version(), **{name: found[name] for name in found if found[name]}}
    gpu = None
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        gpu = {
            "name": properties.name,
            "memory_gb": round(properties.total_memory / 1e9, 1),
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "driver": _driver(),
            "cuda": torch.version.cuda,
            "peak_tflops": peak_of(properties.name),
        }
    return {**describe_run(), "seed": SEED, "threads": torch.get_num_threads(), "gpu": gpu, "versions": versions}


def peak_of(device: str) -> float | None:
    """Dense bf16 TFLOP/s of a device that is known here."""
    return next((peak for name, peak in PEAKS.items() if name in device), None)


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


# Correctness.


def check_correctness(bench: Bench) -> None:
    """What released code computed, fast paths against plain ones, bf16 against fp32."""
    for name in RECORDED:
        for dtype in (torch.float64, torch.float32):
            kind = str(dtype).removeprefix("torch.")
            bench.row(f"{name} = recorded, {kind}", compare_recorded, bench, name, dtype)
    for method in METHODS:
        bench.row(f"{method} = plain, fp32; bf16", compare_paths, bench, method)


def compare_recorded(bench: Bench, name: str, dtype: torch.dtype) -> dict[str, Any]:
    """Losses, bottlenecks and gradients against those of the released implementation; see `tests/parity`."""
    model = reference_model(name)
    load_reference(model, recorded_weights(name))
    model.to(bench.device, dtype)
    output = model(moved(recorded_views(name), bench.device))
    output.loss.backward()
    recorded = recorded_results(name)
    expected = reference_losses(recorded)
    differences = [abs(output.losses[loss].item() - value) for loss, value in expected.items()]
    differences.append(abs(output.loss.item() - recorded["expected"]["total"]))
    for theirs, values in recorded["bottleneck"].items():
        found = output.bottlenecks[OUR_BOTTLENECKS.get(theirs, "encoder")].detach().double().cpu()
        differences.append((found - torch.tensor(values, dtype=torch.double)).abs().max().item())
    gradients = {key: parameter.grad for key, parameter in model.named_parameters() if parameter.grad is not None}
    floor, norms = (1e-6 if dtype == torch.float64 else 1e-3), [0.0]
    for theirs, value in recorded["grad_l2_norm_of_total_loss"].items():
        ours = REFERENCES[name].rename(theirs)
        if ours is not None:
            norms.append(abs(gradients[ours].double().norm().item() - value) / max(value, floor))
    return judged({"difference": max(differences), "gradients": max(norms)}, RECORDED_LIMITS[dtype])


def judged(found: dict[str, float], limits: Sequence[float]) -> dict[str, Any]:
    """Differences, what they may be, and whether they are (NaN is not)."""
    agree = all(value <= limit for value, limit in zip(found.values(), limits, strict=True))
    return {**found, "limits": [*limits], "agrees": agree}


def compare_paths(bench: Bench, method: str) -> dict[str, Any]:
    """Our loss and gradients on the same weights and views: against the plain step's, and in bf16 against fp32."""
    name, batch = bench.plan.agreement
    case = Case(method, name, "real", "fp32")
    shape = replace(case.sizes, batch=batch, rows=4 * batch)
    model = make_model(case)
    (views,) = make_views(model.config, shape, make_rows(shape, "real"), 1)
    views = moved(views, bench.device)
    ours = model.to(bench.device).eval()
    plain = PlainPretraining(ours).to(bench.device).eval()
    loss, gradients = loss_and_gradients(lambda: ours(views).loss, ours)
    plain_loss, plain_gradients = loss_and_gradients(lambda: plain(views), plain)
    with torch.autocast(bench.device.type, torch.bfloat16):
        half_loss, half_gradients = loss_and_gradients(lambda: ours(views).loss, ours)
    norm, plain_norm = gradients.norm().item(), plain_gradients.norm().item()
    fast = judged(
        {"difference": abs(loss / plain_loss - 1), "gradients": abs(norm / plain_norm - 1)},
        PLAIN_LIMITS,
    )
    cosine = torch.cosine_similarity(gradients, half_gradients, dim=0).item()
    difference, least = BF16_LIMITS
    half = {"bf16_difference": abs(half_loss / loss - 1), "bf16_cosine": cosine, "bf16_limits": [difference, least]}
    return {
        **{"loss": loss, "positions": int(views[next(iter(model.config.encoder_specs))]["attention_mask"].sum())},
        **fast,
        **half,
        "agrees": fast["agrees"] and half["bf16_difference"] <= difference and cosine >= least,
    }


def loss_and_gradients(compute: Callable[[], Tensor], model: nn.Module) -> tuple[float, Tensor]:
    """A loss and all gradients in a row, in float64; the model has none left."""
    loss = compute()
    loss.backward()
    gradients = [parameter.grad.double().flatten() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    return loss.item(), torch.cat(gradients)


def moved(views: Views, device: torch.device) -> Views:
    """Views on a device."""
    return {
        name: {key: tensor.to(device, non_blocking=True) for key, tensor in view.items()}
        for name, view in views.items()
    }


def moved_batch(batch: Batch, device: torch.device) -> Batch:
    """A batch's views and their plan on a device."""
    return {"views": moved(batch["views"], device), "plan": batch["plan"].to(device, non_blocking=True)}


# Speed.


@dataclass
class Prepared:
    """A model with optimizer and batches on the device.

    Attributes:
        tokens: that the encoders read, by batch.
        operations: that a step on a batch needs.
    """

    model: nn.Module
    loss: Callable[[Batch], Tensor]
    batches: list[Batch]
    tokens: list[int]
    operations: list[float]
    precision: str = "bf16"
    rate: float = 1e-5

    def __post_init__(self) -> None:
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=self.rate, fused=True)
        self.device = trained[0].device

    def step(self, at: int) -> Tensor:
        """Train on a batch; its loss, which nobody has waited for."""
        return self.train(self.batches[at % len(self.batches)])

    def train(self, batch: Batch) -> Tensor:
        """Train on a batch."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def build_model(method: str, kind: str, shape: Shape, device: torch.device) -> BottleneckForPreTraining:
    """A method's model on the device, with its random first weights."""
    classes = METHODS[method]
    changes = {}
    if classes.config.has_generator:
        changes["generator_config"] = {"model_type": "electra", "vocab_size": shape.vocab_size, **shape.generator}
    backbone: dict[str, Any] = {"model_type": kind, "max_position_embeddings": max(512, shape.length), **shape.sizes}
    if kind == "modernbert":
        special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
        backbone |= {**special, "max_position_embeddings": max(8192, shape.length)}
    torch.manual_seed(SEED)
    with torch.device(device):
        model = classes.pretraining(classes.config(backbone_config=backbone, **changes))
    return model.train()


def prepare(
    bench: Bench, method: str, kind: str, rows: Sequence[Mapping[str, Any]], shape: Shape, size: int
) -> Prepared:
    """A model, and `size` batches of its views."""
    model = build_model(method, kind, shape, bench.device)
    views = make_views(model.config, shape, rows, size)
    tokens = [encoder_tokens(model.config, part) for part in views]
    operations = [needed_operations(model.config, part) for part in views]
    batches = [moved_batch({"views": part, "plan": model.plan(part)}, bench.device) for part in views]
    return Prepared(model, lambda batch: model(**batch).loss, batches, tokens, operations)


def encoder_tokens(config: BottleneckConfig, views: Views) -> int:
    """Tokens that the encoders read, padding not counted."""
    return sum(int(views[name]["attention_mask"].sum()) for name in config.encoder_specs)


def measure_speed(bench: Bench) -> None:
    """Every method at BERT-base and ModernBERT-base shapes, in bf16, without `torch.compile`."""
    for kind, shape in bench.plan.shapes.items():
        rows = make_rows(shape, "real")
        for method in METHODS:
            bench.row(f"{method} {kind}", measure_method, bench, method, kind, rows, shape)


def measure_method(
    bench: Bench, method: str, kind: str, rows: Sequence[Mapping[str, Any]], shape: Shape
) -> dict[str, Any]:
    """A row of the speeds; on BERT with the plain step's beside it."""
    side = prepare(bench, method, kind, rows, shape, WARM_UP + bench.plan.steps)
    found = time_steps(bench, side)
    found |= profile_steps(bench, side, found["step_seconds"])
    if kind == "bert":
        found["plain"] = measure_plain(bench, side)
        if "step_seconds" in found["plain"]:
            found["speedup"] = found["plain"]["step_seconds"] / found["step_seconds"]
    return found


def measure_plain(bench: Bench, side: Prepared) -> dict[str, Any]:
    """The same of a plain step on the same batches, or why there is none (it needs more memory)."""
    try:
        model = PlainPretraining(side.model).to(bench.device)  # type: ignore[arg-type]
        side.model.to("cpu")
        side.optimizer.state.clear()
        return time_steps(bench, replace(side, model=model, loss=lambda batch: model(batch["views"])))
    except torch.OutOfMemoryError as error:
        return {"error": one_line(error)}


def time_steps(bench: Bench, side: Prepared) -> dict[str, Any]:
    """Tokens a second over the timed steps, MFU, and the peak of memory; nothing waits between steps."""
    steps = bench.plan.steps
    for at in range(WARM_UP):
        side.step(at)
    bench.wait()
    if bench.cuda:
        torch.cuda.reset_peak_memory_stats()
    marks = [_mark(bench)]
    started = time.perf_counter()
    for at in range(WARM_UP, WARM_UP + steps):
        side.step(at)
        marks.append(_mark(bench))
    bench.wait()
    seconds = time.perf_counter() - started
    used = [at % len(side.batches) for at in range(WARM_UP, WARM_UP + steps)]
    each = [_between(before, after) for before, after in pairwise(marks)]
    found = {
        "step_seconds": seconds / steps,
        "quartiles": np.quantile(each, (0.25, 0.5, 0.75)).tolist(),
        "tokens": statistics.mean(side.tokens[at] for at in used),
        "tokens_per_second": sum(side.tokens[at] for at in used) / seconds,
        "tflop_per_step": statistics.mean(side.operations[at] for at in used) / 1e12,
        "mfu": None,
        "peak_gb": None,
    }
    if bench.cuda:
        peak = peak_of(torch.cuda.get_device_name())
        found["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
        if peak and side.precision == "bf16":
            found["mfu"] = sum(side.operations[at] for at in used) / seconds / (peak * 1e12)
    return found


def _mark(bench: Bench) -> Any:
    if not bench.cuda:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between(before: Any, after: Any) -> float:
    return after - before if isinstance(before, float) else before.elapsed_time(after) / 1e3


def profile_steps(bench: Bench, side: Prepared, step_seconds: float) -> dict[str, Any]:
    """What the profiler sees of a step: synchronisations, copies, kernels, and the share of the time the GPU works.

    Where steps synchronise is told by CUDA's own debug mode, which knows the line; on a CPU nothing of this is known.
    """
    if not bench.cuda:
        return {"synchronisations": None}
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profiler:
        for at in range(PROFILED):
            side.step(at)
        bench.wait()
    calls: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    for event in profiler.events():
        if getattr(event, "is_user_annotation", False):
            continue
        calls[event.name] += 1
        if event.device_type == DeviceType.CUDA:
            kernels[event.name] += event.time_range.elapsed_us() / 1e6

    def per_step(*names: str) -> float:
        return sum(number for name, number in calls.items() if name.startswith(names)) / PROFILED

    return {
        "synchronisations": per_step("cudaStreamSynchronize", "cudaEventSynchronize"),
        "copies_to_host": per_step("Memcpy DtoH"),
        "copies_to_device": per_step("Memcpy HtoD"),
        "launches": per_step("cudaLaunchKernel", "cuLaunchKernel"),
        "gpu_busy": sum(kernels.values()) / PROFILED / step_seconds,
        "kernels": {name[:100]: taken / PROFILED for name, taken in kernels.most_common(8)},
        "synchronises_at": places_of_synchronisation(side),
    }


def places_of_synchronisation(side: Prepared) -> dict[str, int]:
    """How often a step waits for the GPU, by file and line of the Python code that made it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            side.step(0)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits = [warning for warning in caught if "synchronizing CUDA operation" in str(warning.message)]
    return dict(Counter(f"{'/'.join(Path(wait.filename).parts[-2:])}:{wait.lineno}" for wait in waits).most_common())


def measure_long(bench: Bench) -> None:
    """RetroMAE on ModernBERT with texts of 8,192 tokens, with and without gradient checkpointing."""
    shape = replace(bench.plan.shapes["modernbert"], batch=2, length=bench.plan.long, rows=4)
    rows = make_rows(shape, "full")

    def measure(checkpointing: bool) -> dict[str, Any]:
        side = prepare(bench, "retromae", "modernbert", rows, shape, size=2)
        if checkpointing:
            assert isinstance(side.model, BottleneckForPreTraining)
            getattr(side.model, "activation_checkpointing_enable", side.model.gradient_checkpointing_enable)()
        found = time_steps(bench, side)
        return found | profile_steps(bench, side, found["step_seconds"])

    for checkpointing in (False, True):
        how = ", checkpointing" if checkpointing else ""
        bench.row(f"retromae modernbert, {shape.batch} x {shape.length} tokens{how}", measure, checkpointing)


def measure_compiled(bench: Bench) -> None:
    """`torch.compile` of the feed-forward parts, for as many methods as there is time; then of a whole RetroMAE.

    The whole model is one graph, but another one for every pattern of text lengths. Compiling it takes minutes, so that
    its steps are rows of their own.
    """
    backend, methods = bench.plan.compiled
    corpora = {kind: make_rows(shape, "real") for kind, shape in bench.plan.shapes.items()}
    for method, kind in product(methods, corpora):
        case = f"{method} {kind}, feed-forward parts"
        if not bench.cuda or bench.left > WHOLE_SECONDS:
            bench.row(case, compile_parts, bench, method, kind, corpora[kind], backend)
    if not bench.cuda:
        return
    side, state = prepare_whole(bench, corpora["bert"], backend)
    for step in range(1, WARM_UP + 1):
        if "error" in bench.row(f"retromae bert, whole model, step {step}", compile_step, bench, side, state, step):
            return
    bench.row("retromae bert, whole model", time_steps, bench, side)


def compile_parts(
    bench: Bench, method: str, kind: str, rows: Sequence[Mapping[str, Any]], backend: str
) -> dict[str, Any]:
    """Speed with and without, what the loss differs by, and how often the compiler began anew."""
    shape = bench.plan.shapes[kind]
    side = prepare(bench, method, kind, rows, shape, WARM_UP + bench.plan.steps)
    plain = time_steps(bench, side)
    begun, written = compilations(), Block.expand
    uncompiled = loss_without_dropout(side)
    Block.expand = torch.compile(written, dynamic=True, backend=backend)  # type: ignore[method-assign]
    try:
        started = time.perf_counter()
        side.step(0)
        bench.wait()
        first = time.perf_counter() - started
        found = time_steps(bench, side)
        side.model.load_state_dict(uncompiled.weights)
        difference = abs(loss_without_dropout(side).loss / uncompiled.loss - 1)
    finally:
        Block.expand = written  # type: ignore[method-assign]
    return {
        **found,
        "without_compile": plain,
        "speedup": plain["step_seconds"] / found["step_seconds"],
        "first_step_seconds": first,
        "compiled": {name: number - begun[name] for name, number in compilations().items()},
        "difference": difference,
        "agrees": difference <= BF16_LIMITS[0],
    }


class Evaluated(NamedTuple):
    """A loss in evaluation mode, and the weights that gave it."""

    loss: float
    weights: dict[str, Tensor]


@torch.no_grad()
def loss_without_dropout(side: Prepared) -> Evaluated:
    """Of the first batch, in bf16."""
    side.model.eval()
    with torch.autocast(side.device.type, torch.bfloat16):
        loss = float(side.loss(side.batches[0]))
    side.model.train()
    return Evaluated(loss, {name: tensor.clone() for name, tensor in side.model.state_dict().items()})


def compilations() -> dict[str, int]:
    """What the compiler has done in this process so far."""
    from torch._dynamo.utils import counters, get_compilation_metrics

    return {
        "graphs": counters["stats"]["unique_graphs"],
        "graph_breaks": sum(counters["graph_break"].values()),
        "compilations": len(get_compilation_metrics()),
    }


def prepare_whole(bench: Bench, rows: Sequence[Mapping[str, Any]], backend: str) -> tuple[Prepared, dict[str, int]]:
    """RetroMAE on BERT, compiled as a whole, and what the compiler had done before."""
    shape = bench.plan.shapes["bert"]
    side = prepare(bench, "retromae", "bert", rows, shape, WARM_UP + bench.plan.steps)
    torch._dynamo.reset()
    compiled = torch.compile(side.model, dynamic=True, backend=backend)
    return replace(side, loss=lambda batch: compiled(**batch).loss), compilations()


def compile_step(bench: Bench, side: Prepared, begun: Mapping[str, int], step: int) -> dict[str, Any]:
    """A step of a compiled model, with what the compiler has done up to now."""
    started = time.perf_counter()
    side.step(step - 1)
    bench.wait()
    done = {name: number - begun[name] for name, number in compilations().items()}
    return {"step_seconds": time.perf_counter() - started, "compiled": done}


# Training.


class Drawn:
    """Rows by (epoch, number), so that one loader goes through all epochs."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: tuple[int, int]) -> tuple[int, Mapping[str, Any]]:
        return at[0], self.rows[at[1]]


class Collate:
    """Batches of (epoch, row) to views and the number of tokens that the encoders read."""

    def __init__(self, collator: ViewCollator, config: BottleneckConfig) -> None:
        self.collator = collator
        self.config = config

    def __call__(self, drawn: Sequence[tuple[int, Mapping[str, Any]]]) -> tuple[Batch, int]:
        """A batch, all of one epoch."""
        self.collator.epoch = drawn[0][0]
        batch = self.collator([row for _, row in drawn])
        return batch, encoder_tokens(self.config, batch["views"])


class Batches:
    """The batches of all epochs, in the order of the trainer's sampler; a shorter last one is left out."""

    def __init__(self, lengths: Sequence[int], size: int) -> None:
        self.sampler = PassageSampler(lengths, size, SEED)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for epoch in count():
            order, size = self.sampler.order(epoch), self.sampler.batch
            yield from ([(epoch, row) for row in order[at : at + size]] for at in range(0, len(order) - size + 1, size))


class Corpus(NamedTuple):
    """Text, a tokenizer that was trained on it, and the token ids of its passages."""

    text: Text
    tokenizer: PreTrainedTokenizerBase
    passages: list[Tensor]


@cache
def corpus_of(asked: tuple[tuple[str, ...] | None, int | None], words: int) -> Corpus:
    """The text in reach, with a tokenizer of so many tokens that is trained on it."""
    text = read_text(*asked, processes=1 if asked[1] else _cores())
    tokenizer = train_tokenizer(text.passages, words, max_length=512)
    return Corpus(text, tokenizer, tokenize(tokenizer, text.passages, 512, special=False))


def _cores() -> int:
    return min(16, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def train_on_text(
    bench: Bench, side: Prepared, passages: Sequence[Tensor], shape: Shape, vocabulary: Vocabulary, seconds: float
) -> dict[str, Any]:
    """Train on passages for so many seconds: warm-up over a twentieth of them, then down to nothing.

    Returns:
        The curve, as means of the loss over neighbouring steps; how fast it went, and the share of the time that passed
        in waiting for batches.
    """
    config = side.model.config
    rows = [{"text": ids.numpy().astype(np.int32)} for ids in passages]
    collate = Collate(ViewCollator(config, vocabulary, shape.length, SEED), config)
    size = min(shape.batch, len(rows))
    workers = max(_cores() - 1, 1) if bench.cuda else 0
    loader = DataLoader(
        Drawn(rows),  # type: ignore[arg-type]
        batch_sampler=Batches([len(row["text"]) for row in rows], size),  # type: ignore[arg-type]
        collate_fn=collate,
        num_workers=workers,
        pin_memory=bench.cuda,
    )
    source = iter(loader)
    losses, times, tokens, waited = [], [], 0, 0.0
    for group in side.optimizer.param_groups:
        group["lr"] = 0.0
    side.train(moved_batch(next(source)[0], bench.device))  # starts the workers and loads the kernels
    bench.wait()
    started = time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds:
        share = passed / seconds
        for group in side.optimizer.param_groups:
            group["lr"] = side.rate * min(20 * share + 1e-3, (1 - share) / 0.95)
        asked = time.perf_counter()
        batch, read = next(source)
        waited += time.perf_counter() - asked
        losses.append(side.train(moved_batch(batch, bench.device)))
        tokens += read
        times.append(passed)
        if len(losses) % 10 == 0:
            bench.wait()  # so that the clock is that of what is done
    bench.wait()
    taken = time.perf_counter() - started
    curve = torch.stack(losses).float().cpu().numpy()
    parts = np.array_split(np.arange(len(curve)), min(POINTS, len(curve)))
    return {
        "steps": len(curve),
        "tokens_per_second": tokens / taken,
        "step_seconds": taken / len(curve),
        "waiting": waited / taken,
        "epochs": len(curve) * size / len(rows),
        "first_loss": float(curve[parts[0]].mean()),
        "last_loss": float(curve[parts[-1]].mean()),
        "finite": bool(np.isfinite(curve).all()),
        "curve": [
            [int(part[-1]) + 1, round(times[part[-1]], 2), round(float(curve[part].mean()), 4)] for part in parts
        ],
        "agrees": bool(np.isfinite(curve).all()),
    }


def measure_curves(bench: Bench) -> None:
    """Loss curves at the base shape on the text in reach, from one start and over the same batches."""
    shape = bench.plan.shapes["bert"]

    def prepared() -> dict[str, Any]:
        corpus = corpus_of(bench.plan.text, bench.plan.small.vocab_size)
        text, tokens = corpus.text, sum(map(len, corpus.passages))
        return {
            **{"passages": len(text.passages), "tokens": tokens, "pairs": len(text.pairs)},
            **{"queries": len(text.queries), "pool": len(text.pool), "packages": text.packages, "digest": text.digest},
        }

    def run(method: str, side: str, precision: str, seconds: float) -> dict[str, Any]:
        corpus = corpus_of(bench.plan.text, bench.plan.small.vocab_size)
        vocabulary = Vocabulary.of(corpus.tokenizer)
        sized = replace(shape, vocab_size=vocabulary.size)
        model: nn.Module = build_model(method, "bert", sized, bench.device)
        if side == "plain":
            model = PlainPretraining(model).to(bench.device)  # type: ignore[arg-type]
        loss = (lambda batch: model(batch["views"])) if side == "plain" else lambda batch: model(**batch).loss
        training = Prepared(model, loss, [], [], [], precision, rate=1e-4)
        torch.manual_seed(SEED)
        return train_on_text(bench, training, corpus.passages, sized, vocabulary, seconds)

    if "error" in bench.row("text", prepared):
        return
    for number, names in enumerate(CURVES):
        seconds = min(bench.plan.curve, bench.left / (len(CURVES) - number) - 4)
        bench.row(" ".join(names), run, *names, max(seconds, 1.0))


def train_small(bench: Bench) -> None:
    """A small encoder from nothing: pre-trained (RetroMAE), evaluated, and tuned in comparison with one that is not."""
    plan, shape = bench.plan, bench.plan.small
    found: dict[str, Any] = {}

    def pretrain() -> dict[str, Any]:
        text, tokenizer, passages = corpus_of(plan.text, shape.vocab_size)
        vocabulary = Vocabulary.of(tokenizer)
        sized = replace(shape, vocab_size=vocabulary.size)
        model = build_model("retromae", "bert", sized, bench.device)
        found.update(text=text, tokenizer=tokenizer, random=deepcopy(model.encoder), encoder=model.encoder)
        side = Prepared(model, lambda batch: model(**batch).loss, [], [], [], rate=5e-4)
        seconds = min(plan.pretraining, max(0.65 * bench.left, 1.0))
        return train_on_text(bench, side, passages, sized, vocabulary, seconds)

    def tuned(start: str) -> dict[str, Any]:
        tokenizer, length = found["tokenizer"], shape.length
        sides = [tokenize(tokenizer, texts, length) for texts in zip(*found["text"].pairs, strict=True)]
        encoder = deepcopy(found[start])
        tune(encoder, [*zip(*sides, strict=True)], plan.tuning, size=128, rate=1e-4, seed=SEED)
        return evaluate(encoder, found["text"], tokenizer, length)

    sizes = f"retromae {shape.num_hidden_layers} x {shape.hidden_size}"
    if "error" in bench.row(sizes, pretrain):
        return
    text, tokenizer = found["text"], found["tokenizer"]
    bench.row("BM25", bm25, text, tokenizer, shape.length, bench.device)
    for start, name in (("random", "random weights"), ("encoder", "pre-trained")):
        bench.row(name, evaluate, found[start], text, tokenizer, shape.length)
    for start, name in (("random", "random weights"), ("encoder", "pre-trained")):
        bench.row(f"{name}, {plan.tuning} steps of tuning", tuned, start)


STAGES: dict[str, Callable[[Bench], None]] = {
    "correctness": check_correctness,
    "speed": measure_speed,
    "long": measure_long,
    "curves": measure_curves,
    "small": train_small,
    "compile": measure_compiled,
}
