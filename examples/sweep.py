"""How does retrieval go with the share of masked tokens, with pre-training steps, with training queries?

python examples/sweep.py --sweep masking --values 0.15 0.3 0.5 0.7 0.9 --method retromae --part decoder \
    --dataset DATASET --output_dir build/masking
python examples/sweep.py --sweep steps --values 0 1000 2000 4000 --method retromae ...
python examples/sweep.py --sweep fraction --values 0.05 0.1 0.2 0.5 1 --encoder build/retromae ...

Pre-trains (once, where steps or queries are varied), fine-tunes each encoder in the same way, evaluates it, and writes
sweep.md, sweep.png and sweep.json. A run that was interrupted goes on where it stopped.
"""

import argparse
import sys
from dataclasses import dataclass, field

from hf_dense.commands.options import parse_options
from hf_dense.errors import run_main
from hf_dense.experiments.sweep import run_one, run_sweep
from hf_dense.experiments.sweep_plan import SweepOptions
from hf_dense.experiments.sweep_results import format_rows


@dataclass
class _Part:
    only: str | None = field(default=None, metadata={"help": argparse.SUPPRESS})  # one run, in a process of its own


def main() -> None:
    options, part = parse_options(SweepOptions, _Part)
    if part.only:
        run_one(options, part.only)
        return
    rows = run_sweep(options, [sys.executable, *sys.argv])
    print(f"{format_rows(rows, options)}\n\nWritten: {options.output_dir}/sweep.md, sweep.png, sweep.json")


if __name__ == "__main__":
    run_main(main)
