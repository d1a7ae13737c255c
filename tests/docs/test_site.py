"""The documentation as a site: built without a warning, and no link of it leads nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from site_pages import on_page_markdown, reference

import hf_dense

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "written", "shown"),
    [
        ("index.md", "[a](docs/data.md#passages)", "[a](data.md#passages)"),
        ("index.md", "![a](docs/demo_metrics.png)", "![a](demo_metrics.png)"),
        ("index.md", "[`what`](CHANGELOG.md)", "[`what`](changelog.md)"),
        ("methods/simlm.md", "[a](../../README.md)", "[a](../index.md)"),
        ("methods/simlm.md", "[a](README.md#backbones)", "[a](README.md#backbones)"),
        ("methods/simlm.md", "[a](../../hf_dense/methods.py)", "[a](../repository/hf_dense/methods.py.txt)"),
        ("data.md", "[a](../hf_dense/recipes), [b](https://arxiv.org/abs/1)", "a, [b](https://arxiv.org/abs/1)"),
        ("data.md", "[a](../hf_dense/nowhere.py)", "[a](../hf_dense/nowhere.py)"),  # which mkdocs refuses
    ],
)
def test_links_lead_to_pages_or_to_copies(page: str, written: str, shown: str) -> None:
    config = MkDocsConfig()
    config.load_dict({"site_name": "a"})
    config.validate()
    file = File(page, str(ROOT / "docs"), "", True)
    assert on_page_markdown(written, Page(None, file, config), config, Files([file])) == shown


def test_the_reference_names_all_that_is_exported() -> None:
    text = reference()
    for name in set(hf_dense.__all__) - {"METHODS", "__version__"}:
        assert f"`{name}`" in text or f".{name}\n" in f"{text}\n", name


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    built = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    assert 'id="hf_dense.api.trainings.adapt"' in (tmp_path / "reference/index.html").read_text(encoding="utf-8")
    assert 'class="mermaid"' in (tmp_path / "methods/retromae/index.html").read_text(encoding="utf-8")
    assert (tmp_path / "repository/hf_dense/search/fusion.py.txt").is_file()
