"""The demo from end to end, with a package and trainings that are tiny."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hf_dense.experiments.comparison import Settings
from hf_dense.search.index import SearchIndex

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
FEW = {"max_steps": 2, "logging_steps": 1, "per_device_train_batch_size": 4, "use_cpu": True, "disable_tqdm": True}


def write_package(site: Path) -> None:
    info = site / "alpha-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: alpha\nVersion: 1.0\n")
    names = [f"alpha/m{number}.py" for number in range(80)]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    (site / "alpha").mkdir()
    for number, name in enumerate(names):
        text = f"Carry out job j{number}x with care.\n\nWhat job j{number}x of the package needs is told so."
        (site / name).write_text(f'"""{text}\n"""\n')


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    write_package(tmp_path / "site")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def settings(collection: Path) -> Settings:
        sizes: dict[str, Any] = {"hidden": 32, "vocabulary": 300, "max_length": 24}
        return Settings(str(collection), pretraining=FEW, finetuning=FEW, **sizes)

    monkeypatch.setattr(module, "PACKAGES", ["alpha"])
    monkeypatch.setattr(module, "QUESTIONS", ["carry out job j7x with care"])
    monkeypatch.setattr(module, "demo_settings", settings)
    monkeypatch.setattr(module, "run_side_by_side", lambda commands, logs: None)  # each is run when it is read back
    monkeypatch.setattr(sys, "argv", ["demo.py", "--out", str(tmp_path / "out")])
    return module


@pytest.mark.slow
def test_the_demo_measures_without_the_queries_sentences_and_asks_with_them(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo.main()
    said, out = capsys.readouterr().out, tmp_path / "out"
    results = json.loads((out / "results.json").read_text())
    *alone, fused = (row["name"] for row in results["results"])
    assert alone == ["BM25", "no pre-training", "DupMAE"]
    assert fused in ("no pre-training + BM25", "DupMAE + BM25")
    assert (out / "metrics.png").is_file()
    assert "over 80 passages" in said
    assert "Asked of 160 passages" in said
    found = re.search(r"hf-dense search (\S+) .* --index (\S+)", said)
    assert found is not None
    index = SearchIndex.load(found[2], found[1])
    assert index.search("carry out job j7x with care", 1, weight=0.0)[0].id == "alpha.m7#summary"
    demo.main()
    again = capsys.readouterr().out
    told = [re.sub(r"The demo took .* minutes", "", text.partition("unseen queries")[2]) for text in (said, again)]
    assert told[0] == told[1] != ""
