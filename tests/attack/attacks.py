"""Bad inputs by number: what is copied, what is spoiled, and the command that gets it."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from forked import Ended, run_command
from judging import snapshot, verdict
from spoiling import WORDS, spoil_file, spoil_folder

LIMIT: Final = 60.0  # seconds; the longest sound command takes a few


@dataclass(frozen=True)
class Target:
    """A command that works, as it is attacked.

    Args:
        words: of it, `@name` where something is read that may be spoiled.
        more: what it reads beside, which is not spoiled.
        values: options and a value for each, which may be spoiled too.
        begun: what it says when all that it was given is read; it is stopped then, and was done. Empty where it ends.
    """

    words: str
    more: tuple[str, ...] = ()
    values: dict[str, str] = field(default_factory=dict)
    begun: str = ""

    @property
    def verb(self) -> str:
        """Its verb, of `data` and `analyse` with what it makes."""
        first, second = self.words.split()[:2]
        return f"{first} {second}" if first in ("data", "analyse") else first

    @property
    def reads(self) -> list[str]:
        """What it reads, by name."""
        words = self.words.replace("=", " ").split()
        return [word[1:].partition(":")[0].partition("/")[0] for word in words if word.startswith("@")]


TRAINING: Final = {"--max_steps": "1", "--learning_rate": "1e-3", "--seed": "1", "--logging_steps": "1"}
OUT: Final = {"--out": "OUT"}
TARGETS: Final = (
    Target("data passages @documents --processes 1", values={**OUT, "--length": "16", "--short": "0.1"}),
    Target("data passages @corpus.jsonl --processes 1", values={**OUT, "--repeats": "near", "--text_column": "text"}),
    Target("data contexts @corpus.jsonl --processes 1", values={**OUT, "--length": "8", "--seed": "1"}),
    Target("data keywords @corpus.jsonl --tokenizer @encoder", values=OUT),
    Target("data labels @labels.jsonl", values={**OUT, "--split": "80/10/10", "--form": "pairs", "--seed": "1"}),
    Target(
        "data queries @corpus.jsonl --from headings neighbours",
        values={**OUT, "--limit": "8", "--split": "80/10/10", "--seed": "1"},
    ),
    Target("data negatives @collection", values={**OUT, "--depth": "4", "--split": "train"}),
    Target("data negatives @collection --model @retriever", values={**OUT, "--depth": "4", "--skip": "0"}),
    Target(
        "data scores @collection --lists @lists --model @reranker",
        values={**OUT, "--depth": "2", "--batch_size": "4", "--split": "train"},
    ),
    Target("data filter @collection", values={**OUT, "--within": "3", "--batch_size": "4", "--splits": "train"}),
    Target(
        "pretrain --config @pretrain.yaml --corpus @corpus.jsonl --tokenizer @encoder",
        values={**OUT, **TRAINING, "--max_length": "24", "--held_out": "0.2"},
    ),
    Target("pretrain --config @pretrain.yaml --corpus @corpus.jsonl --backbone @encoder", values={**OUT, **TRAINING}),
    Target(
        "finetune --config @finetune.yaml --model @retriever --collection @collection",
        values={**OUT, **TRAINING, "--split": "train"},
    ),
    Target(
        "finetune --config @finetune.yaml --model @retriever --collection @collection --lists @lists",
        values={**OUT, "--passages": "2", "--depth": "3"},
    ),
    Target("export @pretrained", values={**OUT, "--max_length": "24", "--pooling": "cls", "--similarity": "dot"}),
    Target("export @encoder --kind retriever", values={**OUT, "--max_length": "24", "--normalize": "true"}),
    Target("export @pretrained --kind encoder", values=OUT),
    Target("export @reranker --kind cross-encoder", values={**OUT, "--max_length": "24"}),
    Target("evaluate @retriever --tasks @collection:test", values={**OUT, "--batch_size": "8", "--dimensions": "8"}),
    Target("evaluate bm25 --tasks @collection:test", values=OUT),
    Target(
        "evaluate bm25 --tasks @collection:test --rerank @reranker",
        values={**OUT, "--rerank_depth": "4", "--batch_size": "8"},
    ),
    Target("report one=@evaluation/bm25/collection-test --collection @collection", values=OUT),
    Target("search @retriever abcd --index @index", values={"--top_k": "3", "--weight": "0.5"}),
    Target("search @retriever abcd --corpus @collection", values={"--index": "OUT", "--kind": "exact", "--top_k": "3"}),
    Target(
        "search @retriever --index @index --queries @questions.jsonl", values={"--hits": "OUT", "--top_k": "3"}
    ),
    Target(
        "analyse lengths @retriever @corpus.jsonl", values={**OUT, "--lengths": "64", "--texts": "16", "--pairs": "5"}
    ),
    Target("analyse contexts @retriever @corpus.jsonl", values={**OUT, "--pairs": "5", "--seed": "1"}),
    Target(
        "analyse curve 1=@evaluation/bm25/collection-test 2=@evaluation/retriever/collection-test",
        values={**OUT, "--x_label": "steps", "--metric": "mrr@10"},
    ),
    Target(
        "analyse kinds @index @collection --model @retriever",
        values={**OUT, "--kinds": "int8", "--split": "test"},
    ),
    Target("merge @retriever @retriever", values={**OUT, "--weight": "0.5"}),
    Target("publish @retriever me/none", values={"--results": "evaluation"}, more=("evaluation",)),
    Target(
        "data filter @collection --teacher @reranker",
        values={**OUT, "--least": "-100", "--batch_size": "4", "--splits": "train"},
    ),
    Target(
        "data generate @collection --model @writer --candidates 1",
        values={**OUT, "--output_length": "4", "--input_length": "16", "--top_k": "5", "--top_p": "0.9", "--seed": "1"},
    ),
    Target(
        "data train-generator @collection --base @writer",
        values={**OUT, "--max_steps": "1", "--batch_size": "2", "--learning_rate": "1e-3", "--seed": "1"},
    ),
    Target(
        "glue @encoder --tasks cola --data_dir @glue",
        values={**OUT, "--learning_rates": "1e-3", "--seeds": "0", "--max_length": "16"},
    ),
    Target("finetune --config @stages.yaml --model @encoder --collection @collection", values={**OUT, "--seed": "1"}),
    Target("sweep --config @sweep.yaml --collection @collection", values={**OUT, "--seeds": "0"}),
    Target(
        "adapt @manual.jsonl --base @encoder --queries @asked.jsonl",
        values={
            **OUT,
            **{"--budget": "1h", "--method": "retromae", "--teacher": "bm25", "--keep": "none", "--length": "64"},
            **{"--precision": "fp32", "--seed": "1", "--license": "mit"},
        },
        begun="== How fast this machine is",
    ),
    Target(
        "serve @served --judgements @judged.jsonl", values={"--host": "127.0.0.1", "--port": "0"}, begun="is ready"
    ),
    Target("recipes retromae"),
    Target("completion bash"),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What an attack came to.

    Args:
        number: of the attack.
        verb: that was attacked.
        how: what was spoiled.
        verdict: of the judge.
        ended: the command.
        words: of the command line.
    """

    number: int
    verb: str
    how: str
    verdict: str
    ended: Ended
    words: list[str]


def attack(number: int, seed: int, material: Path, room: Path, *, sound: bool = False) -> Outcome:
    """Spoil something, run the command, judge it.

    Args:
        number: of the attack: each target has its turn.
        seed: of all draws, with the number.
        material: what is sound.
        room: an empty folder, for the copies.
        sound: whether nothing is spoiled, to see that the command works.
    """
    draw, target = random.Random(f"{seed}:{number}"), TARGETS[number % len(TARGETS)]
    words, values = prepare(target, material, room)
    how = "nothing" if sound else _spoil(target, values, draw, room)
    words += [word for pair in values.items() for word in pair]
    before = snapshot(room)
    ended = run_command(words, room.with_name(f"{room.name}-said"), LIMIT, begun=target.begun)
    return Outcome(number, target.verb, how, verdict(ended, before, snapshot(room)), ended, words)


def prepare(target: Target, material: Path, room: Path) -> tuple[list[str], dict[str, str]]:
    """Copy what a command reads, and something foreign, into a room; gives its words, and its options with values."""
    for name in {*target.reads, *target.more}:
        source = material / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, room / name)
    (room / "foreign").mkdir()
    (room / "foreign" / "notes.txt").write_text("somebody's")
    words = [_placed(word, room) for word in target.words.split()]
    return words, {name: _placed(value, room) for name, value in target.values.items()}


def _placed(word: str, room: Path) -> str:
    """A word with the paths of what is read and written."""
    if word == "OUT":
        return str(room / "out")
    if word == "evaluation":
        return str(room / word)
    name, at, rest = word.partition("@")
    return f"{name}{room}/{rest}" if at and not name.startswith("mrr") else word


def _spoil(target: Target, values: dict[str, str], draw: random.Random, room: Path) -> str:
    """Spoil a file that is read, or a value; gives what was done."""
    if target.reads and (not values or draw.random() < 0.65):
        name = draw.choice(target.reads)
        place = room / name
        return f"{name}: {(spoil_folder if place.is_dir() else spoil_file)(place, draw)}"
    if not values:
        return "nothing"
    name = draw.choice(list(values))
    outs = [str(room / "foreign"), str(room / "foreign" / "notes.txt"), str(room), "/proc/nowhere", "/dev/full"]
    values[name] = draw.choice(outs) if values[name].endswith("/out") else draw.choice(WORDS)
    return f"{name} {values[name][:40]!r}"
