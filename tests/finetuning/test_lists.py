"""Training lists: read with their scores, drawn anew in every epoch and the same for a seed, filled where short."""

from __future__ import annotations

import logging
import math
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datasets import Dataset
from json_lines import write_lines
from pyarrow import parquet

from hf_dense.data.schemas import TRAINING
from hf_dense.errors import InputError
from hf_dense.finetuning.batches import ListSampler
from hf_dense.finetuning.lists import GIVEN, Entry, PassageLists, join_lists, lists_of, load_entries, load_lists, share
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source


def corpus(size: int = 20) -> Dataset:
    names = [f"p{at}" for at in range(size)]
    return Dataset.from_dict({"id": names, "title": ["T"] * size, "text": [f"text {at}" for at in range(size)]})


def entry(name: str = "q", **changes: Any) -> Entry:
    values = {"positives": ("p0", "p1"), "negatives": tuple(f"p{at}" for at in range(2, 12)), **changes}
    return Entry(name, f"query {name}", **values)


def write(folder: Path, **changes: Any) -> Path:
    row = {
        "query_id": "q",
        "query": "what",
        "positives": ["p0"],
        "negatives": ["p1", "p2"],
        "positive_scores": [],
        "negative_scores": [],
        **changes,
    }
    (folder / "negatives").mkdir(parents=True)
    table = pa.Table.from_pylist([row], schema=TRAINING.arrow_schema)
    parquet.write_table(table, folder / "negatives" / "train.parquet")
    return folder


def test_lists_are_read_with_a_teachers_scores_alone(tmp_path: Path) -> None:
    (plain,) = load_entries(write(tmp_path / "a", negative_scores=[3.0, 2.0]))
    assert plain == Entry("q", "what", ("p0",), ("p1", "p2")), "BM25's scores are no teacher's"
    (scored,) = load_entries(write(tmp_path / "b", positive_scores=[5.0], negative_scores=[3.0, 2.0]))
    assert scored.scores == {"p0": 5.0, "p1": 3.0, "p2": 2.0}


def test_joined_lists_have_the_negatives_of_both_in_turn_and_no_positive() -> None:
    mined = [entry("a", negatives=("p2", "p3", "p4", "p5"), scores={"p2": 1.0}), entry("b", negatives=("p9",))]
    bm25 = [entry("a", positives=("p0", "p5"), negatives=("p6", "p2")), entry("c")]
    first, *others = join_lists([mined, bm25])
    assert first == entry("a", positives=("p0", "p1", "p5"), negatives=("p2", "p6", "p3", "p4"))
    assert first.scores is None, "scores of two teachers do not compare"
    assert others == [mined[1], bm25[1]], "what only one has"
    assert join_lists([mined]) == mined


def test_joined_lists_have_no_teachers_scores() -> None:
    scored = [entry(scores={f"p{at}": 1.0 for at in range(12)})]
    assert len(lists_of({"a": scored}, corpus(), "c", 3, seed=0, scored=True)) == 1
    with pytest.raises(
        InputError, match=r"that are joined \(a, b\) have no teacher's scores.* score them together first"
    ):
        lists_of({"a": scored, "b": scored}, corpus(), "c", 3, seed=0, scored=True)


def test_an_epoch_draws_a_positive_and_negatives_and_the_next_others() -> None:
    lists = PassageLists([entry()], corpus(), passages=4, seed=1)
    drawn = []
    for epoch in range(6):
        lists.epoch = epoch
        first, *others = lists.draw(0)
        assert first in ("p0", "p1")
        assert len(set(others)) == 3
        assert set(others) <= set(entry().negatives)
        assert lists.draw(0) == [first, *others]
        drawn.append((first, *others))
    assert len(set(drawn)) > 3
    assert {names[0] for names in drawn} == {"p0", "p1"}
    shallow = PassageLists([entry()], corpus(), passages=4, seed=1, depth=3)
    assert set(shallow.draw(0)[1:]) == {"p2", "p3", "p4"}


def test_rows_hold_texts_and_scores() -> None:
    scores = {f"p{at}": float(at) for at in range(12)}
    lists = PassageLists([entry(scores=scores)], corpus(), passages=3, seed=1, scored=True)
    (row,) = lists.dataset()
    names = lists.draw(0)
    assert row["query"] == "query q"
    assert row["passages"] == [f"T text {name[1:]}" for name in names]
    assert row["label"] == [scores[name] for name in names]
    (numbered,) = lists.dataset(numbered=True)
    assert {name: numbered[name] for name in row} == row
    assert [number in numbered["relevant"] for number in numbered["numbers"]] == [True, False, False]
    assert len({*numbered["numbers"], *numbered["relevant"]}) == 4


def test_copies_of_a_passage_have_one_number() -> None:
    texts = ["a stop", "a wait", "a stop.", "a stop"]
    copies = Dataset.from_dict({"id": ["p0", "p1", "p2", "p3"], "title": ["", "", "", "T"], "text": texts})
    (row,) = PassageLists([entry(negatives=("p2", "p3"))], copies, passages=3, seed=1).dataset(numbered=True)
    assert sorted(number in row["relevant"] for number in row["numbers"]) == [False, True, True]


def test_what_is_relevant_for_a_query_of_the_same_words_is_relevant() -> None:
    """Two collections that were merged ask the same, and each knows passages of its own."""
    asked = [
        Entry("a", "what is it", ("p0",), ("p2",)),
        Entry("b", "What  is it", ("p1",), ("p3",)),
        Entry("c", "another", ("p2",), ("p1",)),
    ]
    lists = PassageLists(asked, corpus(4), passages=2, seed=1)
    first, second, other = lists.dataset(numbered=True)
    (number,) = (number for name, number in zip(lists.draw(2), other["numbers"], strict=True) if name == "p1")
    assert number in first["relevant"]
    assert {*first["relevant"]} == {*second["relevant"]}
    made_up = PassageLists(asked, corpus(4), passages=3, seed=1)
    assert {*made_up.draw(0)} == {"p0", "p2", "p3"}, "the fourth is the other's positive"


def test_short_lists_of_a_teacher_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    scores = {f"p{at}": 1.0 for at in range(12)}
    whole = [entry(name, scores=scores) for name in ("a", "b")]
    with caplog.at_level("WARNING"):
        lists = PassageLists(
            [whole[0], entry("short", negatives=("p2",), scores=scores), whole[1]], corpus(), 3, seed=0, scored=True
        )
    assert "1 of 3 lists have fewer than 2 scored negatives" in caplog.text
    assert [one.id for one in lists.entries] == ["a", "b"]


@pytest.mark.parametrize("rising", [True, False])
def test_a_teacher_that_scores_upside_down_is_told_of(
    rising: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ranks are low for what is relevant; so are BM25's scores beside negatives that it found, which is no fault."""
    ranks = {f"p{at}": float(at if rising else -at) for at in range(12)}
    entries = [entry("a", scores=ranks), entry("b", scores=ranks)]
    said = "In 2 of 2 lists the teacher scores the positives below the negatives"
    with caplog.at_level("WARNING"):
        lists_of({GIVEN: entries}, corpus(), "collection", 3, seed=0, scored=True)
        assert (said in caplog.text) == rising
        caplog.clear()
        with Output(tmp_path / "scores").stage("training lists", {}, {"BM25": Source("bm25", "f")}):
            pass
        lists_of({str(tmp_path / "scores"): entries}, corpus(), "collection", 3, seed=0, scored=True)
        assert said not in caplog.text


def test_short_lists_are_made_up_from_the_corpus(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        lists = PassageLists([entry(), entry("short", negatives=("p2",))], corpus(), passages=5, seed=0)
    assert (
        "1 of 2 lists have fewer than 4 negatives at a depth of 200 (the first is that of query 'short')" in caplog.text
    )
    names = lists.draw(1)
    assert len(set(names)) == 5
    assert "p2" in names
    assert not {"p0", "p1"} & set(names[1:])


def test_a_share_of_the_queries_holds_a_smaller_one() -> None:
    entries = [entry(str(at)) for at in range(400)]
    tenth, half = share(entries, 0.1, 0), share(entries, 0.5, 0)
    assert 20 < len(tenth) < 60
    assert 160 < len(half) < 240
    assert {found.id for found in tenth} < {found.id for found in half}
    assert share(entries, 1.0, 0) == entries
    for fraction in (0.0, 1.5):
        with pytest.raises(InputError, match="above 0 and at most 1"):
            share(entries, fraction, 0)
    with pytest.raises(InputError, match="leaves none"):
        share(entries[:1], 1e-9, 0)


def test_steps_share_no_query_and_no_positive(caplog: pytest.LogCaptureFixture) -> None:
    entries = [entry(str(at), positives=(f"p{at % 10}",), negatives=("p11",)) for at in range(40)]
    lists = PassageLists(entries, corpus(), passages=2, seed=0)
    for processes in (1, 2):
        sampler = ListSampler(lists, 8 // processes, processes)
        batches = list(sampler)
        assert len(batches) == len(sampler) == 5 * processes
        steps = [[*chain(*batches[at : at + processes])] for at in range(0, len(batches), processes)]
        assert steps == list(ListSampler(lists, 8)), "the same steps"
        positives = [[entries[row].positives[0] for row in step] for step in steps]
        assert sum(len(set(step)) < len(step) for step in positives) <= 2, "only the last ones may have to"
    before = list(ListSampler(lists, 8))
    lists.epoch = 1
    assert list(ListSampler(lists, 8)) != before
    caplog.clear()
    assert list(ListSampler(lists, 4))
    assert not caplog.records
    sampler = ListSampler(lists, 20)
    assert [len(batch) for _ in range(2) for batch in sampler] == [20] * 4, "ten positives are all there are"
    (said,) = caplog.messages
    assert "Rows that share a query or a positive are put into one step, as too few others" in said


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"positives": []}, r"The list of query 'q' \(row 1 of .*train.parquet\) has no positive passage"),
        ({"query_id": None}, r"The list of query None \(row 1 of .*train.parquet\) lacks an id"),
        ({"query": None}, r"The list of query 'q' \(row 1 of .*train.parquet\) lacks its text"),
        ({"positive_scores": [1.0]}, r"\(row 1 of .*\) has 0 negative_scores for 2 negatives; a teacher scores"),
        ({"positive_scores": [1.0, 2.0], "negative_scores": [3.0]}, "has 2 positive_scores for 1 positives"),
        (
            {"negatives": ["p1", "p1"], "positive_scores": [1.0], "negative_scores": [2.0, 3.0]},
            "has two scores of the passage 'p1'",
        ),
    ],
)
def test_lists_that_lack_something(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_entries(write(tmp_path / "lists", **changes))


def test_a_passage_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    (read,) = load_entries(write(tmp_path / "lists", negatives=["p1", "p2", "p1"]))
    assert read.negatives == ("p1", "p2")


@pytest.mark.parametrize(("scores", "sentence"), [(["high"], "Failed to parse string"), (None, "positive_scores")])
def test_columns_that_hold_something_else(tmp_path: Path, scores: list[str] | None, sentence: str) -> None:
    (tmp_path / "negatives").mkdir()
    row = {"query_id": "q", "query": "what", "positives": ["p0"], "negatives": ["p1"], "negative_scores": [1.0]}
    row |= {} if scores is None else {"positive_scores": scores}
    parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "negatives" / "train.parquet")
    with pytest.raises(InputError, match=f"is not a file of training lists: .*{sentence}"):
        load_entries(tmp_path)


def test_lists_of_queries_that_the_collection_lacks_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "c").mkdir()
    write_lines(tmp_path / "c" / "corpus.jsonl", [{"_id": f"p{at}", "text": f"text {at}"} for at in range(3)])
    for query, text, told in (("q", "what", 0), ("q", "another", 1), ("other", "what", 1)):
        caplog.clear()
        write_lines(tmp_path / "c" / "queries.jsonl", [{"_id": query, "text": text}])
        lists = write(tmp_path / f"{query} {text}")
        assert len(load_lists(lists, tmp_path / "c", 2, seed=0)) == 1
        assert len([said for said in caplog.messages if "1 of the 1 lists in" in said]) == told


def test_lists_of_another_split(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lists has no lists of the split 'dev', but of train; make them of it"):
        load_entries(write(tmp_path / "lists"), "dev")


def test_a_directory_without_lists(tmp_path: Path) -> None:
    place = write(tmp_path / "lists") / "negatives"
    with pytest.raises(InputError, match=r"negatives has no training lists \(negatives/train.parquet\), nor the judge"):
        load_entries(place)


def test_a_file_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "negatives").mkdir()
    (tmp_path / "negatives" / "train.parquet").write_bytes(b"x" * 100)
    with pytest.raises(InputError, match="is not a file of training lists"):
        load_entries(tmp_path)


@pytest.mark.parametrize(
    ("changes", "more", "sentence"),
    [
        ({"positives": ("nowhere",)}, {}, "query 'q' names the passage 'nowhere', which is not in the corpus"),
        ({"negatives": ("nowhere",)}, {}, "query 'q' names the passage 'nowhere', which is not in the corpus"),
        ({"negatives": ("p2", "p1")}, {}, "query 'q' has the passage 'p1' among its positives and among its negatives"),
        ({}, {"scored": True}, "query 'q' has no teacher's scores"),
        *(
            (
                {"scores": {f"p{at}": 1.0 for at in range(12)} | {"p5": odd}},
                {"scored": True},
                f"{odd} of the passage 'p5'",
            )
            for odd in (None, math.nan, math.inf)
        ),
        (
            {"negatives": ("p2",), "scores": {"p0": 1.0, "p1": 1.0, "p2": 0.0}},
            {"scored": True},
            "query 'q' has 1 scored negatives at a depth of 200, and 3 are asked for",
        ),
        (
            {"scores": {f"p{at}": 1.0 for at in range(12)}},
            {"scored": True, "depth": 2},
            "query 'q' has 2 scored negatives at a depth of 2, and 3 are asked for; .* a greater depth",
        ),
        ({}, {"passages": 0}, "passages is 0"),
        ({}, {"passages": 50}, "A list of 50 passages was asked for; the corpus has 20"),
    ],
)
def test_lists_that_cannot_be_drawn(changes: dict[str, Any], more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        PassageLists([entry(**changes)], corpus(), **{"passages": 4, "seed": 0, **more})
