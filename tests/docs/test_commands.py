"""Every command that the README and the guides show: all are parsed, and those that take seconds are run."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from json_lines import write_lines
from tiny_retriever import LETTERS, tiny_config, tiny_tokenizer, write_dataset

from hf_dense.commands.main import build_parser, main
from hf_dense.commands.recipes import find_config, read_configs

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *(ROOT / "docs").rglob("*.md")]
)
FILES = sorted([*(ROOT / "hf_dense" / "recipes").glob("*.yaml"), *(ROOT / "examples").glob("*.py")])
LAUNCHED = {"examples/pretrain.py": "pretrain", "examples/finetune.py": "finetune"}

# In the order in which they are run, in one directory. All others are only parsed: they need the Hub, an index of
# packages, or more than seconds.
RUN = [
    "hf-dense recipes",
    "hf-dense data passages my_documents/ --out build/corpus --length 128",
    "hf-dense data contexts build/corpus --out build/contexts",
    "hf-dense data queries build/corpus --from headings sentences neighbours --out build/made",
    "hf-dense data negatives COLLECTION --out build/negatives --depth 200",
    "hf-dense data labels pairs.jsonl --out build/mine",
    "hf-dense export build/retromae --out build/encoder --max_length 144",
    "hf-dense export build/retromae --out build/plain --kind encoder",
    "hf-dense finetune --model build/encoder --collection COLLECTION --out build/retriever",
    "hf-dense evaluate bm25 mine=build/retriever/model --tasks COLLECTION:test --out build/evaluation",
    'hf-dense search build/retriever/model "how do I pin memory in a data loader" --corpus COLLECTION',
]


def shown(text: str) -> Iterator[str]:
    """The commands in code blocks of a page, without their comments; `...` stands for options of the reader's."""
    for block in re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] in ("hf-dense", "python", "accelerate"):
                yield " ".join(shlex.quote(word) for word in words if word != "...")


@cache
def commands() -> dict[str, str]:
    """Command -> the page that shows it."""
    return {command: str(page.relative_to(ROOT)) for page in PAGES for command in shown(page.read_text())}


def verb_of(command: str) -> list[str] | None:
    """The words of a command behind `hf-dense`; None for other scripts."""
    words = shlex.split(command)
    for at, word in enumerate(words):
        if word == "hf-dense" or word == "hf_dense.commands.main":
            return words[at + 1 :]
        if word in LAUNCHED:
            return [LAUNCHED[word], *words[at + 1 :]]
    return None


def parse(words: list[str]) -> None:
    """Read a command as the command line does: its flags, its recipes and their keys."""
    arguments, rest = build_parser(words[:1]).parse_known_args(words)
    if not rest:
        return
    assert hasattr(arguments, "rest"), rest
    known = {option.name for option in fields(trainer(words[0]))}
    assert {word[2:] for word in rest if word.startswith("--")} <= known


def trainer(verb: str) -> type:
    from transformers import TrainingArguments

    from hf_dense.finetuning.biencoder import BiencoderTrainingArguments

    return {"pretrain": TrainingArguments, "finetune": BiencoderTrainingArguments}[verb]


def test_commands_are_found() -> None:
    assert len(commands()) > 30
    assert {"README.md", "docs/data.md", "docs/finetuning.md"} <= set(commands().values())


@pytest.mark.parametrize("command", commands(), ids=lambda command: re.sub(r"\W+", "-", command)[:60])
def test_a_shown_command_is_one(command: str) -> None:
    words = shlex.split(command)
    scripts = [word for word in words if word.endswith(".py")]
    assert all((ROOT / script).is_file() for script in scripts)
    given = verb_of(command)
    if given is None:
        assert scripts, "it is a script's, or a verb's"
        text = (ROOT / scripts[0]).read_text() + (ROOT / "hf_dense" / "commands" / "options.py").read_text()
        assert all(f'"{word}"' in text or f"{word[2:]}:" in text for word in words if word.startswith("--"))
        return
    parse(given)
    for name in (given[at + 1] for at, word in enumerate(given) if word == "--config"):
        read_configs([str(find_config(name))])


@pytest.mark.parametrize("path", [*PAGES, *FILES], ids=lambda path: path.name)
def test_inline_commands_name_what_there_is(path: Path) -> None:
    """Verbs, recipes, scripts and flags within sentences and comments."""
    text = path.read_text()
    for verb in re.findall(r"`hf-dense ([a-z]\w*)", text):
        build_parser([verb])
    for script in re.findall(r"\b((?:examples|benchmarks|dataset_scripts)/\w+\.(?:py|yaml))", text):
        assert (ROOT / script).is_file(), script
    for name in re.findall(r"--config (\w+)", text):
        if name not in ("NAME", "RECIPE", "OVERLAY"):
            find_config(name)
    for old in ("examples/configs", "--output_dir", "--dataset_dir"):
        assert old not in text


def test_what_is_run_is_what_is_shown() -> None:
    assert {" ".join(shlex.split(command)) for command in RUN} <= {" ".join(shlex.split(one)) for one in commands()}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with small things under the names that the pages use."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_documents").mkdir()
    draw = random.Random(0)
    for page in range(4):
        words = ["".join(draw.choices(LETTERS, k=4)) for _ in range(200)]
        sentences = [" ".join(words[at : at + 10]).capitalize() + "." for at in range(0, 200, 10)]
        (tmp_path / "my_documents" / f"{page}.txt").write_text(" ".join(sentences))
    pairs = [{"query": f"abc {row}", "positive": f"def {row} ghi"} for row in range(9)]
    write_lines(tmp_path / "pairs.jsonl", pairs)
    write_dataset(tmp_path / "COLLECTION", passages=150, queries=70)
    write_checkpoint(tmp_path / "build" / "retromae")
    return tmp_path


def write_checkpoint(directory: Path) -> None:
    """A pre-training checkpoint with room for 144 tokens."""
    from hf_dense import RetroMAEConfig, RetroMAEForPreTraining

    config = RetroMAEConfig(backbone_config=tiny_config(max_position_embeddings=144).to_dict())
    RetroMAEForPreTraining(config).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)


def test_the_quick_ones_run_in_this_order(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in RUN:
        main(shlex.split(command)[1:])
    out = capsys.readouterr().out
    assert "| mine |" in out
    assert "150 passages" in out
    expected = ("corpus", "contexts", "mine", "encoder", "plain", "retriever/model", "evaluation")
    assert [name for name in expected if not (world / "build" / name).is_dir()] == []
