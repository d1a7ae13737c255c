"""The verb `hf-dense sweep`."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from hf_dense.commands.options import add_config, add_options, build_options, given_flags, introduce, read_values
from hf_dense.experiments.sweep_options import SweepOptions

SUMMARY: Final = "See how retrieval goes with masking, pre-training steps or training queries."
_INTRODUCTION: Final = """\
Pre-train an encoder for every value of what is varied (once, where steps or queries are), fine-tune and measure all in
the same way, and write a table, a picture and everything behind them. A sweep that was interrupted goes on.

  hf-dense sweep --sweep masking --values 0.15 0.3 0.5 --method retromae --collection DIR --out build/masking
  hf-dense sweep --sweep steps --values 0 1000 2000 --method retromae --collection DIR --out build/steps
  hf-dense sweep --sweep fraction --values 0.05 0.2 1 --model build/retromae --collection DIR --out build/few
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `hf-dense sweep`."""
    introduce(parser, _INTRODUCTION)
    add_config(parser)
    add_options(parser, SweepOptions)
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one run, in a process of its own


def run(arguments: argparse.Namespace) -> None:
    """Run the sweep, or one of its runs."""
    values = read_values(arguments, SweepOptions)
    options = build_options(SweepOptions, values, given_flags(arguments, SweepOptions))
    from hf_dense.experiments.sweep import run_one, run_sweep
    from hf_dense.experiments.sweep_results import format_rows

    if arguments.only:
        run_one(options, arguments.only)
        return
    rows = run_sweep(options, [sys.executable, "-m", "hf_dense.commands.main", *arguments.words])
    print(f"{format_rows(rows, options)}\n\nWritten: {options.out}/sweep.md, sweep.png, sweep.json")
