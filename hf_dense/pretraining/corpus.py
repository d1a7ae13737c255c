"""From a corpus of passages to rows of token ids."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

from datasets import Dataset, Features, IterableDataset, LargeList, List, Value, concatenate_datasets
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dense.data.corpus import check_texts
from hf_dense.data.passages import add_neighbours
from hf_dense.errors import InputError
from hf_dense.modeling.configuration_bottleneck import View, parse_source

logger = logging.get_logger("transformers")

_BUILDERS = {
    "neighbour": "give the columns document and position (hf_dense.data builds them) so that neighbours are known, "
    "or a column of neighbouring passages",
    "queries": "it holds a list of generated queries for each passage",
    "continuation": "it holds a text that a language model continued the passage with",
}
MIN_TOKENS = 2  # a shorter passage leaves nothing to rebuild
_TITLED = ("title", "text")  # of the source `titled`
NOTHING_LEFT = (
    f"every passage is shorter than {MIN_TOKENS} tokens, held out, or (where a method reads neighbours) alone in its "
    "document; give more or longer texts, or hold out less."
)


def hold_out(corpus: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset | None]:
    """Split off whole documents for the evaluation loss.

    Args:
        fraction: share of the documents held out; 0 holds out none.

    Returns:
        Rows to train on, and held-out rows (None when there are none). Which documents are held out is a function of
        their names (of the text of a row that names none) and the seed.
    """
    columns = [corpus[name] for name in held_out_keys(corpus.column_names)]
    held = [is_held_out(values, fraction, seed) for values in zip(*columns, strict=True)]
    rows = [[index for index, out in enumerate(held) if out is side] for side in (False, True)]
    if not rows[1]:
        return corpus, None
    return corpus.select(rows[0]), corpus.select(rows[1])


def held_out_keys(columns: Collection[str]) -> list[str]:
    """The columns by which rows are held out together: the document, and the text of a row that names none."""
    return [name for name in ("document", "text") if name in columns]


def is_held_out(values: Iterable[str | None], fraction: float, seed: int) -> bool:
    """Whether the row with these values of `held_out_keys` is held out."""
    value = next((value for value in values if value is not None), None)
    return zlib.crc32(f"{seed}:{value}".encode()) < int(fraction * 2**32)


def first_queries(
    corpus: Dataset | IterableDataset, most: int | None, sources: Iterable[str]
) -> Dataset | IterableDataset:
    """A corpus with so many generated queries of each passage at most, the first ones; None keeps all.

    Source: query-as-context, table 3; its released code truncates the list, too, and draws one at every visit.

    Raises:
        InputError: fewer than one is asked for, or of a method that reads none.
    """
    if most is None:
        return corpus
    if most < 1:
        raise InputError(f"queries_per_passage is {most}; read at least one query of each passage.")
    if "queries" not in sources:
        raise InputError("queries_per_passage is for methods that read generated queries, and this one reads none.")
    if "queries" not in (corpus.column_names or next(iter(corpus))):  # `query`, which is one
        return corpus
    if isinstance(corpus, IterableDataset):
        return corpus.map(lambda row: {"queries": _first(row["queries"], most)})
    lists = corpus.select_columns("queries").map(
        lambda batch: {"queries": [_first(queries, most) for queries in batch["queries"]]}, batched=True
    )
    return concatenate_datasets([corpus.remove_columns("queries"), lists], axis=1)


def _first(queries: Any, most: int) -> Any:
    """Those of a list; anything else is refused where texts are checked."""
    return queries[:most] if isinstance(queries, list) else queries


def add_sources(corpus: Dataset, sources: list[str], siblings: bool = False) -> Dataset:
    """The corpus with the source columns a method needs.

    Args:
        sources: text columns.
        siblings: whether the method draws several passages of a document; the column `document` is kept then, as a
            number.

    Raises:
        InputError: a column is missing and cannot be built from those that are there.
    """
    if "neighbour" in sources and "neighbour" not in corpus.column_names:
        if not {"document", "position"} <= set(corpus.column_names):
            raise missing_source("neighbour", corpus.column_names)
        corpus = add_neighbours(corpus)
    if "queries" in sources and "queries" not in corpus.column_names and "query" in corpus.column_names:
        corpus = corpus.add_column("queries", corpus["query"][:])
    if "queries" in sources and isinstance(corpus.features.get("queries"), Value):  # one of each passage
        listed = [[query] for query in corpus["queries"]]
        corpus = corpus.remove_columns("queries").add_column("queries", listed)
    missing = [source for source in sources if source not in corpus.column_names]
    if missing:
        raise missing_source(missing[0], corpus.column_names)
    if len(corpus):  # else columns that were made have no type
        check_texts(corpus, {"queries"} & set(sources))
        check_texts(corpus, [source for source in sources if source != "queries"], lists=False)
    if not siblings:
        return corpus.select_columns(sources)
    if "document" not in corpus.column_names:
        raise InputError("The method draws passages of one document together: give the column document.")
    numbers: dict[Any, int] = {}
    names = ((row,) if name is None else name for row, name in enumerate(corpus["document"]))  # a null is no name
    documents = [numbers.setdefault(name, len(numbers)) for name in names]
    return corpus.select_columns(sources).add_column("document", documents)


def missing_source(name: str, columns: Iterable[str]) -> InputError:
    """The error of a corpus that lacks a text column, with what to do about it."""
    advice = f"; {_BUILDERS[name]}" if name in _BUILDERS else ""
    return InputError(f"The method needs the column {name!r}; the corpus has: {', '.join(columns)}{advice}.")


def joined_columns(views: Mapping[str, View]) -> list[str]:
    """The columns that views read as a part of `titled` alone."""
    parts = {part for view in views.values() for source in view.sources for part in parse_source(source)}
    alone = {column for part in parts - {"titled"} for column in View(sources=(part,)).columns}
    return [column for column in _TITLED if "titled" in parts and column not in alone]


def is_long_enough(row: Mapping[str, Sequence[Any]], joined: Collection[str], least: int = MIN_TOKENS) -> bool:
    """Whether each text of a row, and a title with its text, has what leaves something to rebuild.

    Args:
        row: by column, token ids from `token_ids`.
        joined: columns from `joined_columns`, which may have any length.
        least: tokens of a title and its text together.
    """
    together = not joined or sum(len(row[name]) for name in _TITLED) >= least
    return together and all(len(ids) for name, ids in row.items() if name not in joined)


def tokenize(corpus: Dataset, tokenizer: PreTrainedTokenizerBase, joined: Collection[str] = ()) -> Dataset:
    """Token ids of every source, without special tokens, and their total `length`.

    Args:
        corpus: text columns, and perhaps the number of each row's `document`.
        joined: columns from `joined_columns`.

    Returns:
        One column of token ids per text column, as NumPy arrays, `length`, and `document` as it came. Rows in which a
        text (or a title with its text) has fewer than two tokens are left out, and counted in the log; none may be
        left.
    """
    sources = [name for name in corpus.column_names if name != "document"]
    numbers = [name for name in corpus.column_names if name == "document"]

    several = {name for name in sources if isinstance(corpus.features[name], List | LargeList)}

    def encode(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        encoded = {
            source: token_ids(batch[source], tokenizer, source in several, 0 if source in joined else MIN_TOKENS)
            for source in sources
        }
        read = (dict(zip(sources, row, strict=True)) for row in zip(*encoded.values(), strict=True))
        kept = [is_long_enough(row, joined) for row in read]
        rows = {source: list(compress(column, kept)) for source, column in encoded.items()}
        carried = {name: list(compress(batch[name], kept)) for name in numbers}
        lengths = [sum(map(_size, row)) for row in zip(*rows.values(), strict=True)]
        return {**rows, "length": lengths, **carried}

    ids = List(Value("int32"))
    columns = {source: List(ids) if source in several else ids for source in sources}
    columns |= {name: Value("int64") for name in ("length", *numbers)}
    removed = corpus.column_names
    tokenized = corpus.map(encode, batched=True, remove_columns=removed, features=Features(columns), desc="Tokenizing")
    if left_out := len(corpus) - len(tokenized):
        logger.warning(f"{left_out:,} of {len(corpus):,} passages are left out: a text of theirs has no two tokens.")
    return tokenized.with_format("numpy")


def token_ids(
    texts: Sequence[Any], tokenizer: PreTrainedTokenizerBase, several: bool, least: int = MIN_TOKENS
) -> list[Any]:
    """Token ids of texts, or of lists of texts; empty where a text has fewer than the least, or all of a list have."""
    if not several:
        encoded = tokenizer([text or "" for text in texts], add_special_tokens=False, verbose=False)["input_ids"]
        return [ids if len(ids) >= least else [] for ids in encoded]
    flat = iter(token_ids([text for group in texts for text in group or []], tokenizer, False, least))
    return [[ids for ids in (next(flat) for _ in group or []) if ids] for group in texts]


def _size(ids: Any) -> int:
    """Number of tokens of a text; their mean, rounded, where there are several texts."""
    return len(ids) if not ids or not isinstance(ids[0], list) else round(sum(map(len, ids)) / len(ids))
