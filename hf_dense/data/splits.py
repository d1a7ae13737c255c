"""Queries divided into train, dev and test by the documents that answer them, so that no split knows another's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from hf_dense.data.schemas import SPLITS
from hf_dense.errors import InputError

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


def split_of(document: str, shares: Shares, seed: int = 0) -> str:
    """The split of a document: by a hash of its id, so that none moves when others are added.

    Args:
        document: its id.
        shares: see `parse_shares`.
        seed: of the draw.

    >>> [split_of(name, {"train": 0.5, "dev": 0.5, "test": 0.0}) for name in ("e", "f", "g", "h")]
    ['dev', 'dev', 'train', 'train']
    """
    digest = hashlib.blake2b(f"{seed}\0{document}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    drawn, last = int.from_bytes(digest, "big") / 2**64, ""
    for name, share in shares.items():
        if share > 0:
            drawn, last = drawn - share, name
            if drawn < 0:
                break
    return last


def common_split(documents: Iterable[str], shares: Shares, seed: int = 0) -> str | None:
    """The split of a query that several documents answer: theirs, or None where they are of different ones."""
    found = {split_of(document, shares, seed) for document in documents}
    return found.pop() if len(found) == 1 else None
