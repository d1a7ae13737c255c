"""The verb `hf-dense glue`."""

from __future__ import annotations

import argparse
from pathlib import Path

from hf_dense.commands.options import read_number
from hf_dense.commands.output import add_output_arguments, losses_aside, output_of

SUMMARY = "Fine-tune and measure an encoder on GLUE."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    parser.add_argument("model", metavar="MODEL", help="encoder or pre-training checkpoint: a directory or Hub id")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="of cola, mrpc, stsb, qqp, mnli, qnli, sst2 (all)")
    parser.add_argument("--data_dir", metavar="DIR", help="<task>/train.parquet ... (default: the Hub's)")
    parser.add_argument(
        "--learning_rates",
        nargs="+",
        type=read_number,
        default=[2e-5],
        metavar="RATE",
        help="each is tried, the best on the validation set reported; BERT's are 5e-5 4e-5 3e-5 2e-5 (default: 2e-5)",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="figures are means over them (default: 0)")
    parser.add_argument("--max_length", type=int, default=128, help="tokens of an example (default: 128)")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Measure the encoder on the tasks that are not there yet, and print the table.

    Raises:
        InputError: what `evaluate_glue` raises.
    """
    from hf_dense.evaluation.glue import TASKS, evaluate_glue
    from hf_dense.evaluation.tables import format_glue

    with losses_aside():
        result = evaluate_glue(
            arguments.model,
            arguments.tasks or list(TASKS),
            name=Path(arguments.model).name,
            out=output_of(arguments),
            data_dir=arguments.data_dir,
            max_length=arguments.max_length,
            learning_rates=arguments.learning_rates,
            seeds=arguments.seeds,
        )
    print(format_glue(result))
