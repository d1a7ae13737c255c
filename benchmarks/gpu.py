"""Everything that wants a GPU, in one command of less than nine minutes: is it right there, how fast, does it train?

    python benchmarks/gpu.py [--minutes 9] [--stages correctness speed] [--output results.json]
    python benchmarks/gpu.py --tiny  # all of it at toy size, on the CPU

It needs torch, transformers, tokenizers and safetensors, no network, and no file but those of the repository and of the
Python environment. Stages, each with its share of the time:

- `correctness`: losses, bottlenecks and gradients that released implementations gave (tests/parity), in float64 and
  float32; every method's step against the plain one of `plain_pretraining.py`; bf16 (autocast) against fp32.
- `speed`: every method at the shapes of BERT-base and ModernBERT-base, 128 texts of up to 144 tokens, bf16, AdamW
  fused; batches are made beforehand and lie on the device. Tokens a second over twelve steps between which nothing
  waits; MFU, the operations that a method needs on its real tokens (`needed_operations.py`) as a share of the device's
  dense bf16 peak; the peak of allocated memory; by the profiler the synchronisations and launches of a step and the
  share of the time that the GPU works; by CUDA's debug mode the lines that synchronise. On BERT the plain step beside.
- `long`: RetroMAE on ModernBERT with texts of 8,192 tokens.
- `curves`: losses over two minutes in all, BERT-base on the text in reach: ours in bf16 and fp32 and the plain step,
  from the same weights over the same batches.
- `small`: a 6 x 384 encoder pre-trained on that text, nDCG@10 and MRR@10 on modules held out, before and after a short
  fine-tuning, beside random weights and BM25.
- `compile`: `torch.compile` with changing shapes, of the layers' feed-forward parts for every method, then of one whole
  model, with the number of graphs, graph breaks and compilations. (`--tiny` leaves the whole model out: every
  pattern of text lengths is compiled anew, for minutes.)

A process of its own does the work, and is replaced when it dies, hangs or loses the device; what failed is recorded in
a line and the rest goes on. The results, one JSON, are written row by row. The exit code is 1 if anything failed or
disagreed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # so that nothing has to be installed
sys.path.append(str(ROOT / "tests"))

from hf_dense.storage.files import write_text  # noqa: E402
from hf_dense.storage.markdown import markdown_table  # noqa: E402

SHARES = {"correctness": 0.12, "speed": 0.29, "long": 0.07, "curves": 0.25, "small": 0.14, "compile": 0.13}
START, GRACE = 5.0, 15.0  # seconds: before the first stage, and after a stage's end before it is stopped
NO_GPU = 4  # exit code of the process that does the work
TINY_MINUTES = 20.0  # so slow a machine may be; at toy size nothing uses up its share


class Report:
    """The results as they grow, in one file that is complete at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data: dict[str, Any] = {"stages": {}}
        if path.is_file():
            self.data = json.loads(path.read_text(encoding="utf-8"))

    def write(self, **values: Any) -> None:
        """Set some values and write the file."""
        self.data |= values
        write_text(self.path, json.dumps(self.data, indent=1) + "\n")

    def start(self, stage: str, until: float) -> None:
        """A stage begins that should end at a time."""
        self.data["stages"][stage] = {"rows": [], "started": time.time()}
        self.write(running={"stage": stage, "until": until})

    def add(self, stage: str, row: Mapping[str, Any]) -> None:
        """Write a row of a stage."""
        self.data["stages"][stage]["rows"].append(dict(row))
        self.write()
        print(f"{stage}: {row['case']}: {told(row)} ({row['seconds']:.1f} s)", flush=True)

    def end(self, stage: str, error: str | None = None) -> None:
        """A stage is over, or has failed."""
        part = self.data["stages"].setdefault(stage, {"rows": [], "started": time.time()})
        part |= {"seconds": round(time.time() - part.pop("started"), 1), "error": error}
        self.write(running=None)
        if error:
            print(f"{stage}: {error}", flush=True)


def told(row: Mapping[str, Any]) -> str:
    """What a row says beside its numbers of speed, in words."""
    if row.get("error"):
        return f"failed: {row['error']}"
    words = [] if row.get("agrees", True) else ["DISAGREES"]
    names = {"difference": "differs by", "gradients": "gradients by", "bf16_difference": "bf16 by"}
    words += [f"{name} {row[key]:.0e}" for key, name in names.items() if key in row]
    words += [f"cosine {row['bf16_cosine']:.3f}"] if "bf16_cosine" in row else []
    if "speedup" in row:
        words.append(f"{row['speedup']:.2f} x as fast as {'without' if 'without_compile' in row else 'plain'}")
    if "compiled" in row:
        words.append(", ".join(f"{number} {name.replace('_', ' ')}" for name, number in row["compiled"].items()))
    if "steps" in row:
        words.append(f"loss {row['first_loss']:.2f} to {row['last_loss']:.2f} in {row['steps']:,} steps")
        words.append(f"{row['waiting']:.0%} of the time without a batch")
    if "passages" in row:
        words.append(f"{row['passages']:,} passages, {row['tokens']:,} tokens, {row['queries']:,} queries held out")
    if "ndcg@10" in row:
        words.append(f"nDCG@10 {row['ndcg@10']:.3f}, MRR@10 {row['mrr@10']:.3f}")
    if "whitened_ndcg@10" in row:
        words.append(f"whitened {row['whitened_ndcg@10']:.3f}")
    if "tokens_per_second" in row:
        words.append(f"{row['tokens_per_second']:,.0f} tokens/s")
    return ", ".join(words)


def table(data: Mapping[str, Any]) -> str:
    """All rows in Markdown."""
    head = ["stage", "case", "tokens/s", "ms/step", "MFU", "peak GB", "syncs/step", "launches", "GPU busy", "finding"]
    lines = []
    for stage, part in data["stages"].items():
        for row in part["rows"]:
            told_here = told({key: value for key, value in row.items() if key != "tokens_per_second"})
            cells = [
                cell(row.get("tokens_per_second"), ",.0f"),
                cell(row.get("step_seconds"), ".1f", 1e3),
                cell(row.get("mfu"), ".1%"),
                cell(row.get("peak_gb"), ".1f"),
                cell(row.get("synchronisations"), ".0f"),
                cell(row.get("launches"), ",.0f"),
                cell(row.get("gpu_busy"), ".0%"),
            ]
            lines.append([stage, row["case"], *cells, told_here])
        if part.get("error"):
            lines.append([stage, "", *[""] * 7, f"failed: {part['error']}"])
    return markdown_table(head, lines, numbers=range(2, 9))


def cell(value: float | None, form: str, scale: float = 1.0) -> str:
    """A number, or nothing."""
    return "" if value is None else format(value * scale, form)


def failures(data: Mapping[str, Any]) -> list[str]:
    """What failed or disagreed."""
    found = [f"{stage}: {part['error']}" for stage, part in data["stages"].items() if part.get("error")]
    rows = [(stage, row) for stage, part in data["stages"].items() for row in part["rows"]]
    return found + [f"{s}: {r['case']}" for s, r in rows if r.get("error") or not r.get("agrees", True)]


def work(options: argparse.Namespace) -> None:
    """What the process that does the work does: the stages that are asked for, one after the other."""
    import torch

    if not options.tiny and not torch.cuda.is_available():
        os._exit(NO_GPU)  # before results of earlier runs are touched
    if options.fresh:
        options.output.unlink(missing_ok=True)
    report = Report(options.output)
    try:
        import gpu_stages as stages

        device = torch.device("cpu" if options.tiny else "cuda")
        torch.zeros(1, device=device)
    except Exception as error:  # nothing can be done: said once for every stage
        traceback.print_exc()
        for name in options.stages:
            report.end(name, f"{type(error).__name__}: {str(error).splitlines()[0]}")
        return
    if "provenance" not in report.data:
        report.write(provenance=stages.describe(device) | {"tiny": options.tiny, "minutes": options.minutes})
    plan = stages.TINY if options.tiny else stages.WHOLE
    for name, until in zip(options.stages, options.until, strict=True):
        report.start(name, until)
        error = None
        try:
            stages.STAGES[name](stages.Bench(name, report, plan, until, device))
        except stages.Broken as broken:
            report.end(name, f"the device was lost: {broken}")
            os._exit(3)
        except Exception as failed:
            error = stages.one_line(failed)
        report.end(name, error)


def supervise(options: argparse.Namespace, started: float) -> None:
    """Run all stages in a process, and those that are left in another one where it ends early or hangs."""
    total, asked = sum(SHARES[name] for name in options.stages), list(options.stages)
    budget = 60 * options.minutes - START - GRACE
    ends, passed = {}, started + START
    for name in asked:
        passed += budget * SHARES[name] / total
        ends[name] = passed
    while asked:
        command = [sys.executable, __file__, "--worker", "--output", str(options.output), "--stages", *asked]
        command += ["--until", *(str(ends[name]) for name in asked), "--minutes", str(options.minutes)]
        command += [f"--{name}" for name in ("tiny", "fresh") if getattr(options, name)]
        process = subprocess.Popen(command, process_group=0)
        reason = watch(process, options.output, ends)
        if process.returncode == NO_GPU:
            sys.exit("PyTorch finds no GPU here; --tiny runs all of it at toy size on the CPU.")
        if options.output.is_file() and options.output.stat().st_mtime < started:
            options.output.unlink()
        options.fresh = False
        report = Report(options.output)
        done = [name for name in asked if "seconds" in report.data["stages"].get(name, {})]
        asked = asked[len(done) :]
        running = (report.data.get("running") or {}).get("stage")
        if asked and (running or not done):
            report.end(asked.pop(0), reason)


def watch(process: subprocess.Popen[bytes], output: Path, ends: Mapping[str, float]) -> str:
    """Wait until the process has ended, or end it where a stage takes too long; why it ended."""
    try:
        while process.poll() is None:
            time.sleep(0.25)
            running = (Report(output).data if output.is_file() else {}).get("running")
            until = running["until"] if running else max(ends.values())
            if time.time() > until + GRACE:
                return "stopped: it took longer than its share of the time"
        return f"the process ended with exit code {process.returncode}"
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and whatever it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> None:
    started = time.time()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0, help="that all of it may take (default: 9)")
    parser.add_argument("--stages", nargs="+", choices=SHARES, default=[*SHARES])
    parser.add_argument("--tiny", action="store_true", help="everything at toy size, on the CPU")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/gpu.json, with --tiny one in build/")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--fresh", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--until", nargs="+", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ |= {"TOKENIZERS_PARALLELISM": "false" if options.tiny else "true", "HF_HUB_OFFLINE": "1"}
    if options.worker:
        work(options)
        return
    if options.tiny:
        options.minutes = TINY_MINUTES
        options.output = options.output or ROOT / "build" / "gpu_tiny.json"
    options.output = options.output or ROOT / "benchmarks" / "results" / "gpu.json"
    options.fresh = True
    supervise(options, started)
    report = Report(options.output)
    report.write(seconds=round(time.time() - started, 1), failures=failures(report.data))
    print(f"\n{table(report.data)}\n\n{report.data['seconds']:.0f} s; written to {options.output}")
    if report.data["failures"]:
        sys.exit("Failed or disagreed: " + "; ".join(report.data["failures"]))


if __name__ == "__main__":
    main()
