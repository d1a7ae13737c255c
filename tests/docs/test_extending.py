"""The page on adding a method is run, block by block, in a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extending.md"
BLOCK = re.compile(r"(?:<!-- (file|row): (\S+) -->\n)?```(python|bash)\n(.*?)```", re.DOTALL)
TESTS = ("contract", "conftest.py", "recorded_operations.py", "tiny_backbones.py", "test_methods.py")
COPIED = ("hf_dense", *(f"tests/{name}" for name in TESTS))


def copy(directory: Path) -> None:
    """Everything that the page needs of the repository, in `directory`."""
    shutil.copy(ROOT / "pyproject.toml", directory)
    for name in COPIED:
        source, target = ROOT / name, directory / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def run(command: list[str], directory: Path) -> str:
    """What a command prints, run in the copy with the package that is there."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(directory), "PATH": programs}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_the_page_adds_a_method(tmp_path: Path) -> None:
    copy(tmp_path)
    printed = []
    for kind, path, language, code in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "file":
            (tmp_path / path).write_text(code, encoding="utf-8")
        elif kind == "row":
            before, table, after = (tmp_path / path).read_text(encoding="utf-8").partition("METHODS = {")
            rows, end, rest = after.partition("\n}")
            (tmp_path / path).write_text(f"{before}{table}{rows}\n{code.rstrip()}{end}{rest}", encoding="utf-8")
        else:
            printed.append(run(["bash", "-c", code] if language == "bash" else [sys.executable, "-c", code], tmp_path))
    contract, training, loading = printed
    assert re.search(r"^\d{3} passed", contract, re.MULTILINE)
    assert "loss" in training
    assert loading == ""
