"""Files are written wholly or not at all."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from hf_dense.storage.files import replaced_file, write_text


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
