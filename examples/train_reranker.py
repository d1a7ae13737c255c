"""Train a cross-encoder re-ranker on training lists: the teacher of a distillation.

python examples/train_reranker.py --base google/electra-base-discriminator --dataset_dir build/mine \
    --lists build/mined --output_dir runs/reranker --num_train_epochs 3

Every option of CrossEncoderTrainingArguments is one of this command's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hf_dense.commands.options import parse_options
from hf_dense.errors import run_main
from hf_dense.finetuning.lists import load_lists
from hf_dense.finetuning.reranker import RerankerTrainingArguments, train_reranker


@dataclass(frozen=True)
class DataOptions:
    """The model to start from, and the lists."""

    base: str = field(metadata={"help": "Directory or Hub id of an encoder or a sequence-classification model."})
    dataset_dir: str = field(metadata={"help": "Dataset directory with the corpus."})
    lists: str = field(metadata={"help": "Training lists; see hf-dense data negatives."})
    depth: int = field(default=200, metadata={"help": "Negatives of a list that are drawn from."})
    max_length: int = field(default=192, metadata={"help": "Tokens of query and passage together."})


def main() -> None:
    data, arguments = parse_options(DataOptions, RerankerTrainingArguments)
    lists = load_lists(data.lists, data.dataset_dir, arguments.passages, arguments.seed, depth=data.depth)
    path = train_reranker(data.base, lists, arguments, max_length=data.max_length)
    print(f"trained on {len(lists):,} lists; the re-ranker is in {path}")


if __name__ == "__main__":
    run_main(main)
