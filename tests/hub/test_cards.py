"""Cards hold what manifests and measurements hold and nothing else; the committed ones are what the script renders."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import CommitOperationAdd, HfApi, ModelCard
from tiny_retriever import tiny_config, write_checkpoint, write_encoder, write_retriever

from hf_dense import RetroMAEConfig
from hf_dense.errors import InputError
from hf_dense.hub import cards
from hf_dense.hub.cards import CARD_TEMPLATE, form_of, render_model_card, write_model_card
from hf_dense.hub.lineage import Step, joined, lineage_of
from hf_dense.storage.manifest import COMPLETE, Manifest
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

CARDS = Path(__file__).parents[2] / "model_cards"
RUN = {
    "commit": {"id": "0123456789abcdef", "dirty": False},
    "hardware": {"cpu": "a | b", "cores": 3, "memory_gib": 7.5, "cuda": None},
    "date": "2026-01-02T03:04:05+00:00",
}
PRETRAINING = Manifest(
    "pre-training",
    COMPLETE,
    {"method": "retromae", "corpus": "f1", "backbone": "f2"},
    {"corpus": "build/passages", "backbone": "bert-base-uncased"},
    command="accelerate launch pretrain.py",
    licence="mit",
    seed=5,
    run=RUN,
    facts={"steps": 1200, "lineage": [asdict(Step("model of the Hub", start="bert-base-uncased"))]},
)
TUNED = Manifest(
    "retriever",
    COMPLETE,
    {"collection": "f3", "encoder": "f4", "temperature": 0.05, "max_length": 64},
    {"collection": "build/{mine}", "encoder": "build/retromae"},
    command="hf-dense finetune own.yaml",
    licence="apache-2.0",
    facts={"lineage": [*PRETRAINING.facts["lineage"], asdict(Step.of(PRETRAINING))]},
)
RESULTS = [("SciFact", "test", {"ndcg@10": 0.123456, "mrr@10": 0.1}), ("docs", "dev", {"ndcg@10": 0.5})]


def measured(results: list[Any]) -> Manifest:
    return replace(TUNED, facts={**TUNED.facts, "results": results})


def test_a_card_has_the_steps_and_the_results(tmp_path: Path) -> None:
    directory = write_retriever(tmp_path / "tiny")
    card = ModelCard.load(write_model_card(directory, measured(RESULTS), name="me/tiny"))
    assert (card.data.license, card.data.library_name) == ("apache-2.0", "sentence-transformers")
    assert card.data.base_model == "bert-base-uncased"
    assert card.data.tags[-2:] == ["dense-retrieval", "retromae"]
    assert card.data.model_name == "tiny"
    assert [
        (found.dataset_name, found.dataset_split, found.metric_type, found.metric_value)
        for found in card.data.eval_results
    ] == [("SciFact", "test", "ndcg@10", 0.123456), ("SciFact", "test", "mrr@10", 0.1), ("docs", "dev", "ndcg@10", 0.5)]
    for line in (
        "|  | pre-training | retriever |",
        "| method | retromae | - |",
        "| starts from | bert-base-uncased | build/retromae |",
        "| reads | corpus build/passages | collection build/{mine} |",
        "| steps of optimisation | 1,200 | - |",
        "| seed | 5 | - |",
        "| commit | 0123456789 | not recorded |",
        r"| hardware | 3 cores of a \| b, 7.5 GiB, no GPU | not recorded |",
        "| licence | mit | apache-2.0 |",
        "# pre-training\naccelerate launch pretrain.py\n# retriever\nhf-dense finetune own.yaml",
        "```yaml\ntemperature: 0.05\nmax_length: 64\n```",
        "| SciFact | test | ndcg@10 | 0.1235 |",
        'SentenceTransformer("me/tiny")',
        "- It reads at most 64 tokens",
    ):
        assert line in card.text


def test_a_task_is_called_what_ever_its_directory_is() -> None:
    card = render_model_card("me/tiny", measured([("a|b", "test", {"ndcg@10": 0.5})]), "retriever")
    assert "| a\\|b | test | ndcg@10 | 0.5000 |" in card


def test_a_command_that_made_several_steps_is_there_once() -> None:
    steps = [Step("retriever", command=each) for each in ("hf-dense adapt", "hf-dense adapt", "hf-dense export")]
    assert cards._commands(steps) == "# retriever 1, retriever 2\nhf-dense adapt\n# retriever 3\nhf-dense export"
    table = cards._table(steps)
    assert table.splitlines()[0] == "|  | retriever 1 | retriever 2 | retriever 3 |"
    assert "licence" not in table, "none is named"
    assert cards._commands([Step("pre-training"), Step("retriever")]) == "# pre-training, retriever\n# not recorded"


def test_nothing_is_invented() -> None:
    card = ModelCard(
        render_model_card("x", Manifest("retriever", COMPLETE, {"model": "f"}, {"model": "y"}), "retriever")
    )
    assert "model-index" not in card.data.to_dict()
    assert card.data.base_model is None
    assert "None was recorded with this model." in card.text
    assert "How `y` was made is not recorded." in card.text
    assert "# retriever\n# not recorded" in card.text
    assert card.text.count("| not recorded |") == 3
    assert not re.findall(r"\d", card.text)


def test_a_model_of_random_weights_is_said_to_be_that() -> None:
    drawn = asdict(Step("encoder", data="tokenizer here", seed=0))
    untrained = Manifest("retriever", COMPLETE, {"model": "f"}, {"model": "y"}, facts={"lineage": [drawn]})
    trained = replace(untrained, facts={"lineage": [drawn, asdict(Step("retriever", start="y", steps=9))]})
    said = "- It was not trained: its weights are random"
    for manifest, expected in ((untrained, True), (trained, False)):
        card = render_model_card("x", manifest, "retriever")
        assert "| starts from | random weights |" in card
        assert (said in card) is expected


def test_settings_that_were_not_set_are_left_out() -> None:
    made_from = {"model": "f", "seed": 0, "titles": None, "arguments": {"rate": 0.0, "sampler": None}}
    manifest = Manifest("retriever", COMPLETE, made_from, {"model": "y"})
    assert cards.settings_as_yaml(manifest) == "seed: 0\narguments:\n  rate: 0.0"


def test_of_a_configuration_what_all_of_them_have_is_left_out() -> None:
    backbone = {**tiny_config().to_dict(), "hidden_act": "relu"}
    config = json.loads(RetroMAEConfig(backbone_config=backbone).to_json_string(use_diff=False))
    said = cards.settings_as_yaml(Manifest("checkpoint", COMPLETE, {"return_dict": True, "config": config}, {}))
    assert "hidden_act: relu" in said
    assert "model_type: retromae" in said
    assert "id2label" not in said
    assert said.count("return_dict") == 1, "what is no configuration is said as it is"


def test_a_model_of_several_of_the_hub_names_each() -> None:
    steps = [asdict(Step("model of the Hub", start=start)) for start in ("me/one", "me/two@v1", "me/one")]
    merged = Manifest("retriever", COMPLETE, facts={"lineage": steps})
    assert ModelCard(render_model_card("x", merged, "retriever")).data.base_model == ["me/one", "me/two"]


def test_the_length_of_a_cross_encoder_is_of_a_pair() -> None:
    card = render_model_card("x", Manifest("cross-encoder", COMPLETE, {"max_length": 48}), "cross-encoder")
    assert "It reads at most 48 tokens of a query and a passage together; what follows" in card


def test_a_pre_trained_encoder_has_a_card(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    manifest = replace(PRETRAINING, made_from={**PRETRAINING.made_from, "max_length": 128})
    card = ModelCard.load(write_model_card(tmp_path, manifest))
    assert (card.data.library_name, card.data.base_model) == ("transformers", "bert-base-uncased")
    assert "AutoModelForPreTraining.from_pretrained" in card.text
    assert "Sentence-Transformers takes it for a plain encoder, and pools the mean of its states" in card.text
    assert "at most" not in card.text, "128 is what it was trained on"
    [code] = re.findall(r"```python\n(.*?)```", card.text, re.DOTALL)
    made: dict[str, Any] = {}
    exec(code, made)
    batch = made["batch"]
    assert torch.equal(made["vectors"], made["everything"].encoder.eval()(**batch).pooler_output)


@pytest.mark.parametrize(
    ("architecture", "form"),
    [
        ("T5ForConditionalGeneration", "generator of queries"),
        ("GPT2LMHeadModel", "generator of continuations"),
        ("BertForSequenceClassification", "cross-encoder"),
        ("BertModel", "encoder"),
    ],
)
def test_every_form_says_how_it_is_used(architecture: str, form: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    assert form_of(tmp_path) == form
    card = ModelCard(render_model_card("me/x", PRETRAINING, form))
    [code] = re.findall(r"```python\n(.*?)```", card.text, re.DOTALL)
    assert '"me/x"' in code
    compile(code, "card", "exec")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no model in"):
        write_model_card(tmp_path, TUNED)
    directory = write_retriever(tmp_path / "tiny")
    before = (directory / "README.md").read_bytes()
    with pytest.raises(InputError, match="of the same task and split"):
        write_model_card(directory, measured([RESULTS[0], RESULTS[0]]))
    assert (directory / "README.md").read_bytes() == before


def test_lineage_is_of_models_that_we_wrote(tmp_path: Path) -> None:
    assert lineage_of("me/model") == [asdict(Step("model of the Hub", start="me/model"))]
    foreign = write_encoder(tmp_path / "foreign")
    assert lineage_of(foreign) == [asdict(Step("directory of somebody else's", start=str(foreign)))]
    sources = {"corpus": Source("passages", "f1"), "backbone": Source("me/model", "f2")}
    out = Output(tmp_path / "run", command="pretrain", licence="mit")
    settings = {"method": "retromae"}
    with out.occupy("pre-training", settings, sources, seed=1, claims=["checkpoint-*", "final"]) as work:
        work.facts |= {"steps": 9, "lineage": lineage_of("me/model")}
        (work.path / "checkpoint-4").mkdir()
        (work.path / "checkpoint-4" / "trainer_state.json").write_text(json.dumps({"global_step": 4}))
        (work.path / "final").mkdir()
        (work.path / "final" / "weights").write_text("")
        (work.path / "other").mkdir()
        work.complete()
    expected = {"kind": "pre-training", "method": "retromae", "start": "me/model", "data": "corpus passages", "seed": 1}
    for name, steps in ((".", 9), ("checkpoint-4", 4), ("final", 9)):
        first, second = lineage_of(tmp_path / "run" / name)
        assert first["start"] == "me/model"
        assert {**second, **expected, "command": "pretrain", "licence": "mit", "steps": steps} == second
    other = str(tmp_path / "run" / "other")
    assert lineage_of(other) == [asdict(Step("directory of somebody else's", start=other))]


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense: apache-2.0\n---\n# Theirs", "apache-2.0"),
        ("---\nlicense: other\n---\n", None),
        ("# No metadata", None),
        ("---\nlicense: [unreadable\n---\n", None),
    ],
)
def test_a_licence_is_carried_from_the_base(card: str, licence: str | None, tmp_path: Path, hub_here: HfApi) -> None:
    foreign = write_encoder(tmp_path / "foreign")
    (foreign / "README.md").write_text(card)
    name = f"someone/base-{abs(hash(card))}"
    hub_here.create_repo(name)
    hub_here.create_commit(name, [CommitOperationAdd("README.md", card.encode())], commit_message="x")
    for start, base in ((str(foreign), None), (name, name)):
        lineage = [*lineage_of(start), asdict(Step.of(PRETRAINING))]
        lineage[-1]["licence"] = "other"
        made = Manifest("retriever", COMPLETE, {"model": "f"}, {"model": "tuned"}, facts={"lineage": lineage})
        found = ModelCard(render_model_card("x", made, "retriever"))
        assert found.data.to_dict().get("base_model") == base
        assert found.data.license == (licence or "other")
        said = f"`{licence}`, which {start} has, beside" if licence else "None was named when this was written"
        assert said in found.text
    own = ModelCard(render_model_card("x", replace(made, licence="mit"), "retriever"))
    assert own.data.license == "mit", "what is said wins"


@pytest.mark.parametrize(
    ("named", "languages"), [("language: de\n", ["de"]), ("language: [en, no, 7, fr]\n", ["en", "fr"]), ("", None)]
)
def test_languages_are_those_of_the_bases(named: str, languages: list[str] | None, tmp_path: Path) -> None:
    foreign, other = write_encoder(tmp_path / "foreign"), write_encoder(tmp_path / "other")
    (foreign / "README.md").write_text(f"---\n{named}license: mit\n---\n# Theirs")
    (other / "README.md").write_text("---\nlanguage: en\n---\n")
    alone = Manifest("retriever", COMPLETE, facts={"lineage": lineage_of(foreign)})
    merged = replace(alone, facts={"lineage": joined(lineage_of(foreign), lineage_of(other))[0]})
    assert ModelCard(render_model_card("x", alone, "retriever")).data.language == languages
    both = list(dict.fromkeys([*(languages or []), "en"]))
    assert ModelCard(render_model_card("x", merged, "retriever")).data.language == both


@pytest.fixture(scope="module")
def rendered() -> dict[str, str]:
    cards: dict[str, str] = runpy.run_path(str(CARDS / "render.py"))["render_cards"]()
    return cards


def test_committed_cards_are_the_rendered_ones(rendered: dict[str, str]) -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in CARDS.glob("*.md") if path.name != "README.md"}
    assert found == rendered, "run python model_cards/render.py"
    assert found["template.md"] == CARD_TEMPLATE


def leaves(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inner is None else [leaf for item in inner for leaf in leaves(item)]


@pytest.mark.parametrize(("name", "method"), [("demo", "dupmae"), ("evidence", "retromae")])
def test_figures_of_committed_cards_are_in_the_results(name: str, method: str, rendered: dict[str, str]) -> None:
    text = (CARDS.parent / "docs" / f"{name}_results.json").read_text(encoding="utf-8")
    values = [value for value in leaves(json.loads(text)) if isinstance(value, float)]
    written = {form.format(value) for value in values for form in ("{}", "{:.4f}", "{:.0f}")}
    card = rendered[f"{name}_{method}.md"]
    figures = re.findall(r"\d+\.\d+(?:e-\d+)?", card)
    assert len(figures) > 12
    for figure in figures:
        assert figure in written or figure in text, figure
    assert json.loads(text)["commit"]["id"][:10] in card
