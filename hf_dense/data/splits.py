"""Queries divided into train, dev and test by the documents that answer them, so that no split knows another's."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from hf_dense.data.schemas import SPLITS
from hf_dense.errors import InputError

_DRAWS: Final = 20  # of documents that few queries, or many, ask for
_EVEN: Final = 0.5  # share of its queries that every split has at least

Shares = Mapping[str, float]  # of the documents: split -> from 0 to 1, 1 in all


def parse_shares(text: str) -> Shares:
    """The shares of train, dev and test, written as percentages.

    >>> parse_shares("80/10/10")
    {'train': 0.8, 'dev': 0.1, 'test': 0.1}

    Raises:
        InputError: not three of them, or they are not 100 in all.
    """
    try:
        numbers = [float(part) for part in text.split("/")]
    except ValueError:
        numbers = []
    # Written so that what is no number fails, too.
    if len(numbers) != len(SPLITS) or not min(numbers) >= 0 or not abs(sum(numbers) - 100) < 1e-6:
        raise InputError(f"The shares {text!r} are not three percentages for train/dev/test, such as 80/10/10.")
    return {name: number / 100 for name, number in zip(SPLITS, numbers, strict=True)}


def divide_documents(documents: Iterable[str], shares: Shares, seed: int = 0) -> dict[str, str]:
    """The split of each document: drawn by a hash of its id, so that those of many stay when others are added.

    A split that none is drawn for, as happens among few documents, gets those whose draws are nearest to it. Where a
    split has less than half its share of the queries, as happens among some dozens, it is drawn again, twenty times at
    most; of draws that all are so, the most even one is taken.

    Args:
        documents: their ids, each as often as there are queries that it answers.
        shares: see `parse_shares`.
        seed: of the draw.

    Returns:
        The name of its split for each document. No split with a share above 0 is empty where there are as many
        documents as splits; of fewer documents, the first splits get one each.

    >>> divide_documents(["one", "two", "three"], {"train": 0.8, "dev": 0.1, "test": 0.1})
    {'one': 'train', 'three': 'dev', 'two': 'test'}
    """
    queries, best, evenness = Counter(documents), dict[str, str](), -1.0
    for number in range(_DRAWS):
        found = _divided(queries, shares, seed + number)
        if (even := _evenness(queries, found, shares)) > evenness:
            best, evenness = found, even
        if evenness >= _EVEN:
            break
    return best


def _divided(documents: Iterable[str], shares: Shares, seed: int) -> dict[str, str]:
    """The split of each document by one draw."""
    drawn = sorted((even_draw(f"{seed}\0{document}"), document) for document in documents)
    names = [name for name, share in shares.items() if share > 0]
    found, start, reached = dict[str, str](), 0, 0.0
    for number, name in enumerate(names, start=1):
        reached += shares[name]
        after = len(names) - number  # splits, which need a document each
        end = len(drawn) - after
        if after:
            end = max(min(bisect_left(drawn, (reached, "")), end), start + 1)
        found |= {document: name for _, document in drawn[start:end]}
        start = end
    return found


def _evenness(queries: Mapping[str, int], splits: Mapping[str, str], shares: Shares) -> float:
    """The least that a split has of the queries that are its share, 1 for all of them."""
    have, whole = Counter[str](), sum(queries.values())
    for document, split in splits.items():
        have[split] += queries[document]
    return min((have[name] / (share * whole) for name, share in shares.items() if share * whole > 0), default=1.0)


def common_split(documents: Iterable[str], splits: Mapping[str, str]) -> str | None:
    """The split of a query that several documents answer: theirs, or None where they are of different ones.

    Args:
        documents: their ids.
        splits: of all documents, as `divide_documents` divides them.
    """
    found = {splits[document] for document in documents}
    return found.pop() if len(found) == 1 else None


def plain_query(text: str) -> str:
    """What queries have in common that differ in case and white space alone: they are of one split.

    >>> plain_query(" What  is it?") == plain_query("what is IT?")
    True
    """
    return " ".join(text.casefold().split())


def even_draw(key: str) -> float:
    """From 0 to 1, evenly, and the same for a key; the draws of keys that differ are independent."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
