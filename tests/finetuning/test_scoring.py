"""A teacher's scores: those of the cross-encoder, the same after a kill, published form in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from launched import launch
from pyarrow import parquet
from sentence_transformers import CrossEncoder
from tiny_retriever import write_cross_encoder, write_dataset, write_encoder

from hf_dense.data.collections import load_corpus
from hf_dense.data.schemas import TRAINING
from hf_dense.errors import InputError
from hf_dense.finetuning import scoring
from hf_dense.finetuning.lists import load_entries
from hf_dense.finetuning.scoring import score_lists
from hf_dense.search.bm25 import LexicalIndex
from hf_dense.search.cross_encoder import rerank
from hf_dense.storage.output import Output


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random cross-encoder, whose own activation is a sigmoid."""
    return write_cross_encoder(tmp_path_factory.mktemp("teacher") / "model")


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("collection") / "data")


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory, collection: Path) -> Path:
    """Lists of 20 queries, with two to nine negatives and scores of BM25."""
    return write_lists(tmp_path_factory.mktemp("mined") / "lists", collection)


def write_lists(directory: Path, collection: Path, **changes: Any) -> Path:
    rows = []
    for row, entry in enumerate(load_entries(collection)):
        negatives = [f"p{21 + row + at}" for at in range(3 + row % 7) if f"p{21 + row + at}" not in entry.positives]
        scores = [float(at) for at in range(len(negatives))]
        rows.append(
            {
                "query_id": entry.id,
                "query": entry.query,
                "positives": entry.positives,
                "negatives": negatives,
                "positive_scores": [],
                "negative_scores": scores,
                **changes,
            }
        )
    (directory / "negatives").mkdir(parents=True)
    table = pa.Table.from_pylist(rows, schema=TRAINING.arrow_schema)
    parquet.write_table(table, directory / "negatives" / "train.parquet")
    return directory


def read(directory: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(directory / "negatives" / "train.parquet").to_pylist()
    return rows


def texts(collection: Path) -> dict[str, str]:
    return {row["id"]: f"{row['title']} {row['text']}" for row in load_corpus(collection)}


def logits(teacher: Path, query: str, passages: list[str]) -> list[float]:
    model = CrossEncoder(str(teacher), activation_fn=torch.nn.Identity())
    scores: list[float] = model.predict([(query, passage) for passage in passages]).tolist()
    return scores


def test_lists_carry_the_logits_of_the_teacher(teacher: Path, collection: Path, mined: Path, tmp_path: Path) -> None:
    out = score_lists(teacher, mined, collection, tmp_path / "out", depth=5, batch_size=7)
    known, before, after = texts(collection), read(mined), read(out)
    assert parquet.read_schema(out / "negatives" / "train.parquet").equals(TRAINING.arrow_schema)
    assert len(after) == len(before) == 20
    assert {len(row["positives"]) for row in after} == {1, 2}
    for old, new in zip(before, after, strict=True):
        assert new["negatives"] == old["negatives"][:5]
        assert {**new, "negatives": 0, "positive_scores": 0, "negative_scores": 0} == {
            **old,
            "negatives": 0,
            "positive_scores": 0,
            "negative_scores": 0,
        }
        names = [*new["positives"], *new["negatives"]]
        expected = logits(teacher, new["query"], [known[name] for name in names])
        assert [*new["positive_scores"], *new["negative_scores"]] == pytest.approx(expected, abs=1e-5)
    assert min(row["positive_scores"][0] for row in after) < 0, "logits, not the shares of a sigmoid"
    entries = load_entries(out)
    assert all(entry.scores and len(entry.scores) == len(entry.positives) + len(entry.negatives) for entry in entries)
    card = (out / "README.md").read_text()
    assert f"cross-encoder {teacher}" in card
    assert "| queries | 20 |" in card
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_killed_scoring_goes_on_and_ends_the_same(
    teacher: Path, collection: Path, mined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "_PIECE", 6)  # four pieces
    whole = score_lists(teacher, mined, collection, tmp_path / "whole")
    scored, done = scoring._scored, []

    def killed(*given: Any) -> pa.Table:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return scored(*given)

    monkeypatch.setattr(scoring, "_scored", killed)
    with pytest.raises(KeyboardInterrupt):
        score_lists(teacher, mined, collection, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert len(list((tmp_path / "out.partial" / "pieces").glob("*.parquet"))) == 2

    again: list[int] = []
    monkeypatch.setattr(scoring, "_scored", lambda *given: (again.append(1), scored(*given))[1])
    with pytest.raises(InputError, match="holds unfinished work made from another cross-encoder"):
        score_lists(write_cross_encoder(tmp_path / "other", seed=1), mined, collection, tmp_path / "out")
    assert not again
    out = score_lists(teacher, mined, collection, tmp_path / "out")
    assert len(again) == 2, "what was done is not done again"
    assert read(out) == read(whole)
    assert not (tmp_path / "out.partial").exists()
    again.clear()
    assert score_lists(teacher, mined, collection, tmp_path / "out", batch_size=3) == out
    assert not again, "what is there is not made again"
    with pytest.raises(InputError, match=r"was made from another depth \(200, now 5\)"):
        score_lists(teacher, mined, collection, tmp_path / "out", depth=5)
    other = write_lists(tmp_path / "lists", collection, negatives=["p29"], negative_scores=[1.0])
    with pytest.raises(InputError, match="was made from other lists"):
        score_lists(teacher, other, collection, tmp_path / "out")
    score_lists(teacher, other, collection, Output(tmp_path / "out", overwrite=True))
    assert all(row["negatives"] == ["p29"] for row in read(out))


def test_judgements_alone_are_scored_too(teacher: Path, collection: Path, tmp_path: Path) -> None:
    out = score_lists(CrossEncoder(str(teacher)), collection, collection, tmp_path / "out")
    assert all(len(row["positive_scores"]) == len(row["positives"]) and not row["negatives"] for row in read(out))


def test_bm25_is_a_teacher_too(teacher: Path, collection: Path, mined: Path, tmp_path: Path) -> None:
    out = score_lists("bm25", mined, collection, tmp_path / "out", depth=5)
    texts_of, before, after = texts(collection), read(mined), read(out)
    index = LexicalIndex.build(texts_of.values(), tmp_path / "index")
    scores, indices = index.search([row["query"] for row in after], len(texts_of))
    names = list(texts_of)
    for row, given, found, at in zip(after, before, scores, indices, strict=True):
        known = {names[index]: score for index, score in zip(at, found, strict=True)}
        assert row["negatives"] == given["negatives"][:5]
        listed = [known[name] for name in (*row["positives"], *row["negatives"])]
        assert [*row["positive_scores"], *row["negative_scores"]] == pytest.approx(listed)
        assert row["positive_scores"][0] > 0, "its query is a word of it"
    assert "BM25 (title and text, by the stems of their language)" in (out / "README.md").read_text()
    with pytest.raises(InputError, match="was made from another cross-encoder"):
        score_lists(teacher, mined, collection, out, depth=5)


def test_a_query_without_a_known_word_has_scores_of_nothing(tmp_path: Path) -> None:
    index = LexicalIndex.build(["abcd efgh", "ijkl"], tmp_path)
    for query in ("", "the", "zzzz"):
        assert index.scores(query, np.array([1, 0, 1])).tolist() == [0, 0, 0]
    assert index.scores("ijkl zzzz", np.array([0, 1]))[1] > 0


def test_candidates_are_scored_by_query(teacher: Path, collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "_PIECE", 2)
    known = texts(collection)
    candidates = {"a": ["p3", "p1"], "b": [], "c": ["p5", "p9", "p7"]}
    queries = {"a": "abcd", "b": "efgh", "c": "ijkl mnop"}
    found = rerank(teacher, queries, candidates, known, batch_size=2)
    assert {query: list(scores) for query, scores in found.items()} == candidates
    for query in ("a", "c"):
        expected = logits(teacher, queries[query], [known[name] for name in candidates[query]])
        assert list(found[query].values()) == pytest.approx(expected, abs=1e-5)


def test_candidates_without_a_text_are_named(teacher: Path) -> None:
    with pytest.raises(InputError, match="The passage 'x', a candidate of query 'a', has no text"):
        rerank(teacher, {"a": "b"}, {"a": ["x"]}, {})
    with pytest.raises(InputError, match="The query 'a' has no text"):
        rerank(teacher, {}, {"a": ["x"]}, {"x": "y"})


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"negatives": ["p1", "lost"]}, {}, "names the passage 'lost', which is not in the corpus"),
        ({"positives": []}, {}, "has no positive passage"),
        ({}, {"depth": 0}, "depth is 0"),
        ({}, {"batch_size": 0}, "batch_size is 0"),
        ({}, {"split": "dev"}, "no relevance judgements for split 'dev'|lists"),
    ],
)
def test_bad_input_leaves_nothing_behind(
    changes: dict[str, Any], options: dict[str, Any], message: str, teacher: Path, collection: Path, tmp_path: Path
) -> None:
    lists = write_lists(tmp_path / "lists", collection, **changes)
    with pytest.raises(InputError, match=message):
        score_lists(teacher, lists, collection, tmp_path / "out", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["lists"]


def test_what_is_no_teacher_is_refused(collection: Path, mined: Path, tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")
    with pytest.raises(InputError, match="has no head that scores pairs"):
        score_lists(encoder, mined, collection, tmp_path / "out")
    broken = CrossEncoder(str(write_cross_encoder(tmp_path / "teacher")))
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    with pytest.raises(InputError, match="score of a passage is no number"):
        score_lists(broken, mined, collection, tmp_path / "out")
    assert not list(tmp_path.glob("out*"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    for place in (tmp_path / "mine", mined, collection):
        before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
        with pytest.raises(InputError, match=r"was not written by hf_dense|would replace it"):
            score_lists(tmp_path / "teacher", mined, collection, Output(place, overwrite=True))
        assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_two_processes_score_what_one_does(teacher: Path, collection: Path, mined: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom hf_dense.finetuning import scoring\nscoring._PIECE = 6\nscoring.score_lists(*sys.argv[1:])\n"
    )
    for processes in (1, 2):
        done = launch(script, teacher, mined, collection, tmp_path / str(processes), processes=processes)
        assert done.returncode == 0, done.stderr
    one, two = read(tmp_path / "1"), read(tmp_path / "2")
    assert len(one) == len(two)
    for row, same in zip(one, two, strict=True):
        for column, value in row.items():  # a float's last bit depends on where memory lies
            expected = pytest.approx(value, abs=1e-6) if column.endswith("_scores") else value
            assert same[column] == expected
    assert not list(tmp_path.glob("*.partial"))


def test_short_lists_are_made_up_before_they_are_scored(mined: Path, collection: Path, tmp_path: Path) -> None:
    out = score_lists("bm25", mined, collection, tmp_path / "out", least=6)
    index = LexicalIndex.build([f"{row['title']} {row['text']}" for row in load_corpus(collection)], tmp_path / "index")
    rows = {name: row for row, name in enumerate(load_corpus(collection)["id"][:])}
    for before, after in zip(load_entries(mined), load_entries(out), strict=True):
        assert set(before.negatives) <= set(after.negatives)
        assert len(after.negatives) == max(6, len(before.negatives)) == len({*after.negatives} - {*after.positives})
        names = [*after.scores]
        scores = index.scores(after.query, np.array([rows[name] for name in names]))
        np.testing.assert_allclose([after.scores[name] for name in names], scores, rtol=1e-5)
