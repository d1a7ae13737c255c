"""Vectors of a batch's texts: in groups of like length, so that little of what is computed is padding, and with
gradients of the words that a group reads alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

Features = Mapping[str, Any]

_GROUP: Final = 8  # texts read at once on a CPU, where a few texts keep a core busy


def embed(model: SentenceTransformer, features: Features, task: str, chunk: int | None = None) -> Tensor:
    """Read texts in groups of like length, each padded to its own longest text.

    A GPU, which wants large batches and must not wait to learn lengths, reads them all at once where `chunk` is None.

    Args:
        model: the retriever.
        features: token ids and masks, (rows, tokens); and `prompt_length`, the tokens at the head of each row that a
            pooling without prompts leaves out.
        task: `query` or `document`.
        chunk: texts embedded at once, whose inner values are computed again on the way back: memory holds those of one
            chunk, and the gradients are those of the whole batch.

    Returns:
        (rows, D) vectors, in the order of the rows.
    """
    tensors = {key: value for key, value in features.items() if isinstance(value, Tensor)}
    mask, prompt = tensors["attention_mask"], features.get("prompt_length")
    rows, on_cpu = len(mask), mask.device.type == "cpu"
    size = min(chunk or rows, rows)
    if size == rows and not on_cpu:
        return _read(model, task, prompt, tensors)
    read = partial(_read, model, task, prompt)
    groups = group_by_length(mask, min(size, _GROUP) if on_cpu and chunk is None else size)
    parts = [cut_padding(tensors, group) for group in groups]
    again = size < rows
    vectors = [checkpoint(read, part, use_reentrant=False) if again else read(part) for part in parts]
    return torch.cat(vectors)[torch.cat(groups).argsort()]


@contextmanager
def gradients_of_read_words(model: nn.Module) -> Iterator[None]:
    """Have a model sum up gradients of the words that its groups read, and make one of the vocabulary of them a step.

    One of the whole vocabulary for each group takes a CPU as long as a small encoder. Gradients are the same but for
    rounding. Not for several processes, which exchange gradients of one kind, nor for what is compiled.
    """
    embeddings = _word_embeddings(model)
    hooks = [one.weight.register_post_accumulate_grad_hook(_make_dense) for one in embeddings]
    for one in embeddings:
        one.sparse = True
    try:
        yield
    finally:
        for one, hook in zip(embeddings, hooks, strict=True):
            one.sparse = False
            hook.remove()


def _word_embeddings(model: nn.Module) -> list[nn.Embedding]:
    """The embeddings of words that are trained, of all encoders; each once."""
    encoders = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    found = [encoder.get_input_embeddings() for encoder in encoders]
    trained = [one for one in found if isinstance(one, nn.Embedding) and one.weight.requires_grad and not one.sparse]
    return list(dict.fromkeys(trained))


def _make_dense(weight: Tensor) -> None:
    if weight.grad is not None and weight.grad.is_sparse:
        weight.grad = weight.grad.to_dense()


def group_by_length(mask: Tensor, size: int) -> list[Tensor]:
    """Indices of rows in groups of `size`, the shortest texts first; the last group may be smaller.

    Args:
        mask: (rows, tokens), 1 where a text has a token.
        size: rows of a group.

    >>> [group.tolist() for group in group_by_length(torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]]), 2)]
    [[1, 2], [0]]
    """
    return list(mask.sum(dim=1).argsort(stable=True).split(size))


def cut_padding(tensors: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Some rows of a batch, without the last columns that are padding in all of them.

    Args:
        tensors: `attention_mask` (rows, tokens), and others; those of its shape are cut.
        rows: indices.

    >>> cut_padding({"attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}, torch.tensor([1]))["attention_mask"]
    tensor([[1, 1]])
    """
    shape = tensors["attention_mask"].shape
    read = tensors["attention_mask"][rows].any(dim=0).nonzero()
    width = int(read.max()) + 1 if len(read) else shape[1]
    return {key: value[rows, :width] if value.shape[:2] == shape else value[rows] for key, value in tensors.items()}


def _read(model: SentenceTransformer, task: str, prompt: int | None, tensors: dict[str, Tensor]) -> Tensor:
    features = tensors if prompt is None else {**tensors, "prompt_length": prompt}
    vectors: Tensor = model(features, task=task)["sentence_embedding"]
    return vectors
