from __future__ import annotations

import inspect
import json
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from tiny_retriever import write_dataset

import hf_dense.storage.provenance
from hf_dense.data.collections import content_hash
from hf_dense.storage.provenance import _own_commit, describe_commit, describe_run, hardware_in_words, provenance


def test_provenance_names_seed_data_versions_and_day(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data", passages=20, queries=4)
    record = json.loads(json.dumps(provenance(7, data, content_hash(data))))

    assert record["seed"] == 7
    assert torch.__version__.partition("+")[0] == record["versions"]["torch"].partition("+")[0]
    assert record["hardware"]["cores"] >= 1
    assert record["hardware"]["memory_gib"] > 0
    assert abs((datetime.now(UTC) - datetime.fromisoformat(record["date"])).total_seconds()) < 60

    unchanged = provenance(7, data, content_hash(data))["data"]["content_hash"]
    assert unchanged == record["data"]["content_hash"]
    with (data / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "new", "title": "a", "text": "b"}\n')
    assert provenance(7, data, content_hash(data))["data"]["content_hash"] != unchanged


@pytest.mark.parametrize(("cores", "said"), [(1, "1 core of a CPU"), (2, "2 cores of a CPU")])
def test_hardware_in_words(cores: int, said: str) -> None:
    record = {"cores": cores, "cpu": "a CPU", "memory_gib": 8, "cuda": None}
    assert hardware_in_words(record) == f"{said}, 8 GiB, no GPU"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_commit_and_dirty_flag(tmp_path: Path) -> None:
    def git(*command: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *command], check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init")
    assert describe_commit(tmp_path) is None
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "first")
    assert describe_commit(tmp_path) == {"id": git("rev-parse", "HEAD"), "dirty": False}
    (tmp_path / "file").write_text("two")
    assert describe_commit(tmp_path) == {"id": git("rev-parse", "HEAD"), "dirty": True}


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_repository_around_an_installed_package_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / ".venv" / "provenance.py"
    installed.parent.mkdir()
    shutil.copy(hf_dense.storage.provenance.__file__, installed)
    (tmp_path / "notes").write_text("of another project")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init"], ["add", "notes"], ["commit", "-m", "first"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    monkeypatch.setattr("hf_dense.storage.provenance.__file__", str(installed))
    monkeypatch.setattr("hf_dense.storage.provenance._own_commit", inspect.unwrap(_own_commit))
    assert describe_commit(installed.parent) is not None
    assert describe_run()["commit"] is None
    subprocess.run([*git, "add", str(installed)], check=True)
    assert describe_run()["commit"] == describe_commit(tmp_path)


def test_no_commit_outside_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert describe_commit(tmp_path) is None
