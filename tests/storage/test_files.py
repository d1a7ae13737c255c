"""Files are written wholly or not at all."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from hf_dense.errors import InputError
from hf_dense.storage.files import plain_errors, replaced_file, write_text


def write_and_die(path: str) -> None:
    with replaced_file(path) as partial:
        partial.write_text("half of", encoding="utf-8")
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("name", ["results.json", "a [b] *.md"])
def test_what_a_killed_run_was_writing_goes_with_the_next_writing(tmp_path: Path, name: str) -> None:
    write_text(tmp_path / name, "before")
    child = multiprocessing.get_context("spawn").Process(target=write_and_die, args=(str(tmp_path / name),))
    child.start()
    child.join()
    left = [path for path in tmp_path.iterdir() if path.name != name]
    assert len(left) == 1
    assert (tmp_path / name).read_text() == "before"
    for others in (f".hf_dense.{os.getpid()}.{name}", ".hf_dense.lock", f"{child.pid}.{name}", f".hf_dense.x.{name}"):
        (tmp_path / others).write_text("not to be touched")
    write_text(tmp_path / "other.json", "other")
    assert left[0].exists(), "a file is cleared by who writes it"
    with replaced_file(tmp_path / name) as partial:
        assert not left[0].exists()
        partial.write_text("after", encoding="utf-8")
    assert (tmp_path / name).read_text() == "after"
    assert (tmp_path / f"{child.pid}.{name}").exists()
    assert (tmp_path / ".hf_dense.lock").exists()


def test_a_file_that_another_run_is_writing_is_left_to_it(tmp_path: Path) -> None:
    running = tmp_path / f".hf_dense.{os.getppid()}.results.json"
    running.write_text("half of")
    write_text(tmp_path / "results.json", "whole")
    assert running.read_text() == "half of"


def write_with_torch(path: Path) -> None:
    torch.save({"a": torch.zeros(5_000)}, path)


def write_with_safetensors(path: Path) -> None:
    save_file({"a": torch.zeros(5_000)}, path)


def write_with_numpy(path: Path) -> None:
    np.save(path, np.zeros(5_000))


def write_with_faiss(path: Path) -> None:
    index = faiss.IndexFlatIP(8)
    index.add(np.zeros((1_000, 8), np.float32))
    faiss.write_index(index, str(path))


def write_with_arrow(path: Path) -> None:
    parquet.write_table(pa.table({"a": np.random.default_rng(0).random(5_000)}), path)


def write_with_tokenizers(path: Path) -> None:
    Tokenizer(models.WordLevel({str(number): number for number in range(1_000)}, unk_token="0")).save(str(path))


@pytest.mark.parametrize(
    "write",
    [
        write_with_torch,
        write_with_safetensors,
        write_with_numpy,
        write_with_faiss,
        write_with_arrow,
        write_with_tokenizers,
    ],
)
def test_a_disk_that_fills_up_within_a_file_is_one_sentence_whoever_writes(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    """A file that may not be larger stands for the disk: both end a writing in its midst."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, before[1]))
    try:
        with pytest.raises(InputError, match="no room left to write the model"), plain_errors("the model"):
            write(tmp_path / "written")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_may_not_be_written_has_the_name_that_was_given(tmp_path: Path) -> None:
    def refuse(file: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(file))

    wanted = tmp_path / "hits.jsonl"
    with (
        pytest.raises(InputError, match=r"/hits\.jsonl may not be written"),
        plain_errors(wanted),
        replaced_file(wanted) as file,
    ):
        refuse(file)
    with pytest.raises(InputError, match="/weights may not be written"), plain_errors(wanted):
        refuse(tmp_path / "weights")
