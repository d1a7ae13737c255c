"""The settings of the trainings, the same for every arm."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from transformers import TrainingArguments

from hf_dense.data.schemas import SPLITS
from hf_dense.errors import InputError
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments
from hf_dense.finetuning.lists import Entry, PassageLists, load_lists
from hf_dense.hub.precision import AUTO, BF16, FP32, is_faster_in_bf16
from hf_dense.pretraining.pretrain import PretrainingOptions
from hf_dense.search.first_stage import BM25

DEPTH: Final = 20  # negatives of a query, of which some are drawn
_NEGATIVES: Final = 3  # of these, for a ready embedder, which tells other queries' passages apart as it is
DISTILLED: Final = 3  # of these, in a list that is distilled
_LEAST: Final = 4  # queries of a batch
_GENTLE: Final = 2e-5  # rate at which a retriever is fine-tuned on made queries
_BESIDE_WORDS: Final = 4.0  # weight of the contrastive loss where BM25 teaches


@dataclass(frozen=True)
class Learning:
    """Batches and learning rates.

    Args:
        queries: of a step of fine-tuning.
        negatives: of each of them, from BM25; beside the passages of the others.
        texts: of a step of pre-training.
        finetuning_rate: peak learning rate.
        pretraining_rate: likewise, of the encoder.
        decoder_rate: likewise, of the decoders and the vocabulary head, which start from nothing; None is the same.
        length: longest text of pre-training, in tokens.
        bf16: whether trainings compute in bfloat16.
        encoded_in: precision that texts are encoded in.
    """

    queries: int
    negatives: int
    texts: int
    finetuning_rate: float
    pretraining_rate: float
    length: int
    decoder_rate: float | None = None
    bf16: bool = False
    encoded_in: str = FP32

    @classmethod
    def of(cls, ready: bool, length: int, queries: int, precision: str = AUTO, gently: bool = False) -> Learning:
        """Those for a ready embedder, or for a small encoder of random weights (docs/evidence.md), on this machine.

        Args:
            ready: whether weights were trained before.
            length: longest text in tokens.
            queries: that there are to train on; a batch holds a quarter of them at most.
            precision: `fp32` or `bf16` of all; `auto` trains in bfloat16 where that is faster, and encodes in float32.
            gently: whether a retriever is to learn from made queries: at the rate that suits judged ones it unlearns
                people's (docs/adapt.md).

        Raises:
            InputError: too few queries.
        """
        negatives = _NEGATIVES if ready else 0
        wanted = 64 if not ready else 32 if torch.cuda.is_available() else 10
        batch = min(wanted, queries // 4)
        if batch < _LEAST:
            raise InputError(
                f"{queries} queries are too few to train on; give more documents or more labelled queries."
            )
        texts = 64 if torch.cuda.is_available() else 16
        tuning, encoder, decoder = (1e-4, 2e-5, 5e-4) if ready else (1e-3, 2e-3, None)
        tuning = _GENTLE if gently else tuning
        device = "cuda" if torch.cuda.is_available() else "cpu"
        bf16 = is_faster_in_bf16(device) if precision == AUTO else precision == BF16
        encoded_in = FP32 if precision == AUTO else precision
        return cls(batch, negatives, texts, tuning, encoder, length, decoder, bf16, encoded_in)

    @property
    def trained_in(self) -> str:
        """The precision of all trainings."""
        return BF16 if self.bf16 else FP32

    @property
    def halved(self) -> Learning | None:
        """The same with half the passages in a step of fine-tuning; None where too few would be left to learn from.

        Negatives go first, but for one: a step of few queries says too little.
        """
        if self.negatives > 1:
            return replace(self, negatives=(self.negatives - 1) // 2)
        queries = self.queries // 2
        return replace(self, queries=queries) if queries >= _LEAST else None

    def lists(self, negatives: Path, collection: Path, seed: int) -> PassageLists:
        """What is fine-tuned on: a query with a relevant passage, and with what BM25 took for one."""
        return load_lists(negatives, collection, 1 + self.negatives, seed, split=SPLITS[0], depth=DEPTH)

    def scored_lists(self, scores: Path, collection: Path, seed: int) -> PassageLists:
        """What is distilled: longer lists, with a teacher's scores."""
        return load_lists(scores, collection, 1 + DISTILLED, seed, split=SPLITS[0], depth=DEPTH, scored=True)

    def scored(self, entries: Sequence[Entry], steps: int, seed: int) -> tuple[set[str], int]:
        """What a cross-encoder, which is slow, scores for so many steps of distillation: what they read, and no more.

        Returns:
            The ids of the queries, drawn where the steps do not read all; and how many negatives of each.
        """
        read = steps * self.distilled
        drawn = random.Random(seed).sample([entry.id for entry in entries], min(read, len(entries)))
        return set(drawn), min(DEPTH, DISTILLED * math.ceil(read / len(entries)))

    @property
    def distilled(self) -> int:
        """Queries of a step of distillation: as many passages as in another one."""
        return max(1, self.queries * (1 + self.negatives) // (1 + DISTILLED))

    def distillation(self, teacher: str) -> dict[str, Any]:
        """What else is set where BM25 or a cross-encoder teaches.

        Labels weigh more beside BM25, which is often no better than what it teaches: with the 0.2 that suits a
        cross-encoder (SimLM) it takes more than it gives.
        """
        weight = {"contrast_weight": _BESIDE_WORDS} if teacher == BM25 else {}
        return {"per_device_train_batch_size": self.distilled, "distillation": "kl", **weight}

    def finetuning(self, out: Path, steps: int, seed: int, **more: Any) -> BiencoderTrainingArguments:
        """Of a fine-tuning; `more` is what else is set."""
        own = {"per_device_train_batch_size": self.queries, "learning_rate": self.finetuning_rate}
        more = {"precision": self.trained_in, **more}
        return BiencoderTrainingArguments(**{**self._shared(out, steps, seed), **own, **more})

    def pretraining(self, out: Path, steps: int, seed: int, **more: Any) -> TrainingArguments:
        """Of a pre-training; `more` is what else is set."""
        own = {"per_device_train_batch_size": self.texts, "learning_rate": self.pretraining_rate, "weight_decay": 0.01}
        return TrainingArguments(**{**self._shared(out, steps, seed), **own, **more})

    def pretraining_options(self, method: str, base: str, corpus: str, **more: Any) -> PretrainingOptions:
        """What is pre-trained, from what, on what."""
        own = {"max_length": self.length, "decoder_learning_rate": self.decoder_rate, "precision": self.trained_in}
        given = {**own, **more}
        return PretrainingOptions(method=method, corpus=corpus, backbone=base, **given)

    def _shared(self, out: Path, steps: int, seed: int) -> dict[str, Any]:
        """What both trainings have; checkpoints at steps that are logged, so that a resumed curve is the same."""
        logged = max(steps // 20, 1)
        return {
            "output_dir": str(out),
            "max_steps": steps,
            "warmup_steps": 0.1,
            "logging_steps": logged,
            "save_strategy": "steps",
            "save_steps": max(steps // 8 // logged, 1) * logged,
            "save_total_limit": 1,
            "seed": seed,
            "report_to": "none",
            "use_cpu": not torch.cuda.is_available(),
        }
