"""An array whose end had no room is no array."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hf_dense.search.approximate import CandidateIndex
from hf_dense.search.bm25 import LexicalIndex
from hf_dense.search.dense import Vectors
from hf_dense.storage.arrays import check_array


@pytest.mark.parametrize("shape", [(100, 8), (7,), (0, 8)])
def test_what_is_whole_passes(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(shape, np.float32))
    check_array(tmp_path / "a.npy")


@pytest.mark.parametrize("kept", [0, 60, 128, 3_000])
def test_what_was_cut_off_does_not(kept: int, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((100, 8), np.float32))
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(content[:kept])
    with pytest.raises(OSError, match=r"No space left") as raised:
        check_array(tmp_path / "a.npy")
    assert raised.value.errno == errno.ENOSPC


@contextmanager
def files_of(largest: int) -> Iterator[None]:
    """No file may be larger, as if the disk were full then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def build_lexical(folder: Path) -> None:
    LexicalIndex.build([f"word{number} of{number % 7} it{number % 3}" for number in range(50)], folder)


def build_candidates(folder: Path) -> None:
    vectors = folder.with_name("vectors-00000.npy")
    if not vectors.exists():
        np.save(vectors, np.random.default_rng(0).standard_normal((100, 8), np.float32))
    CandidateIndex.build(Vectors.stored(folder.parent), "int8").save(folder)


@pytest.mark.parametrize("build", [build_lexical, build_candidates])
def test_an_index_whose_end_had_no_room_is_an_error(build: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    build(tmp_path / "whole")
    sizes = {file.stat().st_size for file in (tmp_path / "whole").iterdir()}
    for size in sizes:
        (tmp_path / str(size)).mkdir()
        with pytest.raises(OSError, match=r"No space left|File too large|written"), files_of(size - 1):
            build(tmp_path / str(size))
