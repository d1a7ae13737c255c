"""Commands side by side: all of them run, what they print is kept, a failure stops the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hf_dense.errors import InputError
from hf_dense.experiments.processes import log_of, run_side_by_side


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_every_command_runs_with_one_thread_and_its_output_is_kept(tmp_path: Path) -> None:
    variables = ("OMP_NUM_THREADS", "TQDM_DESC", "TQDM_POSITION")
    code = f"import os; print(*(os.environ[name] for name in {variables}), sep='\\n')"
    names = [f"no pre-training:{seed}" for seed in range(5)]
    run_side_by_side({name: python(code) for name in names}, tmp_path, at_once=2)
    for name in names:
        threads, description, position = log_of(name, tmp_path).read_text().splitlines()
        assert (threads, description) == ("1", name)
        assert position in ("0", "1")


def test_so_many_run_at_once(tmp_path: Path) -> None:
    code = "import time; print(time.time()); time.sleep(0.5); print(time.time())"
    run_side_by_side({str(number): python(code) for number in range(4)}, tmp_path, at_once=2)
    spans = [[float(line) for line in log_of(str(n), tmp_path).read_text().split()] for n in range(4)]
    overlapping = [sum(start <= at < end for start, end in spans) for at, _ in spans]
    assert max(overlapping) == 2


def test_all_run_at_once_where_more_may_than_there_are(tmp_path: Path) -> None:
    run_side_by_side({name: python("pass") for name in "ab"}, tmp_path, at_once=10**20)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "b"]


def test_names_that_are_alike_have_logs_of_their_own(tmp_path: Path) -> None:
    names = ["a.b-seed0", "a-b-seed0", "A_b-seed0"]
    run_side_by_side({name: python(f"print({name!r})") for name in names}, tmp_path, at_once=1)
    assert [log_of(name, tmp_path).read_text() for name in names] == [f"{name}\n" for name in names]


def test_how_many_are_done_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_side_by_side({name: python("pass") for name in "abc"}, tmp_path, at_once=1)
    lines = [line for line in capsys.readouterr().err.splitlines() if "done" in line]
    assert [line.split(" in ")[0] for line in lines] == ["a: 1 of 3 done", "b: 2 of 3 done", "c: 3 of 3 done"]
    assert ["left" in line for line in lines] == [True, True, False]


def test_a_failure_is_named_and_stops_the_others(tmp_path: Path) -> None:
    started = time.monotonic()
    commands = {"sleeper": python("import time; time.sleep(60)"), "broken": python("raise SystemExit(3)")}
    with pytest.raises(InputError, match=r"^broken failed for the reason given above; its log is .*broken\.log"):
        run_side_by_side(commands, tmp_path, at_once=2)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_ends_what_it_started(tmp_path: Path, number: signal.Signals) -> None:
    child = python("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    run = f"run_side_by_side({{'sleeper': {child!r}}}, Path({str(tmp_path)!r}))"
    heeded = f"import signal\nsignal.signal({int(number)}, signal.SIG_DFL)"  # also where these tests run under nohup
    code = f"{heeded}\nfrom pathlib import Path\nfrom hf_dense.experiments.processes import run_side_by_side\n{run}"
    parent = subprocess.Popen(python(code))
    log = log_of("sleeper", tmp_path)
    while not (log.exists() and log.read_text().endswith("\n")):
        time.sleep(0.05)
        assert parent.poll() is None
    parent.send_signal(number)
    assert parent.wait(30) == 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text()), 0)


def test_waiting_takes_no_time_of_the_processor_whatever_other_children_ended(tmp_path: Path) -> None:
    other = subprocess.Popen(["true"])  # of which nobody has taken notice
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    before = time.process_time()
    run_side_by_side({"sleeper": ["sleep", "2"]}, tmp_path)
    assert time.process_time() - before < 0.3
    other.wait()
