"""The same function over many tables, on one machine or on a cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
from pyarrow import parquet

from hf_dense.errors import InputError, first_line

Kind = Literal["local", "ray"]
Function = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class Engine:
    """Where work is done.

    Args:
        kind: `local`, processes of this machine (`datasets.map`); or `ray`, the tasks of a Ray cluster.
        processes: how many at once on this machine; one for each core when absent.
        address: of the Ray cluster; one is started on this machine when absent. Its nodes must see the files.

    Raises:
        InputError: an unknown kind, or an address for another one than `ray`.
    """

    kind: Kind = "local"
    processes: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"The engine is {self.kind!r}; allowed: {', '.join(get_args(Kind))}.")
        if self.address is not None and self.kind != "ray":
            raise InputError(
                f"The address {self.address} is of a Ray cluster; name the engine ray too, or leave it out."
            )


def map_tables(function: Function, files: Sequence[Path], out: Path, engine: Engine, doing: str) -> list[Path]:
    """Apply a function to every Parquet file and write what it gives.

    Args:
        function: table -> table; the same on every engine.
        files: what to read.
        out: folder of the results, one file for each one read, under its name.
        doing: what the progress bar says.

    Returns:
        The results, in the order of `files`.
    """
    out.mkdir()
    work = _FileFunction(function, str(out))
    names = [str(file) for file in files]
    if engine.kind == "ray":
        _map_on_ray(work, names, engine, doing)
    else:
        _map_here(work, names, engine, doing)
    return [out / file.name for file in files]


@dataclass(frozen=True)
class _FileFunction:
    """A function of tables as one of rows that name files, which every engine can map."""

    function: Function
    out: str

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        file = Path(str(row["file"]))
        target = Path(self.out) / file.name
        partial = target.with_suffix(".partial")  # a task that dies half way is run again
        parquet.write_table(self.function(parquet.read_table(file)), partial)
        os.replace(partial, target)
        return {"file": str(target)}


def _map_here(work: _FileFunction, names: list[str], engine: Engine, doing: str) -> None:
    from datasets import Dataset

    processes = min(engine.processes or os.cpu_count() or 1, len(names))
    rows = Dataset.from_dict({"file": names})
    rows.map(
        work, num_proc=processes if processes > 1 else None, desc=doing, load_from_cache_file=False, keep_in_memory=True
    )


def _map_on_ray(work: _FileFunction, names: list[str], engine: Engine, doing: str) -> None:
    start_ray(engine.address)
    import ray

    done = ray.data.from_items([{"file": name} for name in names], override_num_blocks=len(names)).map(work)
    done.materialize()


def start_ray(address: str | None) -> None:
    """Join a Ray cluster, or start one on this machine where there is no address.

    Args:
        address: `HOST:PORT`, or a word that Ray resolves (`auto`).

    Raises:
        InputError: nobody listens there, it is no address, or Ray is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise InputError("Ray is not installed: pip install 'hf_dense[cluster]'.") from error
    if address:
        _check_reachable(address)
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    except (ValueError, ConnectionError, RuntimeError) as error:  # the last of a cluster of another version
        raise InputError(
            f"No Ray cluster can be joined at {address or 'this machine'!r}: {first_line(error)}"
        ) from error


def _check_reachable(address: str) -> None:
    """Raise `InputError` where nobody listens; Ray itself keeps trying for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # "auto" and the like, which Ray resolves
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:  # the latter of a port above all
        raise InputError(f"There is no Ray cluster at {address!r}.") from error
