from __future__ import annotations

from pathlib import Path

import pytest

from hf_dense.errors import InputError
from hf_dense.search.questions import check_questions, read_questions


def test_lines_and_rows_are_questions(tmp_path: Path) -> None:
    lines, rows = tmp_path / "asked.txt", tmp_path / "asked.jsonl"
    lines.write_text("\ufeffwhat is it\n\n  who was it \n", encoding="utf-8")
    assert read_questions(lines) == {"1": "what is it", "3": "who was it"}
    half_a_letter = '{"id": 2, "text": "caf\\u00e9 \\ud83d"}'
    rows.write_text('{"_id": "q1", "text": "what\u2028is it"}\n' + half_a_letter, encoding="utf-8")
    assert read_questions(rows) == {"q1": "what\u2028is it", "2": "café ?"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("asked.csv", 'id,text\nq1,what is it\nq2,"who, then, was it"\n'),
        ("asked.CSV", '\ufeffQID,Query,notes\nq1,what is it,\nq2,"who, then, was it",x\n'),
        ("asked.tsv", "q1\twhat is it\nq2\twho, then, was it\n"),
        ("asked.tsv", "\ufeffq1\twhat is it\r\nq2\twho, then, was it\r\n"),
        ("asked.tsv", "id\tquery\nq1\twhat is it\nq2\twho, then, was it\n"),
        ("asked.json", '[{"_id": "q1", "text": "what is it"},\n {"id": "q2", "query": "who, then, was it"}]'),
        ("asked.tsv", "query-id\ttext\nq1\twhat is it\nq2\twho, then, was it\n"),
    ],
)
def test_rows_of_tables_are_questions(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content.encode())
    assert read_questions(tmp_path / name) == {"q1": "what is it", "q2": "who, then, was it"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("asked.txt", b" \n\n", "no question in"),
        ("asked.txt", b"caf\xe9\n", "is not text"),
        ("asked.jsonl", b'{"id": "1", "text": "a"}\nwho\n', "Line 2 of .* has no id and text"),
        ("asked.jsonl", b'{"id": "1", "text": " "}\n', "Line 1"),
        ("asked.jsonl", b'{"text": "who"}\n', "Line 1"),
        ("asked.jsonl", b'["who"]\n', "Line 1"),
        ("asked.jsonl", b'{"id": "1", "text": "a"}\n{"id": "1", "text": "b"}\n', "two questions with the id '1'"),
        ("asked.json", b"[]", "no question in"),
        ("asked.json", b'[{"id": "1", "text": "a"}, "who"]', r"cannot be read \(1 unreadable\)"),
        ("asked.json", b'[{"id": "1"', "is not a list of JSON, or was cut off"),
        ("asked.csv", b"id,text\n", "no question in"),
        ("asked.csv", b"q1,what is it\nq2,who was it\n", "Row 1 of .* has no id and text"),
        ("asked.csv", b"id,text\nq1,caf\xff\n", r"cannot be read \(1 broken UTF-8\)"),
        ("asked.csv", b"id,text\nq1,who, then\n", r"cannot be read \(1 unreadable\)"),
        ("asked.tsv", b"q1\twhat is it\nq2\t \n", "Row 2 of .* has no id and text"),
        ("asked.tsv", b"what is it\n", "has 1 columns"),
    ],
)
def test_files_that_cannot_be_asked(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_questions(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere.txt", tmp_path / "nowhere.csv"):
        with pytest.raises(InputError, match="can be read"):
            read_questions(path)


def test_what_cannot_be_searched_for() -> None:
    check_questions(["who"], 1, 0.5)
    for questions, top_k, weight, message in (
        ([" "], 5, 1.0, "The question is empty"),
        (["caf\udce9"], 5, 1.0, "is not UTF-8"),
        (["who", ""], 5, 1.0, "One of the questions is empty"),
        (["who"], 0, 1.0, "top_k is 0"),
        (["who"], True, 1.0, "top_k is True"),
        (["who"], 5, 1.5, "weight is 1.5; it must be from 0"),
        (["who"], 5, float("nan"), "weight is nan"),
    ):
        with pytest.raises(InputError, match=message):
            check_questions(questions, top_k, weight)
