"""Fine-tune an exported encoder on the training pairs of a dataset directory, with in-batch negatives.

python examples/finetune.py --model runs/retriever --dataset_dir data/python_docs --output_dir runs/finetuned \
    --max_steps 1500 --learning_rate 3e-4 --bf16 true

Every option of SentenceTransformerTrainingArguments is one of this command's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hf_dense.data.collections import training_pairs
from hf_dense.errors import run_main
from hf_dense.finetuning import BiencoderTrainingArguments, finetune
from hf_dense.options import parse_options


@dataclass(frozen=True)
class DataOptions:
    """The model to start from, and the pairs."""

    model: str = field(metadata={"help": "Directory or Hub id of a Sentence-Transformers model; see export.py."})
    dataset_dir: str = field(metadata={"help": "Dataset directory with corpus, queries and qrels."})
    dev_split: str = field(default="dev", metadata={"help": "Split whose loss is logged when eval_strategy is set."})
    dev_pairs: int = field(default=1024, metadata={"help": "How many pairs of that split, drawn at random."})


def main() -> None:
    data, arguments = parse_options(DataOptions, BiencoderTrainingArguments)
    pairs = training_pairs(data.dataset_dir, "train")
    dev_pairs = None
    if arguments.eval_strategy != "no":
        held_out = training_pairs(data.dataset_dir, data.dev_split).shuffle(seed=arguments.seed)
        dev_pairs = held_out.select(range(min(data.dev_pairs, len(held_out))))
    path = finetune(data.model, pairs, arguments, dev_pairs=dev_pairs)
    print(f"fine-tuned on {len(pairs):,} pairs; the model is in {path}")


if __name__ == "__main__":
    run_main(main)
