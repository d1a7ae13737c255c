"""Files and directories are whole or absent."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hf_dense.errors import InputError, run_main
from hf_dense.files import atomic_directory, write_text


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_directory_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with atomic_directory(target) as work:
        assert work.parent == target.parent
        (work / "a").write_text("1")
        assert not target.exists()
    assert (target / "a").read_text() == "1"
    assert names(target.parent) == ["out"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with atomic_directory(tmp_path / "out") as work:
            (work / "a").write_text("1")
            raise error

    with pytest.raises(error):
        fail()
    assert names(tmp_path) == []


def test_a_failure_leaves_the_old_directory(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("0")

    def fail() -> None:
        with atomic_directory(tmp_path / "out") as work:
            (work / "new").write_text("1")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["old"]


def test_an_old_directory_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("0")
    with atomic_directory(str(tmp_path / "out")) as work:
        (work / "new").write_text("1")
        assert names(tmp_path / "out") == ["old"]
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["new"]


def test_text_is_written_whole_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    write_text(path, "é")
    write_text(path, "ü\n")
    assert path.read_bytes() == "ü\n".encode()
    assert names(path.parent) == ["a.txt"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_text_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.txt", "new \ud800")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_an_input_error_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise InputError("The corpus is empty.")

    with pytest.raises(SystemExit) as caught:
        run_main(main)
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: The corpus is empty.\n"


def test_another_error_is_not_hidden() -> None:
    def main() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        run_main(main)
