"""The rule for every directory that we write: nothing foreign is lost, nothing stale is used."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manifests import manifest_of
from safetensors.numpy import save_file

from hf_dense.errors import InputError
from hf_dense.storage import manifest
from hf_dense.storage import output as output_module
from hf_dense.storage.fingerprints import fingerprint_path
from hf_dense.storage.manifest import COMPLETE, MANIFEST, Manifest, difference
from hf_dense.storage.output import Output
from hf_dense.storage.places import LOCK, Source, check_place

SCAN = os.scandir


def make(path: Path, text: str = "a", kind: str = "corpus", overwrite: bool = False, pieces: bool = False) -> bool:
    """Write an output; whether there was anything to do."""
    with Output(path, overwrite=overwrite).stage(kind, {"text": text}, resumable=pieces) as work:
        if not work.done:
            (work.result / "deep").mkdir()
            (work.result / "deep" / "text").write_text(text)
            (work.result / "README.md").write_text(f"card of {text}")
        return not work.done


def again(out: Path) -> Any:
    """Begin what `make` writes."""
    return Output(out).stage("corpus", {"text": "a"})


def output_is_made(out: Path, settings: dict[str, Any]) -> bool:
    """Whether there is anything to do, in place of what is there."""
    with Output(out, overwrite=True).stage("retriever", settings) as work:
        return not work.done


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def test_an_output_is_there_when_it_is_complete(tmp_path: Path) -> None:
    with Output(tmp_path / "in" / "out", command="hf-dense x", licence="mit").stage("corpus", {"a": 1}, seed=3) as work:
        (work.result / "text").write_text("12")
        work.facts["rows"] = 2
        assert not work.path.exists()
    assert sorted(contents(tmp_path)) == [f"in/out/{MANIFEST}", "in/out/text"]
    manifest = manifest_of(tmp_path / "in" / "out")
    assert (manifest.kind, manifest.state, manifest.files) == ("corpus", "complete", {"text": 2})
    assert (manifest.command, manifest.licence, manifest.seed) == ("hf-dense x", "mit", 3)
    assert (manifest.facts, manifest.made_from["seed"]) == ({"rows": 2}, 3)
    assert manifest.run["hardware"]["cores"] >= 1


def test_umask_is_respected(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        make(tmp_path / "out")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o750
    assert stat.S_IMODE((tmp_path / "out" / MANIFEST).stat().st_mode) == 0o640


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_weights_may_be_read_by_whom_the_umask_lets(umask: int, tmp_path: Path) -> None:
    weights = {"weight": np.zeros(3, np.float32)}
    before = os.umask(umask)
    try:
        with Output(tmp_path / "made").stage("retriever", {}) as made:
            save_file(weights, made.result / "model.safetensors")
        with Output(tmp_path / "worked").occupy("training", {}, claims=["model.safetensors"]) as worked:
            save_file(weights, worked.path / "model.safetensors")
            worked.complete()
    finally:
        os.umask(before)
    for place in ("made", "worked"):
        assert stat.S_IMODE((tmp_path / place / "model.safetensors").stat().st_mode) == 0o666 & ~umask


def test_the_same_again_is_done(tmp_path: Path) -> None:
    assert make(tmp_path / "out")
    before = contents(tmp_path)
    assert not make(tmp_path / "out")
    assert contents(tmp_path) == before


def test_something_else_is_refused_and_replaced_when_asked(tmp_path: Path) -> None:
    make(tmp_path / "out")
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"was made from another text \(a, now b\).*--overwrite"):
        make(tmp_path / "out", "b")
    assert contents(tmp_path) == before
    assert make(tmp_path / "out", "b", overwrite=True)
    assert (tmp_path / "out" / "deep" / "text").read_text() == "b"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("occupied", [False, True])
def test_an_output_inside_goes_with_it_and_is_named(
    occupied: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def outer(text: str, overwrite: bool = False) -> bool:
        if not occupied:
            return make(tmp_path / "out", text, overwrite=overwrite)
        with Output(tmp_path / "out", overwrite=overwrite).occupy("run", {"text": text}) as work:
            done = work.done
            work.complete()
        return not done

    outer("a")
    make(tmp_path / "out" / "index", kind="index")
    assert not outer("a")
    assert not caplog.records
    outer("b", overwrite=True)
    assert caplog.messages == [f"{tmp_path / 'out'} is replaced, and with it what lies in it: index."]
    assert not (tmp_path / "out" / "index").exists()


def test_what_the_command_of_an_output_wrote_inside_is_not_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def written(text: str, overwrite: bool = False) -> None:
        output = Output(tmp_path / "out", overwrite=overwrite, command="hf-dense finetune")
        with output.occupy("run", {"text": text}, claims=()) as work:
            with output.at("model").stage("retriever", {"text": text}) as model:
                (model.result / "weights").write_text(text)
            work.complete()

    written("a")
    with Output(tmp_path / "out" / "model" / "index", command="hf-dense search").stage("index", {}):
        pass
    written("b", overwrite=True)
    assert caplog.messages == [f"{tmp_path / 'out'} is replaced, and with it what lies in it: model/index."]


@pytest.mark.parametrize("name", ["thesis.tex", "deep/thesis.tex", "index/thesis.tex"])
def test_what_came_into_an_output_is_not_deleted(tmp_path: Path, name: str) -> None:
    make(tmp_path / "out")
    make(tmp_path / "out" / "index", kind="index")
    (tmp_path / "out" / name).write_text("years of work")
    before = contents(tmp_path)
    with pytest.raises(InputError, match=name):
        make(tmp_path / "out", "b", overwrite=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("card", ["a card that somebody wrote", "card of A"])  # of other bytes, of as many
def test_what_was_changed_in_an_output_is_not_deleted(tmp_path: Path, card: str) -> None:
    make(tmp_path / "out")
    (tmp_path / "out" / "README.md").write_text(card)
    with pytest.raises(InputError, match=r"README\.md is not as hf_dense wrote it"):
        make(tmp_path / "out", "b", overwrite=True)


@pytest.mark.parametrize("again", [False, True])
def test_what_was_changed_to_as_many_bytes_in_work_is_not_deleted(again: bool, tmp_path: Path) -> None:
    run = Output(tmp_path / "run", overwrite=True)
    with run.occupy("tables", {}, claims=["table.md"], again=again) as work:
        (work.path / "table.md").write_text("| 1 |")
        work.complete()
    (tmp_path / "run" / "table.md").write_text("| 2 |")
    with pytest.raises(InputError, match=r"table\.md is not as hf_dense wrote it"):
        run.occupy("tables", {} if again else {"more": 1}, claims=["table.md"], again=again)
    assert (tmp_path / "run" / "table.md").read_text() == "| 2 |"


def test_a_manifest_without_hashes_goes_by_bytes(tmp_path: Path) -> None:
    make(tmp_path / "out")
    values = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert list(values.pop("hashes")) == ["README.md", "deep/text"]
    (tmp_path / "out" / MANIFEST).write_text(json.dumps(values))
    assert not make(tmp_path / "out")
    assert make(tmp_path / "out", "b", overwrite=True)


def test_what_comes_into_an_output_while_it_is_replaced_is_not_deleted(tmp_path: Path) -> None:
    make(tmp_path / "out")

    def replaced() -> None:
        with Output(tmp_path / "out", overwrite=True).stage("corpus", {"text": "b"}):
            (tmp_path / "out" / "thesis.tex").write_text("years of work")

    with pytest.raises(InputError, match="thesis"):
        replaced()
    assert (tmp_path / "out" / "thesis.tex").exists()
    assert (tmp_path / "out" / "deep" / "text").read_text() == "a"


def test_a_large_file_that_was_changed_to_as_many_bytes_is_not_deleted(tmp_path: Path) -> None:
    out, large = tmp_path / "out", np.zeros(300_000, np.float32)
    with Output(out).stage("retriever", {"a": 1}) as work:
        save_file({"weight": large}, work.result / "model.safetensors")
    assert not output_is_made(out, {"a": 1})
    save_file({"weight": large + 1}, out / "model.safetensors")  # somebody trained it further
    with pytest.raises(InputError, match=r"model\.safetensors is not as hf_dense wrote it"):
        output_is_made(out, {"a": 2})


def test_a_piece_of_a_large_file_that_was_changed_is_seen_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "_SMALL", 1_000)
    monkeypatch.setattr(manifest, "_BLOCKS", 8)
    monkeypatch.setattr(manifest, "_BLOCK", 16)
    large, content, piece = tmp_path / "large", bytes(10_000), 10_000 // 7
    large.write_bytes(content)
    found = Manifest("retriever", COMPLETE).listing(tmp_path, {"large": len(content)})
    for start in range(0, len(content) - piece + 1, 10):
        large.write_bytes(content[:start] + b"x" * piece + content[start + piece :])
        assert not found.is_unchanged(tmp_path, "large"), start
    large.write_bytes(content)
    assert found.is_unchanged(tmp_path, "large")


@pytest.mark.parametrize("name", ["result", "old"])
def test_an_output_that_is_called_as_unfinished_work_is_not_touched(tmp_path: Path, name: str) -> None:
    called = tmp_path / "out.partial"
    with Output(called).occupy("evaluations", {}, again=True) as work:
        make(called / name)
        work.complete()
    before = contents(called)
    with pytest.raises(InputError, match=r"out\.partial was not written by hf_dense"):
        make(tmp_path / "out")
    assert contents(called) == before


def test_what_comes_into_an_output_while_what_it_lacks_is_made_again_is_not_deleted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    make(out)
    (out / "README.md").unlink()

    def made_again() -> None:
        with again(out) as work:
            (work.result / "README.md").write_text("b")
            (out / "mine").write_text("mine")

    with pytest.raises(InputError, match="mine is not as hf_dense wrote it"):
        made_again()
    assert (out / "mine").read_text() == "mine"


def test_an_output_whose_unfinished_work_was_removed_is_not_complete(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="was removed while"), again(tmp_path / "out") as work:
        shutil.rmtree(work.partial)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_a_manifest_that_is_no_file_is_none_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    (tmp_path / "out").mkdir()
    (os.mkfifo if kind == "pipe" else os.mkdir)(tmp_path / "out" / MANIFEST)
    with pytest.raises(InputError, match="was not written by hf_dense"):
        make(tmp_path / "out")


@pytest.mark.parametrize(
    "marker", ["README.md", "config.json", "modules.json", "counts.json", "settings.json", MANIFEST]
)
@pytest.mark.parametrize("place", ["out", "out.partial"])
def test_a_foreign_directory_is_not_touched(tmp_path: Path, marker: str, place: str) -> None:
    (tmp_path / place).mkdir()
    (tmp_path / place / marker).write_text("{}")
    (tmp_path / place / "thesis.tex").write_text("years of work")
    before = contents(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(InputError, match="was not written by hf_dense"):
            make(tmp_path / "out", overwrite=overwrite, pieces=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("claims", [[1], [""], 5])
def test_a_manifest_that_is_none_is_foreign(tmp_path: Path, claims: object) -> None:
    (tmp_path / "out").mkdir()
    values = {"kind": "corpus", "state": "running", "claims": claims}
    (tmp_path / "out" / MANIFEST).write_text(json.dumps(values))
    with pytest.raises(InputError, match="was not written by hf_dense"):
        make(tmp_path / "out", overwrite=True)


def test_a_manifest_nested_without_end_is_foreign(tmp_path: Path) -> None:
    """JSON reads tables in one another that are too deep to be copied and written again."""
    make(tmp_path / "out")
    file, deep = tmp_path / "out" / MANIFEST, "[" * 800 + "]" * 800
    file.write_text(file.read_text().replace('"facts": {}', f'"facts": {{"a": {deep}}}'))
    assert deep in file.read_text()
    with pytest.raises(InputError, match="was not written by hf_dense"):
        make(tmp_path / "out", text="b", overwrite=True)


def test_another_kind_is_not_replaced(tmp_path: Path) -> None:
    make(tmp_path / "out", kind="retriever")
    with pytest.raises(InputError, match=r"another kind of output \(retriever, not corpus\)"):
        make(tmp_path / "out", overwrite=True)


@pytest.mark.parametrize("place", ["data/in", "data", "."])
def test_a_source_or_what_holds_it_is_not_replaced(tmp_path: Path, place: str) -> None:
    (tmp_path / "data" / "in").mkdir(parents=True)
    source = {"corpus": Source(str(tmp_path / "data" / "in"), "f")}
    with pytest.raises(InputError, match="the corpus, and would replace it"):
        Output(tmp_path / place, overwrite=True).stage("corpus", {}, source)


@pytest.mark.parametrize("place", [".", "..", ""])
def test_the_working_directory_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    make(tmp_path / "work" / "out")
    monkeypatch.chdir(tmp_path / "work" / "out")
    with pytest.raises(InputError, match="the working directory, and would replace it"):
        make(Path(place), "b", overwrite=True)
    with pytest.raises(InputError, match="the working directory, and would replace it"):
        Output(Path(place), overwrite=True).occupy("corpus", {})


def test_the_home_directory_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    with pytest.raises(InputError, match="the home directory"):
        make(tmp_path / "home")


@pytest.mark.parametrize("place", ["out", "out.partial"])
def test_a_symbolic_link_is_not_followed(tmp_path: Path, place: str) -> None:
    make(tmp_path / "elsewhere")
    (tmp_path / place).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="symbolic link"):
        make(tmp_path / "out", "b", overwrite=True)
    assert (tmp_path / "elsewhere" / "deep" / "text").read_text() == "a"


def test_a_symbolic_link_inside_is_not_followed(tmp_path: Path) -> None:
    make(tmp_path / "out")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "text").write_text("a")
    shutil.rmtree(tmp_path / "out" / "deep")
    (tmp_path / "out" / "deep").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="deep is not as"):
        make(tmp_path / "out", "b", overwrite=True)
    assert (tmp_path / "elsewhere" / "text").exists()


def test_a_tilde_that_no_shell_has_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--out=~/mine`: libraries disagree about what it means."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="begins with a ~ that no shell has read"):
        check_place(Path("~/mine"))
    check_place(Path("~mine"))


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("years of work")
    with pytest.raises(InputError, match="is a file"):
        make(tmp_path / "out", overwrite=True)


def test_a_place_that_cannot_be_written_is_said_in_a_sentence() -> None:
    with pytest.raises(InputError, match="may not be written"):
        make(Path("/sys/out"))


def test_a_second_run_is_kept_out(tmp_path: Path) -> None:
    with (
        Output(tmp_path / "out").stage("corpus", {}),
        pytest.raises(InputError, match="Another run is writing"),
        Output(tmp_path / "out").stage("corpus", {}),
    ):
        pass
    with (
        Output(tmp_path / "work").occupy("training", {}),
        pytest.raises(InputError, match="Another run is writing"),
        Output(tmp_path / "work").occupy("training", {}),
    ):
        pass


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, InputError])
def test_a_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def fail(**options: bool) -> None:
        with Output(tmp_path / "out").stage("corpus", {}, **options) as work:
            (work.result / "text").write_text("a")
            raise error

    for options in ({}, {"resumable": True}):
        with pytest.raises(error):
            fail(**options)
        assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_the_pieces_of_a_long_work(tmp_path: Path) -> None:
    def run(text: str, fails: bool = False, overwrite: bool = False) -> bool:
        with Output(tmp_path / "out", overwrite=overwrite).stage("corpus", {"text": text}, resumable=True) as work:
            went_on = work.resumed
            assert (work.pieces / "1").exists() == went_on
            (work.pieces / "1").write_text("1")
            if fails:
                raise KeyboardInterrupt
            (work.result / "text").write_text(text)
            return went_on

    with pytest.raises(KeyboardInterrupt):
        run("a", fails=True)
    with pytest.raises(InputError, match=r"holds unfinished work made from another text \(a, now b\)"):
        run("b")
    with pytest.raises(KeyboardInterrupt):
        run("a", fails=True)
    assert run("a")
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    with pytest.raises(KeyboardInterrupt):
        run("b", fails=True, overwrite=True)
    assert (tmp_path / "out" / "text").read_text() == "a"
    assert not run("c", overwrite=True)
    assert contents(tmp_path / "out")["text"] == b"c"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


class FilesFirst:
    """What `os.scandir` gives, files before folders, as Python 3.13 removes them; others take them as they come."""

    def __init__(self, *given: Any) -> None:
        with SCAN(*given) as entries:
            self.entries = iter(sorted(entries, key=lambda entry: entry.is_dir(follow_symlinks=False)))

    def __enter__(self) -> FilesFirst:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self.entries

    def __next__(self) -> os.DirEntry[str]:
        return next(self.entries)

    def close(self) -> None:
        """As that of `os.scandir`."""


def _killed(replacing: Callable[[], object], stop: int) -> None:
    """Replace an output, and die at the `stop`-th change of the disk, without the cleaning that exceptions bring."""
    done = 0

    def counted(change: Callable[..., object]) -> Callable[..., object]:
        def step(*given: object, **named: object) -> object:
            nonlocal done
            done += 1
            if done == stop:
                os._exit(9)
            return change(*given, **named)

        return step

    for name in ("rename", "replace", "unlink", "rmdir", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))
    os.scandir = FilesFirst
    replacing()
    os._exit(0)


def killed(replacing: Callable[[], object], stop: int) -> int:
    """The exit code of a process that is killed at the `stop`-th change; 0 where it was done before."""
    process = multiprocessing.get_context("fork").Process(target=_killed, args=(replacing, stop))
    process.start()
    process.join()
    return process.exitcode or 0


@pytest.mark.parametrize("wanted", ["a", "b"])
def test_a_run_killed_anywhere_leaves_the_old_output_or_the_new(tmp_path: Path, wanted: str) -> None:
    exit_code, stop = 9, 0
    while exit_code == 9:
        stop += 1
        place = tmp_path / str(stop)
        make(place / "out")
        exit_code = killed(partial(make, place / "out", "b", overwrite=True, pieces=True), stop)
        make(place / "out", wanted, overwrite=True)
        assert (place / "out" / "deep" / "text").read_text() == wanted
        assert sorted(contents(place)) == ["out/README.md", "out/deep/text", f"out/{MANIFEST}"]
    assert (exit_code, stop > 10) == (0, True)


def test_work_that_is_killed_anywhere_as_it_is_replaced_is_known_as_ours(tmp_path: Path) -> None:
    def work(out: Path, rate: int) -> None:
        with Output(out, overwrite=True).occupy("training", {"rate": rate}, claims=["weights", "deep"]) as work:
            if work.done:
                return
            (work.path / "deep" / "er").mkdir(parents=True, exist_ok=True)
            for name in ("weights", "deep/er/text"):
                (work.path / name).write_text(str(rate))
            work.complete()

    exit_code, stop = 9, 0
    while exit_code == 9:
        stop += 1
        out = tmp_path / str(stop)
        work(out, 1)
        exit_code = killed(partial(work, out, 2), stop)
        work(out, 2)
        assert sorted(contents(out)) == ["deep/er/text", MANIFEST, "weights"]
        assert contents(out)["weights"] == b"2"
    assert (exit_code, stop > 5) == (0, True)


def test_a_killed_replacement_is_finished_or_undone_by_the_next_run(tmp_path: Path) -> None:
    make(tmp_path / "out")
    (tmp_path / "out.partial").mkdir()
    Manifest("corpus", "running", {"text": "b"}, claims=("result", "pieces", "old")).save(tmp_path / "out.partial")
    os.rename(tmp_path / "out", tmp_path / "out.partial" / "old")
    assert not make(tmp_path / "out")
    assert (tmp_path / "out" / "deep" / "text").read_text() == "a"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_work_in_a_directory_goes_on_and_is_done(tmp_path: Path) -> None:
    out = Output(tmp_path / "run")
    with out.occupy(
        "training", {"rate": 1}, claims=["checkpoint-*", "weights"]
    ) as work:  # and stops before it is complete
        assert not work.resumed
        (work.path / "checkpoint-1").mkdir()
        (work.path / "checkpoint-1" / "weights").write_text("1")
    with pytest.raises(InputError, match=r"unfinished work made from another rate \(1, now 2\)"):
        out.occupy("training", {"rate": 2})
    with out.occupy("training", {"rate": 1}, claims=["checkpoint-*", "weights"]) as work:
        assert work.resumed
        (work.path / "weights").write_text("2")
        work.complete()
    assert out.occupy("training", {"rate": 1}).done
    with pytest.raises(InputError, match="was made from another rate"):
        out.occupy("training", {"rate": 2})
    with Output(tmp_path / "run", overwrite=True).occupy("training", {"rate": 2}) as work:
        assert [entry.name for entry in work.path.iterdir() if not entry.name.startswith(".")] == [MANIFEST]


def test_what_was_changed_in_complete_work_is_not_deleted(tmp_path: Path) -> None:
    with Output(tmp_path / "run").occupy("training", {"rate": 1}, claims=["config.json"]) as work:
        (work.path / "config.json").write_text("1")
        work.complete()
    (tmp_path / "run" / "config.json").write_text("what somebody wrote")
    with pytest.raises(InputError, match=r"config\.json is not as hf_dense wrote it"):
        Output(tmp_path / "run", overwrite=True).occupy("training", {"rate": 2}, claims=["config.json"])


def test_the_lock_that_a_complete_run_was_killed_with_goes(tmp_path: Path) -> None:
    out = Output(tmp_path / "run")
    with out.occupy("training", {"rate": 1}) as work:
        work.complete()
    before = contents(tmp_path)
    (tmp_path / "run" / LOCK).touch()
    with out.occupy("training", {"rate": 1}) as work:
        assert work.done
    assert contents(tmp_path) == before


def test_work_that_fails_before_it_writes_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError), Output(tmp_path / "run").occupy("training", {}):
        raise InputError("no such model")
    assert list(tmp_path.iterdir()) == []


def test_what_came_into_unfinished_work_is_not_deleted(tmp_path: Path) -> None:
    out = Output(tmp_path / "run", overwrite=True)
    with out.occupy("training", {"rate": 1}, claims=["checkpoint-*"]) as work:  # and stops before it is complete
        (work.path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="thesis"):
        out.occupy("training", {"rate": 2})
    assert (tmp_path / "run" / "thesis.tex").exists()


def test_a_folder_is_worked_in_again(tmp_path: Path) -> None:
    out = Output(tmp_path / "run")
    for text in ("1", "22"):
        with out.occupy("evaluations", {}, claims=["results.md"], again=True) as work:
            assert not work.done
            (work.path / "results.md").write_text(text)
            make(work.path / text)
            work.complete()
    (tmp_path / "run" / "results.md").write_text("what somebody wrote")
    with pytest.raises(InputError, match=r"results\.md is not as hf_dense wrote it"):
        out.occupy("evaluations", {}, claims=["results.md"], again=True)


def test_a_folder_outlives_versions_and_keeps_its_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Output(tmp_path / "run")
    with out.occupy("evaluations", {}, again=True) as work:
        work.facts["rows"] = ["a"]
        work.complete()
    monkeypatch.setattr(output_module, "__version__", "99")
    with out.occupy("evaluations", {}, again=True) as work:  # and is killed
        assert work.facts == {"rows": ["a"]}
    with out.occupy("evaluations", {}, again=True) as work:
        assert work.facts == {"rows": ["a"]}


def test_fingerprints_are_of_contents(tmp_path: Path) -> None:
    make(tmp_path / "one")
    make(tmp_path / "two")
    same = fingerprint_path(tmp_path / "one")
    assert same == fingerprint_path(tmp_path / "two")
    make(tmp_path / "one" / "index", kind="index")
    (tmp_path / "one" / "README.md").write_text("another card")
    assert same == fingerprint_path(tmp_path / "one")
    (tmp_path / "one" / "deep" / "text").write_text("b")
    assert same != fingerprint_path(tmp_path / "one")
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "README.md").write_text("a")
    before = fingerprint_path(documents)
    (documents / "README.md").write_text("b")  # where we did not write it, it is a text like others
    assert fingerprint_path(documents) != before


def test_what_comes_into_work_is_never_taken_for_ours(tmp_path: Path) -> None:
    for again in (False, True):
        path = tmp_path / f"run-{again}"
        out = Output(path, overwrite=True)
        with out.occupy("training", {"rate": 1}, claims=["weights"], again=again) as work:
            (path / "weights").write_text("1")
            (path / "thesis.tex").write_text("years of work")
            (path / "README.md").write_text("a card that somebody wrote")
            assert not work.claim("README.md")
            assert work.claim("log.txt")
            (path / "log.txt").write_text("ours")
            work.complete()
        manifest = manifest_of(path)
        assert sorted(manifest.files) == ["log.txt", "weights"]
        with pytest.raises(InputError, match=r"README\.md|thesis"):
            out.occupy("training", {"rate": 2}, again=again)


def test_work_does_not_go_on_beside_what_somebody_put_there(tmp_path: Path) -> None:
    out = Output(tmp_path / "run")
    with out.occupy("training", {}, claims=["weights"]) as work:  # and stops before it is complete
        (work.path / "weights").write_text("1")
    (tmp_path / "run" / "README.md").write_text("a card that somebody wrote")
    with pytest.raises(InputError, match=r"README\.md was not written by hf_dense; move it away"):
        out.occupy("training", {}, claims=["weights"])


@pytest.mark.parametrize("left", [".hf_dense.lock", f".hf_dense.1.{MANIFEST}"])
def test_work_goes_on_where_a_run_was_killed_as_it_began_an_output_inside(tmp_path: Path, left: str) -> None:
    for _ in range(2):
        with Output(tmp_path / "out").occupy("training", {}, claims=["checkpoint-*"]) as work:
            make(work.path / "model", kind="retriever")
    (tmp_path / "out" / "other.partial").mkdir()
    (tmp_path / "out" / "other.partial" / left).touch()
    with Output(tmp_path / "out").occupy("training", {}, claims=["checkpoint-*"]) as work:
        make(work.path / "other", kind="retriever")
        work.complete()
    with Output(tmp_path / "out", overwrite=True).occupy("training", {"seed": 1}, claims=["checkpoint-*"]):
        assert not (tmp_path / "out" / "other").exists()


def test_what_a_killed_run_claimed_as_it_went_stays_ours(tmp_path: Path) -> None:
    for _ in range(2):
        with Output(tmp_path / "run").occupy("training", {}, claims=["weights"]) as work:  # the first stops here
            assert work.claim("README.md")
            (work.path / "README.md").write_text("a card")
    work.complete()
    found = manifest_of(tmp_path / "run")
    assert list(found.files) == ["README.md"]
    with Output(tmp_path / "run", overwrite=True).occupy("training", {"seed": 1}, claims=["weights"]):
        assert not (tmp_path / "run" / "README.md").exists()


def test_what_differs_is_said_by_its_name(tmp_path: Path) -> None:
    def made_of(name: str, fingerprint: str) -> None:
        with Output(tmp_path / "out").stage("corpus", {}, {"model": Source(name, fingerprint)}):
            pass

    made_of("me/one", "1")
    made_of("me/moved", "1")  # a name decides nothing
    with pytest.raises(InputError, match=r"made from another model \(me/one, now me/two\)"):
        made_of("me/two", "2")
    with pytest.raises(InputError, match=r"another model \(me/one, whose content has changed\)"):
        made_of("me/one", "2")


def test_names_that_no_card_could_say_are_refused_before_anything_is_done(tmp_path: Path) -> None:
    broken = os.fsdecode(b"caf\xff")
    with pytest.raises(InputError, match=r"^The name '.*caf\\udcff' is not UTF-8"):
        Output(tmp_path / broken).stage("test", {})
    with pytest.raises(InputError, match=r"^The name 'caf.udcff' is not UTF-8"):
        Output(tmp_path / "out").occupy("test", {}, {"corpus": Source(broken, "aa")})
    with pytest.raises(InputError, match="is not UTF-8"):
        check_place(tmp_path / "out", reads=[broken])
    assert list(tmp_path.iterdir()) == []
    check_place(tmp_path / "caf\u00e9", {"corpus": Source("\u65e5\u672c", "aa")})


def test_a_source_may_have_a_longer_name_than_a_path() -> None:
    names = ", ".join(f"package {number}" for number in range(100))
    check_place(Path("out"), {"packages": Source(names, "aa")})


def test_what_was_deleted_of_an_output_is_made_again(tmp_path: Path) -> None:
    make(tmp_path / "out")
    before = contents(tmp_path / "out")
    (tmp_path / "out" / "deep" / "text").unlink()
    assert make(tmp_path / "out")
    assert contents(tmp_path / "out").keys() == before.keys()
    assert not make(tmp_path / "out")


def test_an_output_that_lacks_a_file_and_holds_another_is_left_alone(tmp_path: Path) -> None:
    make(tmp_path / "out")
    (tmp_path / "out" / "deep" / "text").rename(tmp_path / "out" / "thesis")
    with pytest.raises(InputError, match="out lacks deep/text, and cannot be made again: thesis is not as hf_dense"):
        make(tmp_path / "out")
    assert (tmp_path / "out" / "thesis").read_text() == "a"


def test_an_output_that_lacks_a_file_is_not_made_again_over_one_that_lies_in_it(tmp_path: Path) -> None:
    make(tmp_path / "out")
    make(tmp_path / "out" / "index")
    (tmp_path / "out" / "README.md").unlink()
    with pytest.raises(InputError, match=r"out lacks README\.md, and index lies in it, which would go with it"):
        make(tmp_path / "out")
    assert (tmp_path / "out" / "index" / "deep" / "text").is_file()
    assert make(tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "README.md").is_file()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_said(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(InputError, match="file system that cannot lock files"):
        make(tmp_path / "out")


def test_numbers_of_numpy_are_kept_as_numbers(tmp_path: Path) -> None:
    given = {"length": np.int64(16), "share": np.float32(0.5)}
    with Output(tmp_path / "out").stage("corpus", given, seed=np.int64(3)):  # type: ignore[arg-type]
        pass
    made = manifest_of(tmp_path / "out")
    with Output(tmp_path / "out").stage("corpus", {"length": 16, "share": 0.5}, seed=3) as work:
        assert work.done
    assert made.made_from["length"] == 16
    assert made.seed == 3


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (["headings", "sentences"], "['headings', 'sentences']"),
        ("a b" * 20, "a b" * 20),
        ("a b" * 21, f"{'a b' * 20}..."),
        ("a" * 24, "a" * 24),
        ("a" * 25, f"{'a' * 12}..."),
    ],
)
def test_only_what_is_cut_is_shown_with_dots(value: object, shown: str) -> None:
    assert difference({"kinds": value}, {"kinds": []}) == f"other kinds ({shown}, now [])"


def test_what_has_no_name_is_called_as_what_it_is_in() -> None:
    assert difference({"prompts": {"": "a"}}, {"prompts": {"": "b"}}) == "other prompts (a, now b)"
