"""The verb `hf-dense adapt`."""

from __future__ import annotations

import argparse
from typing import Final

from hf_dense.commands.options import add_options, build_options, given_flags, introduce
from hf_dense.commands.output import command_line, losses_aside
from hf_dense.experiments.adaptation.options import AdaptOptions

SUMMARY: Final = "Find out whether pre-training on your documents pays, and get the best retriever."
_INTRODUCTION: Final = """\
Cut documents to passages, make queries where there are none, train and measure several retrievers in the time that is
given, and say in a sentence what came out. It writes a report, the best retriever and its index. A run that was
interrupted goes on.

  hf-dense adapt my_documents/ --base EMBEDDER --budget 30m --out build/mine
  hf-dense adapt my_documents/ --base EMBEDDER --queries judged.jsonl --out build/mine
  hf-dense adapt COLLECTION --budget 20m --out build/from_scratch
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `hf-dense adapt`."""
    introduce(parser, _INTRODUCTION)
    parser.usage = f"{parser.prog} DOCS [--base MODEL] [--queries FILE] [--budget TIME] --out DIR"
    add_options(parser, AdaptOptions, positional="docs")


def run(arguments: argparse.Namespace) -> None:
    """Adapt, and print the table and the verdict."""
    options = build_options(AdaptOptions, {}, given_flags(arguments, AdaptOptions))
    from transformers.utils.logging import disable_progress_bar

    from hf_dense.experiments.adaptation.run import adapt

    disable_progress_bar()  # of loading weights, which takes no time here
    with losses_aside():
        found = adapt(options, command_line(arguments))
    places = f"Report: {found.path}/report.html\nRetriever: {found.retriever}"
    print(f"{found}\n\n{places}\nTry: {found.search(options.docs)}")
