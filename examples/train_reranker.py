"""Train a cross-encoder re-ranker on training lists: the teacher of a distillation.

python examples/train_reranker.py --base google/electra-base-discriminator --collection build/mine \
    --lists build/mined --out build/reranker --num_train_epochs 3

Every option of CrossEncoderTrainingArguments is one of this command's. A training that was killed goes on; one that is
complete is not done again; --overwrite true replaces what was made from something else.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

from hf_dense.commands.options import parse_options
from hf_dense.errors import run_main
from hf_dense.finetuning.lists import load_lists
from hf_dense.finetuning.reranker import RerankerTrainingArguments, train_reranker
from hf_dense.storage.output import Output


@dataclass(frozen=True)
class DataOptions:
    """The model to start from, and the lists."""

    base: str = field(metadata={"help": "Directory or Hub id of an encoder or a sequence-classification model."})
    collection: str = field(metadata={"help": "Directory with the corpus."})
    lists: list[str] = field(metadata={"help": "Training lists, joined where several; see hf-dense data negatives."})
    depth: int = field(default=200, metadata={"help": "Negatives of a list that are drawn from."})
    max_length: int = field(default=192, metadata={"help": "Tokens of query and passage together."})


def main() -> None:
    data, arguments = parse_options(DataOptions, RerankerTrainingArguments)
    lists = load_lists(data.lists, data.collection, arguments.passages, arguments.seed, depth=data.depth)
    command = shlex.join(["python", "examples/train_reranker.py", *sys.argv[1:]])
    output = Output(Path(arguments.output_dir), arguments.overwrite, command)
    path = train_reranker(data.base, lists, arguments, max_length=data.max_length, output=output)
    print(f"trained on {len(lists):,} lists; the re-ranker is in {path}")


if __name__ == "__main__":
    run_main(main)
