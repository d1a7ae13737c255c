"""Cards of what is neither a model nor data show what there is to see in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hf_dense.evaluation.analysis_plots import draw_kinds, save_analysis
from hf_dense.evaluation.index_kinds import KindQuality
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.hub.output_cards import render_output_card
from hf_dense.storage.manifest import COMPLETE, Manifest


def card_of(place: Path, kind: str, **settings: Any) -> str:
    files = {file.name: file.stat().st_size for file in place.iterdir()}
    return render_output_card("me/it", Manifest(kind, COMPLETE, made_from=settings, files=files), place)


def test_the_card_of_an_analysis_has_its_figures(tmp_path: Path) -> None:
    rows = [KindQuality("exact", 1.0, 1.0, 0.5, 0.75, 0.0, 0.25, 0.0), KindQuality("int8", *[0.875] * 5, 1.5, 1200.0)]
    save_analysis("kinds", rows, draw_kinds(rows), tmp_path, settings={"split": "dev"})
    card = card_of(tmp_path, "analysis of kinds", split="dev")
    assert "| kind | found 10 | found 100 | ndcg 10 | recall 100 | bytes | milliseconds | seconds |" in card
    assert "| exact | 1 | 1 | 0.5000 | 0.7500 | 0 | 0.2500 | 0 |" in card
    assert "| int8 | 0.8750 | 0.8750 | 0.8750 | 0.8750 | 0.8750 | 1.5000 | 1,200 |" in card
    assert "split: dev" in card


def test_the_card_of_one_evaluation_has_its_figures(tmp_path: Path) -> None:
    RetrievalResult("my_mo|del", "dev", {"ndcg@10": 0.123456, "mrr@10": 0.5}, {}, 1.0).save(tmp_path)
    card = card_of(tmp_path, "evaluation", split="dev")
    assert "|  | my_mo\\|del |\n| --- | ---: |\n| ndcg@10 | 0.1235 |\n| mrr@10 | 0.5000 |\n" in card
    assert "split: dev" in card


@pytest.mark.parametrize("kind", ["plan", "words"])
def test_what_has_no_figures_has_its_settings(kind: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"rows": [{"steps": 1}]}))
    card = card_of(tmp_path, kind, budget="2m")
    assert "| steps" not in card
    assert "```yaml\nbudget: 2m\n```" in card


def test_an_index_says_how_it_is_searched() -> None:
    facts, sources = {"passages": 1234}, {"model": "me/retriever", "corpus": "data"}
    manifest = Manifest("index", COMPLETE, made_from={"kind": "exact"}, sources=sources, facts=facts)
    card = render_output_card("me/index", manifest, Path("nowhere"), "v2")
    assert "holds the texts of 1,234 passages" in card
    assert "hf download me/index --repo-type dataset --revision v2 --local-dir index\n" in card
    assert 'hf-dense search MODEL "your question" --index index\n' in card
    assert "(MODEL:\n`me/retriever`" in card
    assert "--revision" not in render_output_card("me/index", manifest, Path("nowhere"))
