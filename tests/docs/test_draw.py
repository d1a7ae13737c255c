"""The figures in the methods' pages are drawn from the declarations that the code has."""

from __future__ import annotations

from pathlib import Path

import pytest
from diagram import diagram
from draw import drawn

from hf_dense import METHODS, MASTERConfig, SEEDConfig, SimLMConfig

DOCS = Path(__file__).parents[2] / "docs"

PAGES = sorted(path for path in (DOCS / "methods").glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_shows_its_methods_as_they_are_declared(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "```mermaid" in text
    assert drawn(text) == text, "run: python docs/draw.py"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_page_with_its_figure(method: str) -> None:
    assert sum(f"<!-- diagram: {method} -->" in page.read_text(encoding="utf-8") for page in PAGES) == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_figure_has_every_part_and_every_loss(method: str) -> None:
    config = METHODS[method].config()
    lines = diagram(config).splitlines()
    assert lines[0] == "flowchart LR"
    for name in (*config.encoder_specs, *config.decoder_specs):
        assert any(f'{name}["' in line for line in lines)
    for name, weight in config.weights.items():
        assert any(f" {name}_loss([" in line and f"weight {weight:g}" in line for line in lines)


def test_changes_show() -> None:
    strong = diagram(SEEDConfig(decoders={"decoder": {"attention": "causal", "layers": 1}}))
    assert "1 layer, sees all before" in strong
    shared = diagram(MASTERConfig(decoders={"queries": {"shares": "keywords"}}))
    assert "2 layers, those of keywords" in shared
    asked = diagram(SimLMConfig(encoders={"encoder": {"view": {"labels": "replaced"}}}))
    assert "which tokens were replaced" in asked
