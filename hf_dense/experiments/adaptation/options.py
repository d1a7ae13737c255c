"""The options of an adaptation; nothing heavy is imported, so that help is there at once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from hf_dense.errors import InputError
from hf_dense.hub.precision import BF16, FP32
from hf_dense.methods import METHODS

AUTO: Final = "auto"
TRIED: Final = ("retromae", "dupmae")  # by `auto`
WRITTEN: Final = ("master", "query_cocondenser", "query_cotmae")  # read what a language model wrote about passages
PLAIN: Final = tuple(name for name in METHODS if name not in WRITTEN)  # read passages alone
NOTHING_KEPT: Final = "none"
NO_METHOD: Final = "none"  # in place of a method
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}


@dataclass
class AdaptOptions:
    """What is adapted to what, and in how much time."""

    docs: str = field(metadata={"help": "folder of documents, table of passages, or a collection with judgements"})
    out: str = field(metadata={"help": "receives report, retriever and index; goes on where it stopped"})
    base: str | None = field(
        default=None, metadata={"help": "ready embedder or encoder, directory or Hub id; none starts from scratch"}
    )
    queries: str | None = field(
        default=None,
        metadata={"help": ".jsonl, .json, .csv, .tsv or .parquet with query and positive; without it queries are made"},
    )
    budget: str = field(default="30m", metadata={"help": "time for all of it, such as 10m, 2h or 1h30m"})
    method: str = field(
        default="retromae",
        metadata={
            "help": f"method of pre-training: {', '.join(PLAIN)}; {AUTO}, which tries {' and '.join(TRIED)}; or "
            f"{NO_METHOD}, where all the time is for fine-tuning"
        },
    )
    teacher: str = field(
        default="bm25", metadata={"help": "what the better model is distilled from: a cross-encoder, or bm25"}
    )
    keep: str = field(
        default="python_docs",
        metadata={"help": f"COLLECTION[:SPLIT] that shows what is forgotten; {NOTHING_KEPT} measures none"},
    )
    length: int = field(
        default=128,
        metadata={"help": "longest text in tokens, at most what the base reads; documents are cut to passages of it"},
    )
    precision: str = field(
        default=AUTO,
        metadata={
            "help": "fp32 or bf16 for all; auto trains in bf16 where this machine is faster by it, and encodes in fp32"
        },
    )
    seed: int = field(default=0, metadata={"help": "of all draws"})
    overwrite: bool = field(default=False, metadata={"help": "replace what was made from other inputs or settings"})
    license: str = field(default="other", metadata={"help": "of the weights, for the card"})

    def __post_init__(self) -> None:
        self.budget = write_budget(parse_budget(self.budget))
        if self.method not in (AUTO, NO_METHOD, *METHODS):
            raise InputError(f"The method is {self.method!r}; allowed: {AUTO}, {NO_METHOD}, {', '.join(METHODS)}.")
        if self.precision not in (AUTO, FP32, BF16):
            raise InputError(f"The precision is {self.precision!r}; allowed: {AUTO}, {FP32}, {BF16}.")
        if self.length < 16:
            raise InputError(f"length is {self.length}; passages of at least 16 tokens can be told apart.")

    @property
    def seconds(self) -> float:
        """The budget."""
        return parse_budget(self.budget)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that are pre-trained with."""
        return {AUTO: TRIED, NO_METHOD: ()}.get(self.method, (self.method,))


def parse_budget(text: str) -> float:
    """A time in seconds.

    >>> parse_budget("10m"), parse_budget("1h30m"), parse_budget("90s")
    (600.0, 5400.0, 90.0)

    Raises:
        InputError: it is none, or below a minute.
    """
    if not re.fullmatch(r"(\d+(\.\d+)?[hms])+", text):
        raise InputError(f"The budget is {text!r}; write a time such as 10m, 2h or 1h30m.")
    seconds = sum(float(number) * _UNITS[unit] for number, _, unit in re.findall(r"(\d+(\.\d+)?)([hms])", text))
    if seconds < 60:
        raise InputError(f"The budget is {text}; no model learns anything in less than a minute.")
    return float(seconds)


def write_budget(seconds: float) -> str:
    """The one way that a time is kept in, however it was written.

    >>> write_budget(120), write_budget(5400), write_budget(90.5)
    ('2m', '1h30m', '1m30.5s')
    """
    minutes, rest = divmod(seconds, _UNITS["m"])
    hours, minutes = divmod(minutes, _UNITS["h"] // _UNITS["m"])
    return "".join(f"{number:.15g}{unit}" for number, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if number)
