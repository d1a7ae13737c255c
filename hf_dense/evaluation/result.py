"""What one evaluation found, kept per query: a directory of figures and rankings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from hf_dense.errors import InputError
from hf_dense.storage.files import write_text

RESULT_FILE: Final = "result.json"
RANKINGS_FILE: Final = "rankings.parquet"
RANKS_KEPT: Final = 100


@dataclass(frozen=True)
class RetrievalResult:
    """What one retriever scored on one split.

    Attributes:
        name: of the retriever, as the caller gave it.
        split: of the qrels.
        metrics: fractions, means over the queries.
        per_query: for each metric, query id -> value.
        seconds: wall-clock time of encoding, search and scoring; where a killed run went on, of the rest.
        origin: what else is known, as `CostMeter.describe` has it.
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
            raise InputError(f"There is no evaluation result {path}.")
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def save(self, directory: Path, rankings: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Write `result.json` and, of rankings, `rankings.parquet`.

        Args:
            directory: is there.
            rankings: query id -> passage id -> score. The first 100 of each query are kept, best first, in the columns
                `query-id`, `corpus-id`, `rank` from 1, `score`; equal scores by id, descending.
        """
        write_text(directory / RESULT_FILE, json.dumps(asdict(self), indent=1))
        if rankings is None:
            return
        rows = [
            (query, passage, rank, score)
            for query, ranking in rankings.items()
            for rank, (score, passage) in enumerate(
                sorted(((score, passage) for passage, score in ranking.items()), reverse=True)[:RANKS_KEPT], start=1
            )
        ]
        names = {"query-id": pa.string(), "corpus-id": pa.string(), "rank": pa.int32(), "score": pa.float64()}
        table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], pa.schema([*names.items()]))
        parquet.write_table(table, directory / RANKINGS_FILE)


def load_rankings(directory: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    """The first 100 passages of each query that an evaluation kept: query id -> passage id -> score, best first.

    Raises:
        InputError: no rankings there.
    """
    path = Path(directory) / RANKINGS_FILE
    if not path.is_file():
        raise InputError(f"There are no rankings {path}.")
    rankings: dict[str, dict[str, float]] = {}
    for row in sorted(parquet.read_table(path).to_pylist(), key=lambda row: int(row["rank"])):
        rankings.setdefault(row["query-id"], {})[row["corpus-id"]] = row["score"]
    return rankings
