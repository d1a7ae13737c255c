"""Rows of files that are read a part at a time."""

from __future__ import annotations

import json
from pathlib import Path

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


@pytest.mark.parametrize("content", [b"", b"{}", b"[", b'[{"a": 1}, {"b', b'["caf\xe9"]', b"[" * 100_000])
def test_what_is_no_list_of_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list.json").write_bytes(content)
    with pytest.raises(InputError, match="is not a list of JSON"):
        list(rows.listed_values(tmp_path / "list.json"))
