"""Batches of training lists: which rows come together, and how they are put into tensors."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import BatchSampler

from hf_dense.finetuning.lists import PassageLists

logger = logging.getLogger(__name__)


class ListCollator(SentenceTransformerDataCollator):
    """Collate rows of `query` and `passages`, or held-out pairs, as queries and all their passages in their order."""

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Token ids and masks, and `label`, the teacher's scores (B, N), where rows have them.

        Of numbered rows also what tells which passages of a batch are relevant for a query, as `relevant_passages`
        takes it: `passage_numbers` (B, N) and `query_relevant` (B, M).
        """
        queries = super().__call__([{"query": row["query"]} for row in rows])
        passages = super().__call__(
            [{"passage": text} for row in rows for text in row.get("passages") or [row["passage"]]]
        )
        labels = {"label": torch.tensor([row["label"] for row in rows])} if "label" in rows[0] else {}
        if "numbers" in rows[0]:
            passages["passage_numbers"] = torch.tensor([row["numbers"] for row in rows])
            relevant = [torch.tensor(row["relevant"]) for row in rows]
            queries["query_relevant"] = pad_sequence(relevant, batch_first=True, padding_value=-1)
        return {**queries, **passages, **labels}


class SharedBatches(BatchSampler):
    """The batches of several processes, cut from batches of a whole step, so that what these keep apart is apart.

    Args:
        steps: batches for all processes together.
        batch: rows of a batch.
    """

    def __init__(self, steps: DefaultBatchSampler, batch: int) -> None:
        self.sampler: Any = steps  # which accelerate tells the epoch
        self.batch_size, self.drop_last = batch, steps.drop_last

    def __len__(self) -> int:
        processes: int = self.sampler.batch_size // self.batch_size
        return processes * len(self.sampler)

    def __iter__(self) -> Iterator[list[int]]:
        for step in self.sampler:
            for start in range(0, len(step), self.batch_size):
                yield step[start : start + self.batch_size]


class ListSampler(BatchSampler):
    """Batches of lists: the rows of a step (over all processes) share no query and no positive, as far as can be.

    The order depends on the lists' seed and the epoch alone; rows that fill no step are left out. Where rows that share
    something are put together, a warning says so, once.

    Args:
        lists: what is drawn from.
        batch: rows of a batch.
        processes: batches of a step.
    """

    def __init__(self, lists: PassageLists, batch: int, processes: int = 1) -> None:
        self.lists, self.batch_size, self.processes = lists, batch, processes
        self.drop_last, self.warned = True, False

    def __len__(self) -> int:
        return len(self.lists) // (self.batch_size * self.processes) * self.processes

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng([self.lists.seed, self.lists.epoch])
        waiting = deque(rng.permutation(len(self.lists)).tolist())
        step = self.batch_size * self.processes
        for _ in range(len(self) // self.processes):
            rows, passed, seen = list[int](), list[int](), set[str]()
            while waiting and len(rows) < step:
                entry = self.lists.entries[waiting[0]]
                names = {entry.query, *entry.positives}
                if names & seen:
                    passed.append(waiting.popleft())
                else:
                    rows.append(waiting.popleft())
                    seen |= names
            missing = step - len(rows)
            if missing and not self.warned:
                self.warned = True
                logger.warning(
                    "Rows that share a query or a positive are put into one step, as too few others are left for its "
                    "%d rows; a positive of a query is no negative of it. A smaller batch keeps them apart.",
                    step,
                )
            rows += passed[:missing]
            waiting.extendleft(reversed(passed[missing:]))
            for start in range(0, step, self.batch_size):
                yield rows[start : start + self.batch_size]
