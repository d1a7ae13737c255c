"""What one evaluation found, kept per query: a directory of figures and rankings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute, parquet

from hf_dense.errors import InputError, as_sentence
from hf_dense.storage.files import write_text

RESULT_FILE: Final = "result.json"
RANKINGS_FILE: Final = "rankings.parquet"
RANKS_KEPT: Final = 1000  # of a query: the deepest that a measure reads
_RANKINGS: Final = {"query-id": pa.string(), "corpus-id": pa.string(), "rank": pa.int32(), "score": pa.float64()}


@dataclass(frozen=True)
class RetrievalResult:
    """What one retriever scored on one split.

    Attributes:
        name: of the retriever, as the caller gave it.
        split: of the qrels.
        metrics: fractions, means over the queries.
        per_query: for each metric, query id -> value.
        seconds: wall-clock time of encoding, search and scoring; where a killed run went on, of the rest.
        origin: what else is known, as `CostMeter.describe` has it; `resumed` where a killed run went on.
    """

    name: str
    split: str
    metrics: dict[str, float]
    per_query: dict[str, dict[str, float]]
    seconds: float
    origin: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> RetrievalResult:
        """Read back what an evaluation wrote in `directory`.

        Raises:
            InputError: no result there.
        """
        path = Path(directory) / RESULT_FILE
        if not path.is_file():
            below = min([*path.parent.glob(f"*/{RESULT_FILE}"), *path.parent.glob(f"*/*/{RESULT_FILE}")], default=None)
            raise InputError(f"There is no evaluation result {path}{f'; {below.parent} has one' if below else ''}.")
        with as_sentence(f"{path} is not an evaluation result"):
            found = cls(**json.loads(path.read_text(encoding="utf-8")))
            for figures in ({"seconds": found.seconds}, found.metrics, *found.per_query.values()):
                if wrong := [name for name, value in figures.items() if not isinstance(value, int | float)]:
                    raise ValueError(f"{wrong[0]!r} has no number")
            return found

    def save(self, directory: Path, rankings: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Write `result.json` and, of rankings, `rankings.parquet`.

        Args:
            directory: is there.
            rankings: query id -> passage id -> score. The first 1,000 of each query are kept, best first, in the
                columns `query-id`, `corpus-id`, `rank` from 1, `score`; equal scores by id, descending.
        """
        write_text(directory / RESULT_FILE, json.dumps(asdict(self), indent=1))
        if rankings is None:
            return
        columns: dict[str, list[Any]] = {name: [] for name in _RANKINGS}
        for query, ranking in rankings.items():
            best = sorted(((score, passage) for passage, score in ranking.items()), reverse=True)[:RANKS_KEPT]
            columns["query-id"] += [query] * len(best)
            columns["corpus-id"] += [passage for _, passage in best]
            columns["rank"] += range(1, len(best) + 1)
            columns["score"] += [score for score, _ in best]
        parquet.write_table(pa.table(columns, pa.schema([*_RANKINGS.items()])), directory / RANKINGS_FILE)


def load_rankings(directory: str | os.PathLike[str], depth: int = RANKS_KEPT) -> dict[str, dict[str, float]]:
    """The first passages of each query that an evaluation kept: query id -> passage id -> score, best first.

    Args:
        directory: what the evaluation wrote.
        depth: passages of a query, at most the 1,000 that are kept.

    Raises:
        InputError: no rankings there.
    """
    path = Path(directory) / RANKINGS_FILE
    if not path.is_file():
        raise InputError(f"There are no rankings {path}.")
    rankings: dict[str, dict[str, float]] = {}
    with as_sentence(f"{path} holds no rankings"):
        table = parquet.read_table(path, filters=compute.field("rank") <= depth).select(list(_RANKINGS))
    for query, passage, score in zip(
        *(table[name].to_pylist() for name in ("query-id", "corpus-id", "score")), strict=True
    ):
        rankings.setdefault(query, {})[passage] = score
    return rankings
