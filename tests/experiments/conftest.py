"""A collection with queries to choose by and others to report on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_retriever import write_dataset


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With train, and with dev and test, each of half of its queries."""
    place = write_dataset(tmp_path_factory.mktemp("data") / "own", passages=60, queries=20)
    head, *rows = (place / "qrels" / "test.tsv").read_text().splitlines()
    for split, odd in (("dev", 0), ("test", 1)):
        kept = [row for row in rows if int(row.split("\t")[0][1:]) % 2 == odd]
        (place / "qrels" / f"{split}.tsv").write_text("\n".join([head, *kept]) + "\n")
    return place
