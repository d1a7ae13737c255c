"""Turn a checkpoint into a model that needs neither hf_dense nor remote code; `hf-dense export` does the same.

python examples/export.py runs/retromae --out runs/retriever --max_length 64
python examples/export.py runs/reranker/model --out runs/cross-encoder --kind cross-encoder
"""

from __future__ import annotations

import argparse

from hf_dense.commands.export import add_export_arguments, run_export
from hf_dense.errors import run_main


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_export_arguments(parser)
    run_export(parser.parse_args())


if __name__ == "__main__":
    run_main(main)
