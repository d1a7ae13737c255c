"""What several tests of evaluation measure."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_retriever import write_dataset, write_retriever


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("dataset") / "beir", passages=300, queries=40)


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_retriever(tmp_path_factory.mktemp("retriever") / "model")
