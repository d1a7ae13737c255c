"""Writing a table of any size as Parquet files of a fixed number of rows."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final

import pyarrow as pa
from pyarrow import parquet

ROWS: Final = 200_000


class ShardWriter:
    """Fills `part-00000.parquet`, `part-00001.parquet`, ... of a folder; used in a `with` statement.

    Args:
        folder: made when it is not there.
        rows: in each file but the last.

    Attributes:
        written: rows so far.
    """

    def __init__(self, folder: Path, rows: int = ROWS) -> None:
        self.folder = folder
        self.rows = rows
        self.written = 0
        self.file: parquet.ParquetWriter | None = None

    def __enter__(self) -> ShardWriter:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.file is not None:
            self.file.close()

    def write(self, table: pa.Table) -> None:
        """Add rows, all of the same schema."""
        at = 0
        while at < len(table):
            part = table.slice(at, self.rows - self.written % self.rows)
            if self.written % self.rows == 0:
                if self.file is not None:
                    self.file.close()
                name = f"part-{self.written // self.rows:05d}.parquet"
                self.file = parquet.ParquetWriter(self.folder / name, table.schema)
            assert self.file is not None
            self.file.write_table(part)
            at += len(part)
            self.written += len(part)
