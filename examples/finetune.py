"""Fine-tune an exported encoder on the training pairs of a dataset directory, or on lists of negatives.

python examples/finetune.py --model runs/retriever --dataset_dir data/python_docs --output_dir runs/finetuned \
    --max_steps 1500 --learning_rate 3e-4 --bf16 true
python examples/finetune.py ... --lists build/mined --passages 8      (hf-dense data negatives --model runs/retriever)

All stages of a paper, one after the other: hf-dense finetune examples/configs/finetuning/simlm_msmarco.yaml

Every option of SentenceTransformerTrainingArguments is one of this command's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hf_dense.commands.options import parse_options
from hf_dense.data.collections import training_pairs
from hf_dense.errors import run_main
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.finetuning.lists import load_lists


@dataclass(frozen=True)
class DataOptions:
    """The model to start from, and the pairs."""

    model: str = field(metadata={"help": "Directory or Hub id of a Sentence-Transformers model; see export.py."})
    dataset_dir: str = field(metadata={"help": "Dataset directory with corpus, queries and qrels."})
    lists: str | None = field(
        default=None,
        metadata={"help": "Training lists (hf-dense data negatives, scores); default: in-batch negatives."},
    )
    passages: int = field(default=8, metadata={"help": "Passages of a list, the positive included."})
    depth: int = field(default=200, metadata={"help": "Negatives of a list that are drawn from."})
    dev_split: str = field(default="dev", metadata={"help": "Split whose loss is logged when eval_strategy is set."})
    dev_pairs: int = field(default=1024, metadata={"help": "How many pairs of that split, drawn at random."})


def main() -> None:
    data, arguments = parse_options(DataOptions, BiencoderTrainingArguments)
    if data.lists is None:
        rows = training_pairs(data.dataset_dir, "train")
    else:
        scored = arguments.distillation != "none"
        rows = load_lists(data.lists, data.dataset_dir, data.passages, arguments.seed, depth=data.depth, scored=scored)
    dev_pairs = None
    if arguments.eval_strategy != "no":
        held_out = training_pairs(data.dataset_dir, data.dev_split).shuffle(seed=arguments.seed)
        dev_pairs = held_out.select(range(min(data.dev_pairs, len(held_out))))
    path = finetune(data.model, rows, arguments, dev_pairs=dev_pairs)
    print(f"fine-tuned on {len(rows):,} {'pairs' if data.lists is None else 'lists'}; the model is in {path}")


if __name__ == "__main__":
    run_main(main)
