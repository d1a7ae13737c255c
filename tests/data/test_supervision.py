"""Labels of every published form end as the same collection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from hf_dense.data import supervision
from hf_dense.data.collections import load_corpus, load_qrels, load_queries, training_pairs
from hf_dense.data.schemas import TRAINING
from hf_dense.data.supervision import build_collection
from hf_dense.errors import InputError


def lists(out: Path, split: str = "train") -> list[dict[str, Any]]:
    table = parquet.read_table(out / "negatives" / f"{split}.parquet")
    assert table.schema.names == list(TRAINING)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def texts(out: Path) -> dict[str, str]:
    corpus = load_corpus(out)
    return dict(zip(corpus["id"], corpus["text"], strict=True))


def write_pairs(path: Path) -> Path:
    rows = [
        {"query": "what is it", "positive": "it is this", "negatives": ["it is not that", "nor that"]},
        {"query": "who is it", "positive": ["it is me", "me it is"]},
        {"query": "what is it", "positive": "it is this too", "negatives": ["nor that"]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_pairs_triples_and_lists_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "_BATCH", 2)
    out = build_collection(write_pairs(tmp_path / "pairs.jsonl"), tmp_path / "out")
    known, rows = texts(out), lists(out)
    assert sorted(known.values()) == sorted(
        ["it is this", "it is not that", "nor that", "it is me", "me it is", "it is this too"]
    )
    assert [row["query"] for row in rows] == ["what is it", "who is it"]
    assert [known[name] for name in rows[0]["positives"]] == ["it is this", "it is this too"]
    assert [known[name] for name in rows[0]["negatives"]] == ["it is not that", "nor that"]
    assert rows[1]["negatives"] == []
    assert len(load_queries(out)) == 2
    assert {name for graded in load_qrels(out, "train").values() for name in graded} <= set(known)
    assert len(training_pairs(out)) == 4


def test_a_csv_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text('query,positive,negative\nwhat is it,"it is, this",not that\n')
    out = build_collection(path, tmp_path / "out", split="dev")
    (row,) = lists(out, "dev")
    known = texts(out)
    assert [known[name] for name in row["positives"] + row["negatives"]] == ["it is, this", "not that"]


def test_dpr(tmp_path: Path) -> None:
    rows = [
        {
            "question": "who",
            "answers": ["me"],
            "positive_ctxs": [{"title": "T", "text": "it is me", "passage_id": "7"}],
            "hard_negative_ctxs": [{"title": "U", "text": "not me", "passage_id": "8"}],
        },
        {"question": "no positive", "positive_ctxs": [], "hard_negative_ctxs": []},
    ]
    (tmp_path / "nq.json").write_text(json.dumps(rows))
    out = build_collection(tmp_path / "nq.json", tmp_path / "out", "dpr")
    (row,) = lists(out)
    assert (row["query"], row["positives"], row["negatives"]) == ("who", ["7"], ["8"])
    assert load_corpus(out)["title"][:] == ["T", "U"]


def write_msmarco(folder: Path, qrels: str = "1 0 11 1\n1 0 12 0\n2 0 12 3\n") -> Path:
    folder.mkdir()
    (folder / "collection.tsv").write_text("11\tfirst passage\n12\tsecond passage\n13\tthird\n")
    (folder / "queries.dev.tsv").write_text("1\tone\n2\ttwo\n3\tnot judged\n")
    (folder / "qrels.dev.tsv").write_text(qrels)
    return folder


def test_msmarco_and_trec(tmp_path: Path) -> None:
    out = build_collection(write_msmarco(tmp_path / "ms"), tmp_path / "out", "msmarco", "dev")
    assert texts(out) == {"11": "first passage", "12": "second passage", "13": "third"}
    assert load_qrels(out, "dev") == {"1": {"11": 1, "12": 0}, "2": {"12": 3}}
    assert [(row["query"], row["positives"]) for row in lists(out, "dev")] == [("one", ["11"]), ("two", ["12"])]


@pytest.mark.parametrize(
    ("qrels", "sentence"),
    [
        ("9 0 11 1\n", r"Line 1 of .*qrels.dev.tsv names the query '9', which queries.dev.tsv lacks"),
        ("1 0 11 1\n1 11 1\n", r"Line 2 of .* has 3 fields"),
        ("1 0 99 1\n", "name the passage '99', which is not in the corpus"),
        ("", "holds no labelled query"),
    ],
)
def test_judgements_that_do_not_fit(tmp_path: Path, qrels: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        build_collection(write_msmarco(tmp_path / "ms", qrels), tmp_path / "out", "msmarco", "dev")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "form", "sentence"),
    [
        (
            "a.jsonl",
            '{"query": "a", "positive": "b"}\n{"query": "a"}\n',
            "pairs",
            r"Row 2 of .* has no positive passage",
        ),
        ("a.jsonl", '{"positive": "b"}\n', "pairs", r"Row 1 of .* has no query"),
        ("a.jsonl", '{"query": \n', "pairs", r"Line 1 of .* is not JSON"),
        ("a.txt", "x", "pairs", "pairs come as .jsonl or .csv"),
        ("a.json", "[{}]", "dpr", r"Entry 1 of .* lacks question or positive_ctxs"),
        ("a.json", "[", "dpr", "is not a JSON file of DPR"),
        ("a.jsonl", "", "pairs", "holds no labelled query"),
        ("a.jsonl", "", "triples", "The form is 'triples'; allowed: pairs, dpr, msmarco"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, name: str, content: str, form: Any, sentence: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=sentence):
        build_collection(tmp_path / name, tmp_path / "out", form)
    assert not (tmp_path / "out").exists()


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        build_collection(tmp_path / "missing.jsonl", tmp_path / "out")
    (tmp_path / "ms").mkdir()
    with pytest.raises(InputError, match=r"has no queries.train.tsv"):
        build_collection(tmp_path / "ms", tmp_path / "out", "msmarco")
