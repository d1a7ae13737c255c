"""What an evaluation costs: time, tokens, memory, the bytes of an index, the time that one query takes."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from sentence_transformers import CrossEncoder, SentenceTransformer
from torch import Tensor, nn

from hf_dense.evaluation.settings import describe_model
from hf_dense.hub.hybrid import hybrid_head
from hf_dense.search.dense import devices_for
from hf_dense.search.first_stage import Search
from hf_dense.search.hybrid import bytes_per_passage
from hf_dense.search.unread import said_before
from hf_dense.storage.provenance import describe_run

_TIMED: Final = 20  # queries
_HITS: Final = 100  # found for each


class CostMeter:
    """Measures what happens inside `with`: seconds, and the tokens that a model reads, without padding.

    Args:
        model: a retriever or a cross-encoder; of anything else, BM25 for instance, tokens are not counted.
    """

    def __init__(self, model: object) -> None:
        self.model = model if isinstance(model, SentenceTransformer | CrossEncoder) else None
        self.seconds = 0.0
        self.tokens = 0
        self._started = 0.0
        self._hook: Any = None

    def __enter__(self) -> Self:
        if self.model is not None:
            self._hook = self.model[0].register_forward_pre_hook(self._count)
        with suppress(OSError):  # Linux counts the greatest memory anew
            Path("/proc/self/clear_refs").write_text("5")
        self._started = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._started
        if self._hook is not None:
            self._hook.remove()

    def describe(self, passages: int, queries: Sequence[str], search: Search | None = None) -> dict[str, Any]:
        """What was measured, ready for JSON; asks some queries again, one at a time.

        Args:
            passages: that were searched.
            queries: texts, of which the first 20 are timed.
            search: what found the passages, where the whole corpus was searched.

        Returns:
            `commit`, `hardware` and `date`; `passages`; `peak_memory`, the most bytes of main memory that the process
            had meanwhile (ever, where the system does not count anew); `search_seconds` that finding the first 100
            passages of one query takes, its encoding included. Of a model `tokens` (None where processes on several
            GPUs read them) and its `settings` (`describe_model`); and of a retriever `dimensions`, `query_seconds` that
            encoding one query takes, and, where it searched, `bytes_per_passage` of its vectors in single precision.
        """
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        found = {**describe_run(), "passages": passages, "peak_memory": peak}
        timed = queries[:_TIMED]
        if search is not None:
            found["search_seconds"] = _mean_seconds(lambda query: search([query], _HITS), timed)
        if self.model is not None:
            found |= {"tokens": self._read(passages), "settings": describe_model(self.model)}
        if isinstance(retriever := self.model, SentenceTransformer):
            found["dimensions"] = retriever.get_embedding_dimension()
            if search is not None:
                found["bytes_per_passage"] = _stored(retriever)
            found["query_seconds"] = _mean_seconds(
                lambda query: retriever.encode_query(query, show_progress_bar=False), timed
            )
        return found

    def _read(self, passages: int) -> int | None:
        """The tokens; None where other processes read most of them."""
        elsewhere = isinstance(self.model, SentenceTransformer) and devices_for(self.model, passages)
        return None if elsewhere else self.tokens

    def _count(self, _: nn.Module, given: tuple[dict[str, Tensor]]) -> None:
        if "attention_mask" in given[0]:
            self.tokens += int(given[0]["attention_mask"].sum())


def _stored(retriever: SentenceTransformer) -> int | None:
    """Bytes of a passage in an index of single precision; None where the model does not tell its dimensions."""
    if head := hybrid_head(retriever):
        return bytes_per_passage(head.dense, head.sparse, head.vocabulary)
    dimensions = retriever.get_embedding_dimension()
    return None if dimensions is None else 4 * dimensions


def _mean_seconds(run: Callable[[str], object], queries: Sequence[str]) -> float:
    started = time.perf_counter()
    with said_before():
        for query in queries:
            run(query)
    return (time.perf_counter() - started) / len(queries)
