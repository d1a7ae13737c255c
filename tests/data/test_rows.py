"""Rows of files that are read a part at a time."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hf_dense.data import rows
from hf_dense.errors import InputError


def test_a_list_of_json_is_read_value_by_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_CHUNK", 7)
    values = [{"a": [1, {"b": "],["}]}, {"c": "x" * 50}, {}, None, "é", 123456789, [True, -1.5]]
    for indent in (None, 2):
        path = tmp_path / "list.json"
        path.write_text(json.dumps(values, indent=indent, ensure_ascii=False), encoding="utf-8-sig")
        assert list(rows.listed_values(path)) == values


@pytest.mark.parametrize("content", [b"", b"{}", b"[", b'[{"a": 1}, {"b', b'["caf\xff"]', b"[" * 100_000])
def test_what_is_no_list_of_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list.json").write_bytes(content)
    with pytest.raises(InputError, match="is not a list of JSON"):
        list(rows.listed_values(tmp_path / "list.json"))


def read(path: Path) -> tuple[list[list[Any]], Counter[str]]:
    """The cells of all rows of a table, and what was left out."""
    counts, kind = Counter[str](), path.with_suffix("").suffix or path.suffix
    return [list(row.values()) for row in rows.read_rows(path, kind, counts)], counts


def test_a_quote_that_nothing_closes_loses_its_line_alone(tmp_path: Path) -> None:
    lines = ["id,text", "1,one", '2,"two', "3,three", '4,"four, and', 'more"', '5,"five', "6,six"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    found, counts = read(tmp_path / "a.csv")
    assert found == [["1", "one"], ["3", "three"], ["4", "four, and\nmore"], ["6", "six"]]
    assert counts == {"unreadable": 2}


def test_what_says_how_columns_are_divided_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\ufeffsep=,\nid,text\n1,one\n")
    assert read(tmp_path / "a.csv") == ([["1", "one"]], Counter())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'id,text\r\n1,"für\r\ndich"\r\n'),
        ("a.tsv", "id\ttext\r\n1\tfür\u2028dich\r\n"),
        ("a.jsonl", '{"id": "1", "text": "für"}\n'),
        ("a.json", '[{"id": "1", "text": "für"}]'),
        ("a.csv.gz", "id,text\n1,für\n"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_tables_are_read_in_unicode_that_begins_with_its_mark(
    tmp_path: Path, name: str, content: str, encoding: str
) -> None:
    coded = content.encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(coded) if name.endswith(".gz") else coded)
    found, counts = read(tmp_path / name)
    assert [[cell[:3] for cell in row] for row in found] == [["1", "für"]]
    assert not counts


def test_unicode_that_is_cut_off_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("id,text\n1,one".encode("utf-16")[:-1])
    with pytest.raises(InputError, match=r"a\.csv is not a file that can be read"):
        read(tmp_path / "a.csv")
