"""Measure retrievers on public tasks or on directories, next to BM25; `hf-dense evaluate` does the same.

python examples/evaluate.py bm25 plain=runs/plain/model mine=runs/mine/model --tasks data/mine:dev --out runs/dev
python examples/evaluate.py bm25 mine=runs/mine/model --tasks beir web --out runs/public
"""

from __future__ import annotations

import argparse

from hf_dense.commands.evaluate import add_evaluate_arguments, run_evaluate
from hf_dense.errors import run_main


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_evaluate_arguments(parser)
    run_evaluate(parser.parse_args())


if __name__ == "__main__":
    run_main(main)
