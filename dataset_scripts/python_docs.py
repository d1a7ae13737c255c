"""Build a retrieval collection from the docstrings of the installed Python packages.

python dataset_scripts/python_docs.py --out python_docs
"""

from __future__ import annotations

import argparse
import os

from hf_dense.commands.output import add_output_arguments, check_publishing, publish_output
from hf_dense.data.collections import content_hash
from hf_dense.data.python_docs.collection import build_python_docs
from hf_dense.errors import run_main
from hf_dense.storage.output import Output


def main() -> None:
    """Parse the command line, build, and publish if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=64, help="greatest number of tokens in a passage (default: 64)")
    parser.add_argument("--tokenizer", help="count the tokens of this tokenizer (default: words and punctuation marks)")
    parser.add_argument("--packages", nargs="+", help='distributions to read, "python" for the standard library')
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many read files side by side")
    add_output_arguments(parser, push=True)
    options = parser.parse_args()
    if options.push_to_hub:
        check_publishing(options.push_to_hub, "dataset")

    command = ["python dataset_scripts/python_docs.py --out OUT", f"--length {options.length}"]
    command += [f"--tokenizer {options.tokenizer}"] if options.tokenizer else []
    command += [f"--packages {' '.join(options.packages)}"] if options.packages else []
    out = build_python_docs(
        Output(options.out, options.overwrite, " ".join(command)),
        packages=options.packages,
        length=options.length,
        tokenizer=options.tokenizer,
        processes=options.processes,
    )
    print(f"{out}: content {content_hash(out)[:12]}")
    if options.push_to_hub:
        publish_output(out, options.push_to_hub)


if __name__ == "__main__":
    run_main(main)
