"""Passages encoded by the machines of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from hf_dense.data.engines import start_ray

_ADDRESS: Final[ContextVar[str | None]] = ContextVar("address of the cluster", default=None)


@contextmanager
def encoding_on(address: str | None) -> Iterator[None]:
    """Let passages be encoded by a Ray cluster, inside of this, by whatever encodes them: indexes, evaluations, mining.

    Its machines have this version of hf_dense; models and texts travel to them, vectors back. Each of its GPUs is a
    worker, or, where it has none, each core.

    Args:
        address: `HOST:PORT` of the cluster, or `auto`; None encodes on this machine.

    Raises:
        InputError: there is no cluster at the address, or Ray is not installed.
    """
    if address is not None:
        start_ray(address)
    token = _ADDRESS.set(address)
    try:
        yield
    finally:
        _ADDRESS.reset(token)


def is_on_cluster() -> bool:
    """Whether passages are encoded by a cluster now."""
    return _ADDRESS.get() is not None


@contextmanager
def cluster_encoder(
    retriever: SentenceTransformer, batch_size: int
) -> Iterator[tuple[Callable[[list[str]], NDArray[np.floating]], int]]:
    """Let the machines of the cluster encode; what one had to do that is lost, others do.

    Args:
        retriever: that each worker gets a copy of.
        batch_size: texts that a worker encodes at once.

    Yields:
        What encodes texts, in their order, and the number of workers.
    """
    ray: Any = import_module("ray")  # whose types know no options by name

    resources = ray.cluster_resources()
    gpus, cores = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
    # max_calls: by default a process that had a GPU ends with its task, and the model with it.
    needs = {"num_cpus": 0, "num_gpus": 1} if gpus else {"num_cpus": 1}
    work = ray.remote(max_retries=-1, max_calls=0, **needs)(_encode)
    device = retriever.device
    model = ray.put(retriever.to("cpu"))
    retriever.to(device)

    def encode(texts: list[str]) -> NDArray[np.floating]:
        starts = range(0, len(texts), batch_size)
        parts = [work.remote([model], texts[start : start + batch_size], batch_size) for start in starts]
        return np.concatenate(ray.get(parts))

    yield encode, gpus or cores


def _encode(model: list[Any], texts: list[str], batch_size: int) -> NDArray[np.floating]:
    """(texts, dimensions) vectors, made by a worker; the list keeps Ray from replacing the reference by the model."""
    retriever = _copy(model[0])
    found: NDArray[np.floating] = retriever.encode_document(texts, batch_size=batch_size, show_progress_bar=False)
    return found


@lru_cache(maxsize=1)
def _copy(model: Any) -> SentenceTransformer:
    """A worker's own copy of a retriever, which it keeps."""
    import ray

    retriever: SentenceTransformer = ray.get(model)
    return retriever.to("cuda" if torch.cuda.is_available() else "cpu")
