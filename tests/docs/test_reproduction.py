"""The reproduction ledger: its commands can be given, its declarations built, its costs are what the recipes say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from test_commands import ROOT, parse, shown, verb_of

from hf_dense.commands.main import build_parser
from hf_dense.commands.options import build_arguments, given_flags, read_options
from hf_dense.commands.recipes import FOLDER, read_configs
from hf_dense.methods import METHODS, get_method

PAGE = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
COMMANDS = list(dict.fromkeys(shown(PAGE)))
COLUMNS = ["table", "commands", "data", "GPU hours", "published", "ours"]
TABLES = {"SEED-Encoder": 8, "Query-as-context": 5, "SimLM": 14, "DupMAE": 3, "MASTER": 9}  # of each paper


def sections() -> dict[str, str]:
    return {part.partition("\n")[0]: part for part in PAGE.split("\n## ")}


def rows(text: str) -> list[list[str]]:
    """Of the tables of papers, whose last column is `ours`."""
    found: list[list[str]] = []
    for table in re.findall(r"^\| .*\| ours \|\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE):
        found += [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()]
    assert all(len(row) == len(COLUMNS) for row in found), found
    return found


def given(verb: str) -> list[list[str]]:
    """The words of the page's commands of a verb."""
    found = [words for command in COMMANDS if (words := verb_of(command)) is not None]
    return [words for words in found if words[0] == verb]


def parsed(words: list[str]) -> Any:
    arguments, arguments_rest = build_parser(words[:1]).parse_known_args(words)
    arguments.rest = [*arguments_rest, "--use_cpu", "true"]
    return arguments


def as_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: re.sub(r"\W+", "-", command)[:60])
def test_a_command_is_parsed(command: str) -> None:
    words = verb_of(command)
    if words is None:
        assert any((ROOT / word).is_file() for word in shlex.split(command))
    else:
        parse(words)


@pytest.mark.parametrize("words", given("pretrain"), ids=lambda words: "-".join(words[1:])[:80])
def test_a_pretraining_can_be_declared(words: list[str]) -> None:
    from transformers import TrainingArguments

    from hf_dense.pretraining.options import PretrainingOptions

    options, training = read_options(parsed(words), PretrainingOptions, TrainingArguments)
    method = get_method(options.method)
    changes = {name: as_json(getattr(options, name)) for name in ("backbone_config", "encoders", "decoders")}
    config = method.config(**changes)
    assert options.max_length <= config.backbone.max_position_embeddings
    assert training.max_steps > 0 or training.num_train_epochs > 0
    recipe = read_configs([words[words.index("--config") + 1]])
    for part in ("encoders", "decoders"):  # a flag takes the place of a recipe's whole entry
        for name, spec in as_json(recipe.get(part) or {}).items():
            if f"--{part}" in words and (kept := getattr(config, part)[name]) is not None and (spec or {}).get("view"):
                assert kept["view"]["sources"] == spec["view"].get("sources", kept["view"]["sources"])


@pytest.mark.parametrize("words", given("finetune"), ids=lambda words: "-".join(words[1:])[:80])
def test_a_finetuning_can_be_set_up(words: list[str]) -> None:
    from hf_dense.commands.finetune import BothOptions, SingleOptions, StageOptions
    from hf_dense.finetuning.biencoder import BiencoderTrainingArguments
    from hf_dense.finetuning.pipeline import Pipeline

    arguments = parsed(words)
    values = read_configs(arguments.config)
    if values:
        assert len(arguments.rest) == 2, "a recipe's stages take no options of one training"
        assert not given_flags(arguments, SingleOptions)
        Pipeline.of({**values, **given_flags(arguments, BothOptions, StageOptions)})
    else:
        assert hasattr(arguments, "model")
        assert hasattr(arguments, "collection")
        build_arguments(BiencoderTrainingArguments, {}, arguments, [])


def test_every_recipe_of_a_paper_is_in_it() -> None:
    named = {name for command in COMMANDS for name in re.findall(r"--config (\w+)", command)}
    others = {"demo", "one_gpu", "own", "msmarco"}
    assert named == {path.stem for path in FOLDER.glob("*.yaml")} - others
    assert set(METHODS) <= {read_configs([name]).get("method") for name in named}


def test_labels_are_those_of_commands() -> None:
    defined = re.findall(r"^# ([A-Z]\d+): ", PAGE, re.MULTILINE)
    assert len(defined) == len({*defined})
    prose = re.sub(r"```bash\n.*?```", "", PAGE, flags=re.DOTALL)
    used = {*re.findall(r"\b([SCQLUMDE]\d+)\b", prose)}
    assert used == {*defined}, used ^ {*defined}


@pytest.mark.parametrize("paper", TABLES)
def test_every_table_of_a_paper_has_a_row(paper: str) -> None:
    text = sections()[paper]
    covered = {int(number) for row in rows(text) for number in re.findall(r"\d+", row[0].partition(":")[0])}
    assert covered == set(range(1, TABLES[paper] + 1))


def test_what_is_not_measured_says_so() -> None:
    found = [row for text in sections().values() for row in rows(text)]
    assert len(found) > 40
    for row in found:
        offered = "not offered" not in row[1]
        has_figures = row[4] not in ("", "no figures")
        assert row[5] == ("not measured" if offered and has_figures else ""), row


def test_the_costs_are_those_of_the_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import costs

    assert costs.filled(PAGE) == PAGE, "run: python benchmarks/costs.py"
    assert costs.hours("simlm") == pytest.approx(64, rel=0.02)
    assert costs.hours("simlm_msmarco:retriever1") < costs.hours("simlm_msmarco") < 2 * costs.hours("simlm")


def test_a_pretrainings_operations_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """RetroMAE: 12 + 1 layers on 512 tokens, the vocabulary at 153 masked and 510 other positions, three passes."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import costs

    cost = costs.pretraining("retromae")
    layer = 768 * (512 * 12 * 768 + 2 * 512**2)
    head = (153 + 510) * 768 * (768 + 30522)
    assert cost["operations"] == pytest.approx(6 * (13 * layer + head) * cost["rows"] * cost["steps"])


def test_the_readme_leads_here() -> None:
    assert "(docs/reproduction.md)" in (Path(ROOT) / "README.md").read_text(encoding="utf-8")
