"""Contrastive fine-tuning of a bi-encoder on (query, passage) pairs with in-batch negatives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    SimilarityFunction,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim, dot_score
from transformers import set_seed

from hf_dense.errors import InputError
from hf_dense.files import atomic_directory
from hf_dense.hub.loading import load_retriever

_COLUMNS = ["query", "passage"]


@dataclass
class BiencoderTrainingArguments(SentenceTransformerTrainingArguments):
    """Everything Sentence-Transformers' trainer takes, with defaults for in-batch negatives and one more field.

    `output_dir` receives the checkpoints, `trainer_state.json` (the loss history) and, at the end, `model/`.
    `resume_from_checkpoint` is a checkpoint directory, or `true` for the newest one in `output_dir`.
    """

    temperature: float = field(
        default=1.0,
        metadata={"help": "Similarities are divided by this before the softmax; 1 suits dot products, 0.05 cosines."},
    )
    batch_sampler: str = field(
        default="no_duplicates",
        metadata={"help": "no_duplicates keeps a text from meeting itself, or its second positive, as a negative."},
    )
    per_device_train_batch_size: int = field(default=64, metadata={"help": "Pairs per device and step."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Pairs per device in evaluation."})
    learning_rate: float = field(default=5e-5, metadata={"help": "Peak learning rate of AdamW."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Steps if at least 1, else a fraction of all steps."})
    dataloader_drop_last: bool = field(default=True, metadata={"help": "Drop a last batch with fewer negatives."})
    save_strategy: str = field(default="no", metadata={"help": "When to write a checkpoint: no, steps or epoch."})
    logging_steps: float = field(default=20, metadata={"help": "Steps between two entries of the loss history."})

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[no-untyped-call]
        if not self.temperature > 0:
            raise InputError(f"temperature is {self.temperature}; it must be above 0.")


def finetune(
    model: str | Path | SentenceTransformer,
    pairs: Dataset,
    arguments: BiencoderTrainingArguments,
    *,
    dev_pairs: Dataset | None = None,
    evaluator: BaseEvaluator | Sequence[BaseEvaluator] | None = None,
) -> Path:
    """Train `model` so that a query is closer to its passage than to the other passages of the batch.

    The similarity is the model's own (`similarity_fn_name`: dot or cosine).

    Args:
        model: an exported directory, a Hub id, or a loaded model (which is then trained in place).
        pairs: one row per positive; the columns `query` and `passage` are read, others ignored. A query may come
            with several passages: no two of them meet in one batch.
        arguments: batch size, steps or epochs, learning rate, seed, precision, ...: see the class.
        dev_pairs: held-out pairs whose loss is logged when `eval_strategy` is `steps` or `epoch`.
        evaluator: evaluators of Sentence-Transformers, run at the same moments.

    Returns:
        `output_dir/model`, complete or absent; the loss history is in `output_dir/trainer_state.json`.

    Raises:
        InputError: a column is absent, fewer pairs than one batch, nothing to load or to resume from.
    """
    resume = _resume_point(arguments)
    set_seed(arguments.seed)
    retriever = load_retriever(model)
    trainer = _BiencoderTrainer(
        model=retriever,
        args=arguments,
        train_dataset=_check_pairs(pairs, "pairs", arguments.per_device_train_batch_size),
        eval_dataset=None
        if dev_pairs is None
        else _check_pairs(dev_pairs, "dev_pairs", arguments.per_device_eval_batch_size),
        loss=_contrastive_loss(retriever, arguments),
        evaluator=evaluator if evaluator is None or isinstance(evaluator, BaseEvaluator) else list(evaluator),
    )
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_state()
    target = _output_dir(arguments) / "model"
    if trainer.is_world_process_zero():
        with atomic_directory(target) as work:
            retriever.save_pretrained(str(work))
    trainer.accelerator.wait_for_everyone()
    return target


class _BiencoderTrainer(SentenceTransformerTrainer):
    """The trainer of Sentence-Transformers, less the card that quotes training texts, whose licence we do not know."""

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add nothing."""


def load_history(output_dir: str | Path) -> list[dict[str, Any]]:
    """Read what the trainer logged in `output_dir`: one dict per entry, with `step` and `loss` or `eval_loss`.

    Raises:
        InputError: no finished training there.
    """
    path = Path(output_dir) / "trainer_state.json"
    if not path.is_file():
        raise InputError(f"There is no loss history {path}; has the training finished?")
    history: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["log_history"]
    return history


def _check_pairs(pairs: Dataset, name: str, least: int) -> Dataset:
    missing = [column for column in _COLUMNS if column not in pairs.column_names]
    if missing:
        raise InputError(f"{name} has no column {missing[0]!r}; its columns are {', '.join(pairs.column_names)}.")
    if len(pairs) < least:
        raise InputError(f"{name} has {len(pairs)} rows, fewer than one batch of {least}; lower the batch size.")
    return pairs.select_columns(_COLUMNS)


def _contrastive_loss(
    model: SentenceTransformer, arguments: BiencoderTrainingArguments
) -> MultipleNegativesRankingLoss:
    similarities = {SimilarityFunction.DOT_PRODUCT.value: dot_score, SimilarityFunction.COSINE.value: cos_sim}
    name = model.similarity_fn_name
    if name not in similarities:
        raise InputError(f"The model's similarity is {name!r}; fine-tuning needs one of: {', '.join(similarities)}.")
    return MultipleNegativesRankingLoss(
        model,
        scale=1.0 / arguments.temperature,
        similarity_fct=similarities[name],
        gather_across_devices=arguments.world_size > 1,
    )


def _resume_point(arguments: BiencoderTrainingArguments) -> str | bool:
    given = str(arguments.resume_from_checkpoint or False)
    if given.lower() == "false":
        return False
    if given.lower() == "true":
        if not any(_output_dir(arguments).glob("checkpoint-*")):
            raise InputError(f"There is no checkpoint in {arguments.output_dir} to resume from.")
        return True
    if not Path(given).is_dir():
        raise InputError(f"There is no checkpoint directory {given} to resume from.")
    return given


def _output_dir(arguments: BiencoderTrainingArguments) -> Path:
    if not arguments.output_dir:
        raise InputError("output_dir is empty; name the directory that receives the training.")
    return Path(arguments.output_dir)
