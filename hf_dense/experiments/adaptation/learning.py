"""The settings of the trainings, the same for every arm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import TrainingArguments

from hf_dense.errors import InputError
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments
from hf_dense.hub.precision import AUTO, BF16, FP32, is_faster_in_bf16
from hf_dense.pretraining.pretrain import PretrainingOptions

NEGATIVES: Final = 3  # of a list that is distilled
LEAST_PAIRS: Final = 4  # of a batch


@dataclass(frozen=True)
class Learning:
    """Batches and learning rates.

    Args:
        pairs: of a step of fine-tuning.
        texts: of a step of pre-training.
        finetuning_rate: peak learning rate.
        pretraining_rate: likewise, of the encoder.
        decoder_rate: likewise, of the decoders and the vocabulary head, which start from nothing; None is the same.
        length: longest text of pre-training, in tokens.
        bf16: whether trainings compute in bfloat16.
        encoded_in: precision that texts are encoded in.
    """

    pairs: int
    texts: int
    finetuning_rate: float
    pretraining_rate: float
    length: int
    decoder_rate: float | None = None
    bf16: bool = False
    encoded_in: str = FP32

    @classmethod
    def of(cls, ready: bool, length: int, pairs: int, precision: str = AUTO) -> Learning:
        """Those for a ready embedder, or for a small encoder of random weights (docs/evidence.md), on this machine.

        Args:
            ready: whether weights were trained before.
            length: longest text in tokens.
            pairs: that there are to train on; a batch holds a quarter of them at most.
            precision: `fp32` or `bf16` of all; `auto` trains in bfloat16 where that is faster, and encodes in float32.

        Raises:
            InputError: too few pairs.
        """
        wanted = 64 if torch.cuda.is_available() or not ready else 32
        batch = min(wanted, pairs // 4)
        if batch < LEAST_PAIRS:
            raise InputError(f"{pairs} pairs are too few to train on; give more documents or more labelled queries.")
        texts = 64 if torch.cuda.is_available() else 16
        tuning, encoder, decoder = (5e-5, 2e-5, 5e-4) if ready else (1e-3, 2e-3, None)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        bf16 = is_faster_in_bf16(device) if precision == AUTO else precision == BF16
        encoded_in = FP32 if precision == AUTO else precision
        return cls(batch, texts, tuning, encoder, length, decoder, bf16, encoded_in)

    @property
    def trained_in(self) -> str:
        """The precision of all trainings."""
        return BF16 if self.bf16 else FP32

    def finetuning(self, out: Path, steps: int, seed: int, **more: Any) -> BiencoderTrainingArguments:
        """Of a fine-tuning on pairs; `more` is what else is set."""
        own = {"per_device_train_batch_size": self.pairs, "learning_rate": self.finetuning_rate}
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
