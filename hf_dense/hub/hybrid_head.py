"""DupMAE's hybrid vector as a module of Sentence-Transformers.

This file is copied beside `modules.json`, so it imports nothing of hf_dense.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Self

import torch
from sentence_transformers.base.modules import Module
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn


class HybridHead(Module):
    """The bottleneck projected to fewer dimensions, and behind it a score for every token of the vocabulary.

    A token's score is its greatest logit over the positions of the text, [CLS] left out. Documents keep the `sparse`
    greatest scores and 0 elsewhere, in training too; queries keep all. So the inner product of a query and a document
    is the relevance of equation 12.

    Source: DupMAE (Liu, Xiao, Shao and Cao 2023, arXiv:2305.02564), equations 7 and 10 to 12.

    Args:
        hidden: length of the encoder's states.
        vocabulary: number of tokens.
        dense: length d' of the projection; 0 leaves it out.
        sparse: scores that a document keeps.
        own_words: whether the logits are a linear map of the states that belongs to this module; else they are those
            of the model before it, a masked language model that gives its hidden states too.
        bottleneck: what is projected: `cls`, the state at [CLS], or `mean`, the mean of the states of all tokens.
    """

    config_keys = ["hidden", "vocabulary", "dense", "sparse", "own_words", "bottleneck"]
    forward_kwargs = {"task"}

    def __init__(
        self,
        hidden: int,
        vocabulary: int,
        dense: int,
        sparse: int,
        own_words: bool = False,
        bottleneck: str = "cls",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.hidden, self.vocabulary, self.dense, self.sparse = hidden, vocabulary, dense, sparse
        self.own_words, self.bottleneck = own_words, bottleneck
        self.pooling = Pooling(hidden, pooling_mode="mean" if bottleneck == "mean" else "cls")
        self.projection = nn.Linear(hidden, dense, bias=False) if dense else None
        self.words = nn.Linear(hidden, vocabulary) if own_words else None

    def forward(self, features: dict[str, Any], task: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Add `sentence_embedding` (batch, dense + vocabulary).

        Args:
            features: `attention_mask` (batch, length), 1 = token; `token_embeddings`, the states (batch, length,
                hidden) where the logits are of this module, else the logits (batch, length, vocabulary) and with them
                `all_layer_embeddings`, the states by layer.
            task: `document` for what is searched; anything else is a query.
            kwargs: not read.

        Returns:
            `features`, with the vectors.
        """
        if self.words is None:
            states, logits = features["all_layer_embeddings"][-1], features["token_embeddings"]
        else:
            states, logits = features["token_embeddings"], self.words(features["token_embeddings"])
        readable = features["attention_mask"].bool().clone()
        readable[:, 0] = False
        words = logits.masked_fill(~readable[:, :, None], torch.finfo(logits.dtype).min).max(dim=1).values
        if task == "document":
            kept = words.topk(self.sparse, dim=1)
            words = torch.zeros_like(words).scatter(1, kept.indices, kept.values)
        parts = [words]
        if self.projection is not None:
            pooled = self.pooling({"token_embeddings": states, "attention_mask": features["attention_mask"]})
            parts.insert(0, self.projection(pooled["sentence_embedding"]))
        features["sentence_embedding"] = torch.cat(parts, dim=1)
        return features

    def get_embedding_dimension(self) -> int:
        """Length of the vectors."""
        return self.dense + self.vocabulary

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write settings and weights to `output_path`, a folder of the model, and this file beside it."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)
        shutil.copyfile(__file__, Path(output_path).resolve().parent / Path(__file__).name)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", *args: Any, **kwargs: Any) -> Self:
        """Read what `save` wrote; arguments are those of `Module.load`."""
        head = super().load(model_name_or_path, subfolder, *args, **kwargs)
        names = ("token", "cache_folder", "revision", "local_files_only")
        place = dict(zip(names, args, strict=False)) | {name: kwargs[name] for name in names if name in kwargs}
        cls.load_torch_weights(model_name_or_path, subfolder=subfolder, model=head, **place)
        return head
