"""From an exported encoder to a retriever, by the trainer of Sentence-Transformers."""

from __future__ import annotations

from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune, load_history

__all__ = ["BiencoderTrainingArguments", "finetune", "load_history"]
