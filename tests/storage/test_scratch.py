"""Users without a home, caches that may not be written, and no place for temporary files."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from datasets.config import HF_DATASETS_CACHE
from huggingface_hub.constants import HF_HOME

import hf_dense
from hf_dense.commands import search
from hf_dense.commands.main import main
from hf_dense.errors import InputError
from hf_dense.storage.output import Output
from hf_dense.storage.scratch import advice_on, may_be_written, settle_home


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whom the machine does not know, as in `docker run --user 12345` with an empty environment."""

    def unknown(user: int) -> pwd.struct_passwd:
        raise KeyError(user)

    monkeypatch.setenv("HOME", "")  # so that the environment is as it was, afterwards
    monkeypatch.setenv("MTEB_CACHE", "")
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("MTEB_CACHE")
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.usefixtures("nobody")
def test_an_output_is_written_without_a_home(tmp_path: Path) -> None:
    with Output(tmp_path / "out").stage("corpus", {}) as work:
        (work.result / "file").write_text("")
    assert (tmp_path / "out" / "file").is_file()


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("by_command", [True, False])
def test_who_has_no_home_is_given_the_root(by_command: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "run", lambda arguments: None)
    if by_command:
        main(["search", "model", "question"])
    else:
        with pytest.raises(InputError, match="nowhere"):
            hf_dense.mine("nowhere", out="out")
    assert Path.home() == Path("/")


def test_mteb_has_a_cache_where_the_home_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTEB_CACHE", "")
    monkeypatch.delenv("MTEB_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    settle_home()
    assert "MTEB_CACHE" not in os.environ
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    settle_home()
    Path(os.environ["MTEB_CACHE"]).mkdir(parents=True, exist_ok=True)


def test_a_home_of_others_that_may_not_be_entered_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.stat

    def refuse(place: Any, **more: Any) -> os.stat_result:
        if f"{tmp_path}{os.sep}" in str(place):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
        return found(place, **more)

    monkeypatch.setattr(os, "stat", refuse)
    monkeypatch.setattr(os, "access", lambda *asked: False)
    assert not may_be_written(tmp_path / ".cache" / "mteb")


@pytest.mark.parametrize(
    "place",
    [HF_HOME, f"{HF_DATASETS_CACHE}/json", str(Path(HF_HOME).parent)],
    ids=["home of the caches", "data sets", "above"],
)
def test_a_cache_that_may_not_be_written_says_which_variable_to_set(
    place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(arguments: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", place)

    monkeypatch.setattr(search, "run", refuse)
    with pytest.raises(SystemExit) as stopped:
        main(["search", "model", "question"])
    assert stopped.value.code == 2
    assert "set HF_HOME" in capsys.readouterr().err


def test_no_place_for_temporary_files_says_which_variable_to_set() -> None:
    nowhere = FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")
    assert "TMPDIR" in str(advice_on(nowhere))
    assert "TMPDIR" in str(advice_on(OSError(errno.ENOSPC, "No space left on device")))
    assert advice_on(OSError(errno.EACCES, "Permission denied", "/somewhere/else")) is None
    assert advice_on(ValueError("of something else")) is None
