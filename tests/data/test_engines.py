"""The same passages from one process, from a cluster of two nodes, and from one that loses a node on the way."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from json_lines import write_lines
from pyarrow import parquet

from hf_dense.data import passage_corpus
from hf_dense.data.engines import Engine, map_tables
from hf_dense.data.passage_corpus import Cutting, build_passage_corpus
from hf_dense.errors import InputError


def doubled(table: pa.Table) -> pa.Table:
    return pa.table({"number": [2 * number for number in table.column("number").to_pylist()]})


def write_numbers(folder: Path) -> list[Path]:
    folder.mkdir()
    files = [folder / f"{number}.parquet" for number in range(4)]
    for number, file in enumerate(files):
        parquet.write_table(pa.table({"number": [number, number + 10]}), file)
    return files


@pytest.mark.parametrize("processes", [1, 2])
def test_files_are_mapped_in_order(tmp_path: Path, processes: int) -> None:
    files = write_numbers(tmp_path / "in")
    done = map_tables(doubled, files, tmp_path / "out", Engine(processes=processes), "Doubling")
    assert [file.name for file in done] == [file.name for file in files]
    assert [parquet.read_table(file).column("number").to_pylist() for file in done] == [
        [2 * number, 2 * number + 20] for number in range(4)
    ]
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".parquet"] * 4


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(InputError, match="The engine is 'spark'; allowed: local, ray"):
        Engine("spark")  # type: ignore[arg-type]


def write_documents(path: Path) -> Path:
    sentence = "Sentence {} of document {} says something that no other one does."
    rows = [
        {"id": str(number), "text": " ".join(sentence.format(at, number) for at in range(40))} for number in range(60)
    ]
    return write_lines(path, rows)


@pytest.mark.slow
@pytest.mark.parametrize("loses", [False, True], ids=["two nodes", "a node is lost"])
def test_a_cluster_gives_what_one_machine_gives(
    loses: bool, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = str(write_documents(tmp_path / "docs.jsonl"))
    monkeypatch.setattr(passage_corpus, "_READ", 15_000)
    alone = build_passage_corpus(source, tmp_path / "alone", Cutting(50), engine=Engine(processes=1))
    engine = Engine("ray", address=cluster.address)
    losing = threading.Timer(6.0, lambda: cluster.remove_node(cluster.second, allow_graceful=False))
    if loses:
        losing.start()
    together = build_passage_corpus(source, tmp_path / "together", Cutting(50), engine=engine)
    losing.cancel()
    first, second = (parquet.read_table(folder / "corpus") for folder in (alone, together))
    assert len(first) > 500
    assert first.equals(second)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "There is no Ray cluster at '127.0.0.1:1'"),
        ("127.0.0.1:99999", "There is no Ray cluster at '127.0.0.1:99999'"),
        ("no address", "No Ray cluster can be joined at 'no address': "),
        ("auto", "No Ray cluster can be joined at 'auto': "),
    ],
)
def test_a_cluster_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: None, address: str, said: str
) -> None:
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(InputError, match=said):
        map_tables(doubled, write_numbers(tmp_path / "in"), tmp_path / "out", Engine("ray", address=address), "x")
