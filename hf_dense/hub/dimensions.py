"""Vectors cut to their first dimensions, as models allow that were trained for it (Matryoshka)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from hf_dense.errors import InputError
from hf_dense.hub.hybrid import hybrid_head


@contextmanager
def cut_to(model: Any, dimensions: int | None, name: str | Path = "the model") -> Iterator[None]:
    """Let a model's vectors be cut to so many dimensions when it encodes, inside of this; where None they stay whole.

    Raises:
        InputError: see `check_dimensions`.
    """
    if dimensions is None:
        yield
        return
    check_dimensions([dimensions], model, name)
    with model.truncate_embeddings(dimensions):
        yield


def check_dimensions(dimensions: Sequence[int], model: object, name: str | Path = "the model") -> None:
    """Pass when the vectors of a model can be cut to each of these numbers of dimensions.

    Args:
        dimensions: numbers of dimensions that are kept.
        model: that makes the vectors.
        name: of it, for errors.

    Raises:
        InputError: a number is given twice, is not positive or not below the model's; or the model makes no dense
            vectors.
    """
    if not dimensions:
        return
    full = model.get_embedding_dimension() if isinstance(model, SentenceTransformer) else None
    if not isinstance(model, SentenceTransformer) or full is None or hybrid_head(model):
        raise InputError(f"Dimensions are cut from dense vectors, and {name} makes none; leave them out.")
    check_distinct(dimensions)
    for dimension in dimensions:
        if not 0 < dimension < full:
            raise InputError(
                f"{dimension} dimensions were asked for, and the vectors of {name} have {full}; name fewer, but at "
                "least 1."
            )


def check_distinct(dimensions: Sequence[int]) -> None:
    """Raise `InputError` where a number is given twice."""
    if len(set(dimensions)) < len(dimensions):
        raise InputError(f"The dimensions {_listed(dimensions)} hold a number twice; give each once.")


def dimensions_in_words(dimensions: Sequence[int], full: int) -> str:
    """What a model was trained for, as a sentence for people.

    >>> dimensions_in_words([256, 64], 384)
    'Its vectors of 384 dimensions were also trained to be cut to the first 256, 64 (`truncate_dim`).'
    """
    return (
        f"Its vectors of {full} dimensions were also trained to be cut to the first {_listed(dimensions)} "
        "(`truncate_dim`)."
    )


def _listed(dimensions: Sequence[int]) -> str:
    return ", ".join(map(str, dimensions))
