"""Batches from a corpus that is read while training, however large it is."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import count, islice
from typing import Any

import numpy as np
from datasets import Dataset
from datasets import IterableDataset as Rows
from numpy.typing import NDArray
from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dense.errors import InputError
from hf_dense.pretraining.collator import ViewCollator
from hf_dense.pretraining.corpus import (
    MIN_TOKENS,
    held_out_keys,
    is_held_out,
    is_long_enough,
    joined_columns,
    missing_source,
    token_ids,
)
from hf_dense.pretraining.sampler import grouped

_HELD_OUT_AMONG = 100_000  # rows at the head of a stream; those held out of them are evaluated on
_TWO = re.compile(r"\S\s*\S")  # characters, without which a text has no two tokens

logger = logging.get_logger("transformers")

Row = dict[str, Any]


class _LeftOut:
    """Counts passages as they are read, and logs once that some are left out."""

    def __init__(self) -> None:
        self.read = 0
        self.told = False

    def count(self, read: int, left_out: int) -> None:
        """Add so many passages, of which some are left out."""
        self.read += read
        if left_out and not self.told:
            self.told = True
            logger.warning(
                f"{left_out:,} of the first {self.read:,} passages of the stream are left out: a text of theirs has no "
                "two tokens; later ones are left out without a word."
            )


class PassageStream(IterableDataset[tuple[int, list[Row]]]):
    """An endless stream of batches of texts: epoch after epoch of the corpus, in the order it is stored in.

    Texts are mixed within pools of 64 steps, where those of similar length may go together; files are read in another
    order in each epoch. Every process reads the corpus and takes its batches of each step, so a step holds the same
    texts on any number of processes. The order depends on the seed alone, and batches can be passed over without
    tokenizing.

    Args:
        corpus: streamed rows.
        sources: text columns to keep.
        fraction: share of the documents held out (see `hold_out`), which the stream passes over.
        seed: seed of the order, and of what is held out.
        group_by_length: whether the texts of a step have similar lengths, in characters.
        joined: columns of any length (see `joined_columns`).
        data_seed: seed of the order, where it has one of its own.

    Attributes:
        skip: batches of this process to pass over; set by the trainer when it resumes.

    Raises:
        InputError: a column is missing, or holds lists of texts where one is read.
    """

    def __init__(
        self,
        corpus: Rows,
        sources: list[str],
        fraction: float,
        seed: int,
        group_by_length: bool = True,
        joined: Collection[str] = (),
        data_seed: int | None = None,
    ) -> None:
        first = next(iter(corpus))
        queries = "queries" if "queries" in first else "query"  # or one of each passage
        if "queries" in sources and queries in first and not isinstance(first[queries], list):
            corpus = corpus.map(lambda row: {"queries": _listed(row[queries])})
            first["queries"] = _listed(first[queries])
        if lacking := [source for source in sources if source not in first]:
            raise missing_source(lacking[0], list(first))
        if several := [name for name in sources if name != "queries" and isinstance(first.get(name), list)]:
            raise InputError(
                f"The column {several[0]!r} of the corpus holds lists of texts; give one text of each row."
            )
        self.sources = sources
        self.fraction = fraction
        self.seed = seed
        self.data_seed = seed if data_seed is None else data_seed
        self.group_by_length = group_by_length
        self.joined = joined
        self.left_out = _LeftOut()
        self.keys = held_out_keys(first)
        self.corpus = corpus.select_columns(list({*sources, *self.keys}))
        self.skip = 0
        self.cut(batch=1, step=1)

    def cut(self, batch: int, step: int, process: int = 0, processes: int = 1) -> None:
        """Say how many rows a batch and a step (of all processes) have, and whose batches are wanted."""
        self.batch, self.step, self.process, self.processes = batch, step, process, processes

    def __iter__(self) -> Iterator[tuple[int, list[Row]]]:
        """Batches of this process, from number `skip` on: the epoch, and rows of texts."""
        numbered = enumerate((epoch, batch) for epoch in count() for batch in self._batches(epoch))
        for number, batch in numbered:
            mine, process = divmod(number, self.processes)
            if process == self.process and mine >= self.skip:
                yield batch

    def held_out(self) -> Dataset | None:
        """The held-out rows among the first 100,000, or None."""
        found = [
            {name: row[name] for name in self.sources}
            for row in self.corpus.take(_HELD_OUT_AMONG)
            if self._is_held_out(row)
        ]
        return Dataset.from_list(found) if found else None

    def _batches(self, epoch: int) -> Iterator[list[Row]]:
        """The batches of an epoch; texts left over at its end, fewer than a step's, are passed over."""
        rows, size = self._rows(epoch), 64 * self.step
        rest: list[Row] = []
        for number in count():
            pool = rest + list(islice(rows, size - len(rest)))
            if len(pool) < self.step:
                if not number:
                    raise InputError(f"The corpus has {len(pool)} texts to train on, and a step reads {self.step}.")
                return
            order = self._order(pool, np.random.default_rng([self.data_seed, epoch, number]))
            full = len(pool) // self.step * self.step
            for start in range(0, full, self.batch):
                yield [pool[at] for at in order[start : start + self.batch]]
            rest = [pool[at] for at in order[full:]]

    def _order(self, pool: list[Row], rng: np.random.Generator) -> NDArray[np.int64]:
        if not self.group_by_length:
            return rng.permutation(len(pool))
        return grouped(np.array([sum(map(_letters, row.values())) for row in pool]), self.step, rng)

    def _is_held_out(self, row: Row) -> bool:
        return is_held_out((row[key] for key in self.keys), self.fraction, self.seed)

    def _rows(self, epoch: int) -> Iterator[Row]:
        mixed = self.corpus.shuffle(seed=self.data_seed + epoch, buffer_size=1, max_buffer_input_shards=1)
        for row in mixed:  # with these sizes the files alone are in another order
            if not self._is_held_out(row):
                texts = {
                    name: (row[name] or "") if name in self.joined else _usable(row[name]) for name in self.sources
                }
                usable = all(text for name, text in texts.items() if name not in self.joined)
                self.left_out.count(1, not usable)
                if usable:
                    yield texts


class StreamCollator:
    """Tokenize the texts of a batch and render its views.

    Args:
        collator: of rows of token ids.
        tokenizer: of the texts.

    Raises:
        InputError: no text of a batch has a token.
    """

    def __init__(self, collator: ViewCollator, tokenizer: PreTrainedTokenizerBase) -> None:
        self.collator = collator
        self.tokenizer = tokenizer
        self.joined = joined_columns(collator.views)
        self.least = 1 if collator.config.contrasts else MIN_TOKENS  # processes gather as many vectors of each
        self.left_out = _LeftOut()

    def __call__(self, batch: tuple[int, list[Row]]) -> dict[str, Any]:
        """The views of a batch of a `PassageStream`; texts of one token are read where there are no others."""
        self.collator.epoch, rows = batch
        kept = self._read(rows, self.least)
        self.left_out.count(len(rows), len(rows) - len(kept))
        if not (kept := kept or self._read(rows, 1)):
            raise InputError(
                f"None of the {len(rows)} texts of a batch has a token; give texts that the tokenizer knows."
            )
        return self.collator(kept)

    def _read(self, rows: list[Row], least: int) -> list[dict[str, Any]]:
        """The rows, as token ids, whose texts have the least number of them."""
        columns = {}
        for name, first in rows[0].items():
            several = isinstance(first, list)
            ids = token_ids([row[name] for row in rows], self.tokenizer, several, 0 if name in self.joined else least)
            columns[name] = [[*map(_array, text)] if several else _array(text) for text in ids]
        read = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
        return [row for row in read if is_long_enough(row, self.joined, least)]


def _usable(text: Any) -> Any:
    """A text of two characters or more, or those of a list; otherwise nothing."""
    if isinstance(text, list):
        return [part for part in text if _TWO.search(part or "")]
    return text if _TWO.search(text or "") else ""


def _listed(text: Any) -> list[Any]:
    """Several texts as they are, one as a list."""
    return text if isinstance(text, list) else [text]


def _letters(text: Any) -> int:
    """Length of a text; of a list the mean, rounded."""
    return len(text) if isinstance(text, str) else round(sum(map(len, text)) / len(text))


def _array(ids: Sequence[int]) -> NDArray[np.int32]:
    return np.asarray(ids, dtype=np.int32)
