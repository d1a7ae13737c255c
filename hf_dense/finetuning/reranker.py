"""Listwise training of a cross-encoder that re-ranks passages: the teacher of SimLM and MASTER."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder, CrossEncoderTrainer
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn
from transformers import set_seed

from hf_dense.errors import InputError
from hf_dense.finetuning.lists import PassageLists
from hf_dense.finetuning.losses import listwise_loss
from hf_dense.finetuning.training import (
    CarefulTraining,
    Epochs,
    SharedDefaults,
    check_evaluates,
    check_tuning,
    evaluator_sources,
    train_model,
)
from hf_dense.search.cross_encoder import load_reranker, longest_first, read_part
from hf_dense.search.fingerprints import cross_encoder_source
from hf_dense.storage.output import Output


@dataclass
class RerankerTrainingArguments(SharedDefaults, CrossEncoderTrainingArguments):
    """Everything Sentence-Transformers' trainer takes, with defaults for lists of passages and a few more fields.

    `output_dir` receives the checkpoints, `trainer_state.json` (the loss history) and, at the end, `model/`.
    `kept` and `r_drop` are of SimLM's released code; its paper has neither.
    """

    passages: int = field(default=64, metadata={"help": "Passages of a list, the positive included."})
    kept: int | None = field(
        default=16,
        metadata={
            "help": "Score lists without gradient, train on so many: the positive and the highest others; None: all."
        },
    )
    r_drop: bool = field(
        default=True,
        metadata={"help": "Read every batch twice, with different dropout, and draw the two distributions together."},
    )
    chunk: int = field(default=64, metadata={"help": "Pairs read at once."})
    per_device_train_batch_size: int = field(
        default=8, metadata={"help": "Queries per device; gradient_accumulation_steps save memory."}
    )
    learning_rate: float = field(default=3e-5, metadata={"help": "Peak learning rate of AdamW."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passages < 2:
            raise InputError(f"passages is {self.passages}; a list has a positive and at least one other passage.")
        if self.kept is not None and self.kept < 2:
            raise InputError(f"kept is {self.kept}; keep the positive and at least one other passage, or None for all.")
        if self.chunk < 1:
            raise InputError(f"chunk is {self.chunk}; at least one pair is read at once.")
        if self.dataloader_persistent_workers:
            raise InputError(
                "dataloader_persistent_workers would freeze the passages of the first epoch; leave it off."
            )


def train_reranker(
    base: str | Path | CrossEncoder,
    lists: PassageLists,
    arguments: RerankerTrainingArguments,
    *,
    max_length: int,
    evaluator: BaseEvaluator | list[BaseEvaluator] | None = None,
    output: Output | None = None,
) -> Path:
    """Train a cross-encoder to tell the positive of a list from its other passages.

    A training that is complete is not done again; one that was killed goes on from its newest checkpoint, and ends with
    the same weights.

    Args:
        base: directory or Hub id of an encoder, whose head is new then, or of a cross-encoder; or a loaded one, which
            is trained in place.
        lists: queries with their passages, drawn anew in every epoch.
        arguments: batch size, steps or epochs, learning rate, seed, precision, ...: see the class.
        max_length: tokens of a query and a passage together.
        evaluator: evaluators of Sentence-Transformers, run when `eval_strategy` is `steps` or `epoch`.
        output: the directory, where the arguments do not say all of it.

    Returns:
        `output_dir/model`, complete or absent; its `predict` gives raw logits.

    Raises:
        InputError: nothing to load, lists of one passage, more tokens than the encoder has positions, a loss that is no
            number, or `output_dir` holds something else.

    Source: SimLM (Wang et al. 2023, arXiv:2207.02578), section 3.3.
    """
    _check(lists, arguments, bool(evaluator))
    arguments = copy(arguments)  # some of them are set below, by the model
    set_seed(arguments.seed)
    reranker = load_reranker(base, max_length, new_head=True).float()  # as in finetune

    def make() -> _RerankerTrainer:
        return _RerankerTrainer(
            model=reranker,
            args=arguments,
            train_dataset=lists.dataset(),
            loss=ListwiseLoss(reranker, arguments.kept, arguments.r_drop, arguments.chunk),
            evaluator=evaluator,
            callbacks=[Epochs(lists)],
        )

    return train_model(
        output,
        arguments,
        reranker,
        "re-ranker training",
        "cross-encoder",
        {**lists.settings(), "max_length": max_length},
        {"base": cross_encoder_source(reranker, base), **lists.sources(), **evaluator_sources(evaluator)},
        make,
        lambda out: reranker.save_pretrained(str(out), create_model_card=False),
    )


def _check(lists: PassageLists, arguments: RerankerTrainingArguments, evaluated: bool) -> None:
    """Raise `InputError` for what no training can be made of."""
    check_tuning(arguments)
    if lists.passages < 2:
        raise InputError("The lists have one passage each; a re-ranker needs the positive and at least one other.")
    check_evaluates(arguments, evaluated)
    if arguments.n_gpu > 1:
        raise InputError("One process would drive several GPUs; start with `accelerate launch`, one process per GPU.")


class _RerankerTrainer(CarefulTraining, CrossEncoderTrainer):
    """The trainer of Sentence-Transformers."""


class ListwiseLoss(nn.Module):
    """Cross-entropy of the positive among the passages of its list, on raw logits.

    Args:
        model: the cross-encoder.
        kept: passages of a list that are trained on: the positive and what the model, without dropout, scores highest
            among the others; None for all.
        r_drop: whether every list is read twice (see `r_drop_loss`).
        chunk: pairs read at once.
    """

    def __init__(self, model: CrossEncoder, kept: int | None, r_drop: bool, chunk: int) -> None:
        super().__init__()
        self.model = model
        self.kept, self.r_drop, self.chunk = kept, r_drop, chunk
        self.read = partial(read_part, model)  # which is wrapped for several processes
        self.prompt = model.prompts.get(model.default_prompt_name or "")  # that it scores with

    def forward(
        self, inputs: Sequence[Any], labels: object = None, prompt: str | None = None, task: str | None = None
    ) -> Tensor:
        """The loss of B queries, each with N passages.

        Args:
            inputs: B queries, and B lists of N texts, the positive first.
            labels: not read.
            prompt: put before every pair; the model's own, where None.
            task: of the model, where it has several.
        """
        queries, lists = inputs
        named = {"prompt": self.prompt if prompt is None else prompt, "task": task}
        if self.kept is not None and self.kept < len(lists[0]):
            best = kept_passages(self._judge(queries, lists, named), self.kept).tolist()
            lists = [[passages[index] for index in indices] for passages, indices in zip(lists, best, strict=True)]
        if not self.r_drop:
            return listwise_loss(self._scores(queries, lists, named))
        twice = self._scores([*queries, *queries], [*lists, *lists], named)
        return r_drop_loss(twice[: len(queries)], twice[len(queries) :])

    @torch.no_grad()
    def _judge(self, queries: Sequence[str], lists: Sequence[Sequence[str]], named: dict[str, Any]) -> Tensor:
        """(B, N) scores without dropout and gradient."""
        training = self.model.training
        self.model.eval()
        scores = self._scores(queries, lists, named)
        self.model.train(training)
        return scores

    def _scores(self, queries: Sequence[str], lists: Sequence[Sequence[str]], named: dict[str, Any]) -> Tensor:
        """(B, N) raw logits; pairs of like length are read together."""
        read = map(self.read, queries)
        pairs = [(query, passage) for query, passages in zip(read, lists, strict=True) for passage in passages]
        order = longest_first(pairs)
        parts: list[Tensor] = []
        for start in range(0, len(pairs), self.chunk):
            tokens = self.model.preprocess([pairs[at] for at in order[start : start + self.chunk]], **named)
            parts.append(self.model(batch_to_device(tokens, self.model.device))["scores"].view(-1).float())
        scores = torch.cat(parts)
        back = torch.tensor(order, device=scores.device).argsort()
        return scores[back].view(len(queries), -1)


def r_drop_loss(first: Tensor, second: Tensor) -> Tensor:
    """Half the cross-entropies of two readings of the same lists, and half the divergences between them, both ways.

    Args:
        first: (B, N) raw logits, the positive first.
        second: the same, of other dropout.

    Returns:
        The mean over the B lists.

    Source: SimLM's released code, after R-Drop (Liang et al. 2021, arXiv:2106.14448); not in SimLM's paper.
    """
    own, other = first.log_softmax(dim=1), second.log_softmax(dim=1)
    apart = ((own.exp() - other.exp()) * (own - other)).sum(dim=1).mean()  # KL one way and the other, added
    return (listwise_loss(first) + listwise_loss(second) + apart) / 2


def kept_passages(scores: Tensor, kept: int) -> Tensor:
    """Indices of the passages of a list that are trained on: the positive, and the highest of the others.

    Args:
        scores: (B, N), the positive first.
        kept: passages of a list that are trained on, N at most.

    Returns:
        (B, kept) indices, the positive first and the others after it, the highest first.

    Source: SimLM's released code; not in its paper.

    >>> kept_passages(torch.tensor([[0.0, 3.0, 1.0, 2.0]]), kept=3)
    tensor([[0, 1, 3]])
    """
    others = scores[:, 1:].topk(kept - 1, dim=1).indices + 1
    return torch.cat([torch.zeros_like(others[:, :1]), others], dim=1)
