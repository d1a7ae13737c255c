"""Batches of training lists: which rows come together, and how they are put into tensors."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain
from typing import Any, Final

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import BatchSampler

from hf_dense.data.splits import plain_query
from hf_dense.finetuning.lists import PassageLists, passage_numbers

logger = logging.getLogger(__name__)

_PASSES: Final = 3  # over pairs that share so much that one fills fewer batches than are said to come


@dataclass
class ListCollator(SentenceTransformerDataCollator):
    """Collate rows of `query` and `passages`, or pairs, as queries and all their passages in their order.

    Args:
        pairs: where the pairs are from: those of a query are relevant for it all.
    """

    pairs: Sequence[Dataset] = ()

    def __post_init__(self) -> None:
        self._relevant = _numbers_by_query(self.pairs)

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Token ids and masks, and `label`, the teacher's scores (B, N), where rows have them.

        Of numbered rows also what tells which passages of a batch are relevant for a query, as `relevant_passages`
        takes it: `passage_numbers` (B, N) and `query_relevant` (B, M).
        """
        rows = [self._numbered(row) if "passage" in row else row for row in rows]
        queries = super().__call__([{"query": row["query"]} for row in rows])
        passages = super().__call__([{"passage": text} for row in rows for text in row["passages"]])
        labels = {"label": torch.tensor([row["label"] for row in rows])} if "label" in rows[0] else {}
        if "numbers" in rows[0]:
            passages["passage_numbers"] = torch.tensor([row["numbers"] for row in rows])
            relevant = [torch.tensor(row["relevant"]) for row in rows]
            queries["query_relevant"] = pad_sequence(relevant, batch_first=True, padding_value=-1)
        return {**queries, **passages, **labels}

    def _numbered(self, pair: dict[str, Any]) -> dict[str, Any]:
        """A pair as a numbered row of one passage."""
        numbers = passage_numbers([pair["passage"]])
        relevant = self._relevant.get(plain_query(pair["query"]), numbers)
        return {"query": pair["query"], "passages": [pair["passage"]], "numbers": numbers, "relevant": relevant}


def _numbers_by_query(pairs: Sequence[Dataset]) -> dict[str, list[int]]:
    """The numbers of the passages of a query by its words, for those that stand in several pairs."""
    asked = [plain_query(query) for part in pairs for query in part["query"]]
    counts, found = Counter(asked), dict[str, list[str]]()
    for query, passage in zip(asked, chain(*(part["passage"] for part in pairs)), strict=True):
        if counts[query] > 1:
            found.setdefault(query, []).append(passage)
    return {query: passage_numbers(texts) for query, texts in found.items()}


class Waiting:
    """Rows in an order, out of which those are taken that share nothing.

    A row that shares a name with what is taken waits in the queue of that name, and the whole queue is passed over at
    once: a passage that half of the queries have clicked takes no more time than others.

    Args:
        order: the rows.
        names: what a row may share with others.
    """

    def __init__(self, order: Sequence[int], names: Callable[[int], Collection[Any]]) -> None:
        self._order, self._names, self._reached = order, names, 0
        self._queues: dict[Any, list[int]] = {}  # heaps of places in the order
        self._heads: list[tuple[int, Any]] = []  # a heap of their first places, and of some that are gone

    def __bool__(self) -> bool:
        """Whether rows are left."""
        return self._reached < len(self._order) or bool(self._queues)

    def apart(self, most: int) -> list[int]:
        """The next rows of which no two share a name."""
        rows, taken, met = list[int](), set[Any](), set[Any]()
        while len(rows) < most and (place := self._next(taken, met)) is not None:
            names = self._names(self._order[place])
            if (shared := next((name for name in names if name in taken), None)) is None:
                rows.append(self._order[place])
                taken.update(names)
            else:
                heappush(self._queues.setdefault(shared, []), place)
                met.add(shared)
        for name in met:
            self._announce(name)
        return rows

    def first(self, most: int) -> list[int]:
        """The next rows, whatever they share."""
        rows = list[int]()
        while len(rows) < most and (place := self._next(set(), set())) is not None:
            rows.append(self._order[place])
        return rows

    def _next(self, taken: Collection[Any], met: set[Any]) -> int | None:
        """The next place, but for the queues of names that are taken, which are added to `met`."""
        while self._heads:
            place, name = heappop(self._heads)
            queue = self._queues.get(name)
            if not queue or queue[0] != place:
                continue
            if name in taken:
                met.add(name)
                continue
            heappop(queue)
            self._announce(name)
            return place
        self._reached += 1
        return self._reached - 1 if self._reached <= len(self._order) else None

    def _announce(self, name: Any) -> None:
        if queue := self._queues[name]:
            heappush(self._heads, (queue[0], name))
        else:
            del self._queues[name]


class PairSampler(DefaultBatchSampler):
    """Batches of pairs without a text twice: those of Sentence-Transformers' `NoDuplicatesBatchSampler`.

    That one passes over what waits row by row, for every batch, which takes hours where many pairs have one passage.
    """

    def __iter__(self) -> Iterator[list[int]]:
        if self.generator is not None:
            self.generator.manual_seed(self.seed + self.epoch)
        numbers: dict[str, int] = {}
        pairs: Any = self.sampler
        columns = [[numbers.setdefault(text, len(numbers)) for text in pairs[name]] for name in pairs.column_names]
        rows, made = list(zip(*columns, strict=True)), 0
        for number in range(_PASSES):
            waiting = Waiting(torch.randperm(len(rows), generator=self.generator).tolist(), rows.__getitem__)
            while waiting:
                batch = waiting.apart(self.batch_size)
                if len(batch) == self.batch_size or not self.drop_last:
                    yield batch
                    made += 1
                if made >= len(self) and number:
                    break
            if made >= len(self):
                return
            if number == 0:
                logger.warning(
                    "Many pairs share a text, and a batch has none twice: the pairs fill %s batches of %s; the other "
                    "%s of an epoch are drawn of the same pairs again, and some pairs of the texts that are there most "
                    "often are in none. A smaller batch takes more of them.",
                    f"{made:,}",
                    f"{self.batch_size:,}",
                    f"{len(self) - made:,}",
                )


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
        rng, entries = np.random.default_rng([self.lists.seed, self.lists.epoch]), self.lists.entries
        order = rng.permutation(len(self.lists)).tolist()
        waiting = Waiting(order, lambda row: (plain_query(entries[row].query), *entries[row].positives))
        step = self.batch_size * self.processes
        for _ in range(len(self) // self.processes):
            rows = waiting.apart(step)
            missing = step - len(rows)
            if missing and not self.warned:
                self.warned = True
                logger.warning(
                    "Rows that share a query or a positive are put into one step, as too few others are left for its "
                    "%d rows; a positive of a query is no negative of it. A smaller batch keeps them apart.",
                    step,
                )
            rows += waiting.first(missing)
            for start in range(0, step, self.batch_size):
                yield rows[start : start + self.batch_size]
