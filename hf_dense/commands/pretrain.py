"""The verb `hf-dense pretrain`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any, Final

from hf_dense.commands.options import add_config, add_options, add_trainer, given_flags, introduce, read_options
from hf_dense.commands.output import command_line, losses_aside
from hf_dense.commands.recipes import set_aside
from hf_dense.pretraining.options import PretrainingOptions

SUMMARY: Final = "Pre-train an encoder on passages."
_INTRODUCTION: Final = """\
Pre-train an encoder on a corpus of passages, so that one vector holds what a passage says.

  hf-dense pretrain --config retromae --config demo --corpus build/python_docs
  hf-dense pretrain --method cotmae --corpus build/corpus --out build/cotmae --max_steps 1000
  accelerate launch --num_processes 8 examples/pretrain.py --config retromae

Every option may stand in a YAML file, and every option of transformers.TrainingArguments is one here (--help_all).
A run that was killed goes on when it is started again. --per_device_train_batch_size auto finds what the memory holds.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `hf-dense pretrain`."""
    introduce(parser, _INTRODUCTION)
    add_config(parser)
    parser.add_argument("--out", default=argparse.SUPPRESS, metavar="DIR", help="directory to write, with checkpoints")
    add_options(parser, PretrainingOptions)
    add_trainer(parser, _trainer)


def run(arguments: argparse.Namespace) -> None:
    """Pre-train what the arguments say."""
    options, training = read_options(arguments, PretrainingOptions, _trainer())
    options = without_aside(arguments, options)
    from hf_dense.pretraining.pretrain import pretrain
    from hf_dense.storage.process_group import is_main_process

    with losses_aside():
        result = pretrain(options, training, command_line(arguments))
    if is_main_process():
        saved = f"Saved {options.method} to {result.path}"
        print(f"It is there already, in {result.path}" if result.done else saved)


def without_aside(arguments: argparse.Namespace, options: PretrainingOptions) -> PretrainingOptions:
    """The options without those of files that flags set aside; see `set_aside`."""
    aside: dict[str, Any] = dict.fromkeys(set_aside(given_flags(arguments, PretrainingOptions)))
    return replace(options, **aside)


def _trainer() -> type[Any]:
    from transformers import TrainingArguments

    return TrainingArguments
