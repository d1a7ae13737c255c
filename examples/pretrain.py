"""Pre-train a dense encoder on a corpus of passages.

    accelerate launch examples/pretrain.py --config examples/configs/retromae_demo.yaml --corpus DIR
    accelerate launch examples/pretrain.py --method cotmae --corpus DIR --output_dir OUT --max_steps 1000

Options are those of `PretrainingOptions` (what) and of `transformers.TrainingArguments` (how); flags win over the file.
Several CPU processes: `accelerate launch --multi_gpu --num_processes 2 examples/pretrain.py ... --use_cpu true`.
"""

from transformers import TrainingArguments

from hf_dense.commands.options import parse_options
from hf_dense.errors import run_main
from hf_dense.pretraining.pretrain import PretrainingOptions, pretrain


def main() -> None:
    options, training = parse_options(PretrainingOptions, TrainingArguments)
    trainer = pretrain(options, training)
    if trainer.is_world_process_zero():
        print(f"Saved {options.method} to {training.output_dir}")


if __name__ == "__main__":
    run_main(main)
