"""Cards hold what was measured and nothing else; the committed ones are what the script renders."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from hf_dense.errors import InputError
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.tables import load_published
from hf_dense.hub.cards import ModelFacts, render_model_card, write_model_card

CARDS = Path(__file__).parents[2] / "model_cards"
CONFIGS = CARDS.parent / "examples" / "configs"
FACTS: dict[str, Any] = {
    "name": "me/tiny",
    "about": "A tiny retriever with {braces}.",
    "method": "RetroMAE",
    "data": "one's own",
    "command": "hf-dense finetune own.yaml",
    "settings": "seed: 7\nbm25: {depth: 200}\n",
    "limitations": ["It is tiny."],
    "license": "apache-2.0",
    "licence": "Apache-2.0.",
}


def result(split: str, **metrics: float) -> RetrievalResult:
    return RetrievalResult("r", split, {name.replace("_", "@"): value for name, value in metrics.items()}, {}, 1.0)


def test_metadata_holds_the_values(tmp_path: Path) -> None:
    facts = ModelFacts(
        **FACTS, base_model="bert-base-uncased", datasets=["mteb/msmarco"], tags=["retromae"], steps=1200
    )
    (tmp_path / "README.md").write_text("what an export left")
    results = [("SciFact", result("test", ndcg_10=0.123456, mrr_10=0.1)), ("docs-test", result("test", ndcg_10=0.5))]
    card = ModelCard.load(write_model_card(tmp_path, facts, results))
    assert card.data.license == "apache-2.0"
    assert card.data.library_name == "sentence-transformers"
    assert card.data.base_model == "bert-base-uncased"
    assert card.data.datasets == ["mteb/msmarco"]
    assert card.data.tags[-2:] == ["dense-retrieval", "retromae"]
    assert card.data.model_name == "me/tiny"
    assert [
        (found.dataset_name, found.dataset_split, found.metric_type, found.metric_value)
        for found in card.data.eval_results
    ] == [
        ("SciFact", "test", "ndcg@10", 0.123456),
        ("SciFact", "test", "mrr@10", 0.1),
        ("docs-test", "test", "ndcg@10", 0.5),
    ]
    assert "| SciFact | ndcg@10 | 0.1235 | - |" in card.text
    assert "A tiny retriever with {braces}." in card.text
    assert "| steps | 1,200 |" in card.text
    assert 'SentenceTransformer("me/tiny")' in card.text


def test_nothing_is_invented() -> None:
    card = ModelCard(render_model_card(ModelFacts(**FACTS)))
    assert "model-index" not in card.data.to_dict()
    assert "This model: not measured." in card.text
    assert "| steps | not measured |" in card.text
    assert card.text.count("not recorded") == 3
    numbers = set(re.findall(r"\d+\.\d+", card.text))
    assert numbers <= {"2.0"}, "the licence's version is the only number"


def test_published_figures_are_labelled_and_stay_out_of_the_index() -> None:
    published = [row for row in load_published() if row["name"] == "SimLM"]
    text = render_model_card(ModelFacts(**FACTS), [("MSMARCO", result("dev", mrr_10=0.25))], published)
    assert "| MSMARCO | mrr@10 | 0.2500 | 0.411 (SimLM, published: MASTER, table 2) |" in text
    assert "| SciFact | ndcg@10 | not measured | 0.588 (SimLM, published: MASTER, table 4) |" in text
    assert [found.metric_value for found in ModelCard(text).data.eval_results] == [0.25]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="write the model first"):
        write_model_card(tmp_path / "nowhere", ModelFacts(**FACTS))
    with pytest.raises(InputError, match="give each task once"):
        write_model_card(tmp_path, ModelFacts(**FACTS), [("a", result("dev", mrr_10=1.0))] * 2)


@pytest.fixture(scope="module")
def rendered() -> dict[str, str]:
    cards: dict[str, str] = runpy.run_path(str(CARDS / "render.py"))["render_cards"]()
    return cards


def test_committed_cards_are_the_rendered_ones(rendered: dict[str, str]) -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in CARDS.glob("*.md") if path.name != "README.md"}
    assert found == rendered, "run python model_cards/render.py"


def test_every_recipe_has_a_card_without_results(rendered: dict[str, str]) -> None:
    recipes = {path.stem for path in CONFIGS.glob("*.yaml") if not path.stem.endswith(("_demo", "_one_gpu"))}
    recipes |= {path.stem for path in (CONFIGS / "finetuning").glob("*.yaml")}
    assert {name.removesuffix(".md") for name in rendered} == {*recipes, "template"}
    values = {
        f"{value:.3f}" for row in load_published() for metrics in row["values"].values() for value in metrics.values()
    }
    for name in recipes:
        card = ModelCard(rendered[f"{name}.md"])
        assert card.data.eval_results is None
        assert "not measured" in card.text
        table = card.text.partition("## Results")[2].partition("## Limitations")[0]
        for line in table.splitlines():
            for value in re.findall(r"\d\.\d{2,}", line):
                assert value in values, f"{name}: {value}"
                assert "published: " in line
