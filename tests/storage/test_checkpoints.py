"""Which checkpoint a run resumes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hf_dense.errors import InputError
from hf_dense.storage.checkpoints import checkpoint_to_resume


def write_checkpoint(directory: Path, method: str = "retromae", complete: bool = True) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"model_type": method}))
    if complete:
        (directory / "trainer_state.json").write_text("{}")
    return directory


@pytest.mark.parametrize("word", ["last", "true", "True"])
def test_the_newest_complete_checkpoint_is_found(tmp_path: Path, word: str) -> None:
    write_checkpoint(tmp_path / "checkpoint-9")
    newest = write_checkpoint(tmp_path / "checkpoint-10")
    write_checkpoint(tmp_path / "checkpoint-11", complete=False)
    assert checkpoint_to_resume(word, str(tmp_path), "retromae") == str(newest)


@pytest.mark.parametrize("word", [None, "false", "False"])
def test_without_asking_a_run_starts_anew(tmp_path: Path, word: str | None) -> None:
    write_checkpoint(tmp_path / "checkpoint-9")
    assert checkpoint_to_resume(word, str(tmp_path), "retromae") is None


def test_a_checkpoint_may_be_named(tmp_path: Path) -> None:
    named = write_checkpoint(tmp_path / "elsewhere")
    assert checkpoint_to_resume(str(named), str(tmp_path / "out"), "retromae") == str(named)


def test_nothing_to_resume_from_is_refused(tmp_path: Path) -> None:
    for directory in (tmp_path / "missing", tmp_path):
        with pytest.raises(InputError, match=r"There is no complete checkpoint in .*; start without resuming"):
            checkpoint_to_resume("last", str(directory), "retromae")
    write_checkpoint(tmp_path / "checkpoint-3", complete=False)
    with pytest.raises(InputError, match="no complete checkpoint"):
        checkpoint_to_resume("last", str(tmp_path), "retromae")


def test_a_named_checkpoint_that_is_incomplete_or_missing_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint-3", complete=False)
    for name in ("checkpoint-3", "checkpoint-4"):
        with pytest.raises(InputError, match="is not a complete checkpoint"):
            checkpoint_to_resume(str(tmp_path / name), str(tmp_path), "retromae")


@pytest.mark.parametrize("word", ["last", "{tmp}/checkpoint-3"])
def test_another_methods_checkpoint_is_refused(tmp_path: Path, word: str) -> None:
    write_checkpoint(tmp_path / "checkpoint-3", "cotmae")
    with pytest.raises(InputError, match="holds a 'cotmae' model, not 'retromae'; use another directory or method"):
        checkpoint_to_resume(word.format(tmp=tmp_path), str(tmp_path), "retromae")


def test_another_methods_directory_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "cotmae"}')
    with pytest.raises(InputError, match="holds a 'cotmae' model"):
        checkpoint_to_resume(None, str(tmp_path), "retromae")


def test_folders_that_only_look_like_checkpoints_are_passed_over(tmp_path: Path) -> None:
    newest = write_checkpoint(tmp_path / "checkpoint-10")
    write_checkpoint(tmp_path / "checkpoint-best")
    assert checkpoint_to_resume("last", str(tmp_path), "retromae") == str(newest)
