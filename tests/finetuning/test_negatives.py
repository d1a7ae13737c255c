"""BM25 negatives: the best hits that are neither relevant nor copies of what is."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from json_lines import write_lines
from pyarrow import parquet
from tiny_retriever import random_words

from hf_dense.data.schemas import TRAINING
from hf_dense.errors import InputError
from hf_dense.finetuning import negatives
from hf_dense.finetuning.lists import load_lists
from hf_dense.finetuning.negatives import build_lexical_negatives
from hf_dense.search.bm25 import LexicalIndex
from hf_dense.storage.output import Output


def write_collection(folder: Path, judgements: list[tuple[str, str, int]] | None = None) -> Path:
    """40 passages of random words; p0 and p1 are copies, p2 nearly one, p3 shares the query's words."""
    generator = random.Random(0)
    words = random_words(300)
    texts = [" ".join(generator.choices(words, k=60)) for _ in range(40)]
    first = texts[0].split()
    texts[1] = texts[0].upper() + "."
    texts[2] = " ".join([*first[:59], "changed"])
    texts[3] = " ".join([*first[:8], *texts[3].split()])
    folder.mkdir()
    write_lines(
        folder / "corpus.jsonl", ({"_id": f"p{at}", "title": "", "text": text} for at, text in enumerate(texts))
    )
    queries = {"q0": " ".join(first[:8]), "q1": " ".join(texts[5].split()[:8]), "q2": "never judged"}
    write_lines(folder / "queries.jsonl", ({"_id": name, "text": text} for name, text in queries.items()))
    (folder / "qrels").mkdir()
    rows = judgements or [("q0", "p0", 1), ("q1", "p5", 2), ("q1", "p6", 1), ("q1", "p7", 0)]
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in rows)]
    (folder / "qrels" / "train.tsv").write_text("\n".join(lines) + "\n")
    return folder


def build(tmp_path: Path, depth: int = 10, **named: Any) -> dict[str, dict[str, Any]]:
    collection = write_collection(tmp_path / "data", named.pop("judgements", None))
    out = build_lexical_negatives(collection, tmp_path / "out", depth=depth, **named)
    table = parquet.read_table(out / "negatives" / "train.parquet")
    assert table.schema.names == list(TRAINING)
    return {row["query_id"]: row for row in table.to_pylist()}


def test_negatives_are_the_best_hits_without_positives_and_their_copies(tmp_path: Path) -> None:
    rows = build(tmp_path)
    assert list(rows) == ["q0", "q1"]
    assert rows["q0"]["positives"] == ["p0"]
    assert rows["q0"]["negatives"][0] == "p3"
    assert not {"p0", "p1", "p2"} & set(rows["q0"]["negatives"])
    assert rows["q1"]["positives"] == ["p5", "p6"]
    assert not {"p5", "p6"} & set(rows["q1"]["negatives"])
    for row in rows.values():
        assert len(row["negatives"]) == len(set(row["negatives"])) == 10
        assert row["negative_scores"] == sorted(row["negative_scores"], reverse=True)
        assert row["positive_scores"] == []


def test_what_is_relevant_for_the_same_words_is_no_negative(tmp_path: Path) -> None:
    collection = write_collection(tmp_path / "data", [("q0", "p0", 1), ("q2", "p3", 1)])
    asked = [json.loads(line) for line in (collection / "queries.jsonl").read_text().splitlines()]
    asked[2]["text"] = asked[0]["text"].upper() + " "
    write_lines(collection / "queries.jsonl", asked)
    out = build_lexical_negatives(collection, tmp_path / "out", depth=10)
    rows = parquet.read_table(out / "negatives" / "train.parquet").to_pylist()
    assert [row["positives"] for row in rows] == [["p0"], ["p3"]]
    for row in rows:
        assert not {"p0", "p1", "p2", "p3"} & set(row["negatives"])
        assert len(row["negatives"]) == 10


def test_the_highest_hits_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    plain, skipped = build(tmp_path / "plain"), build(tmp_path, depth=8, skip=2)
    for name, row in skipped.items():
        assert row["negatives"] == plain[name]["negatives"][2:]
    assert "hits left out: the 2 highest" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(InputError, match="skip is -1; it is a number of hits"):
        build_lexical_negatives(tmp_path / "data", tmp_path / "other", skip=-1)


def test_fewer_passages_than_asked_for_are_counted(tmp_path: Path) -> None:
    rows = build(tmp_path, depth=100)
    assert len(rows["q0"]["negatives"]) == 32, "the others have no word of the query"
    assert min(min(row["negative_scores"]) for row in rows.values()) > 0
    assert "| queries with fewer negatives than asked | 2 |" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("judgements", "sentence"),
    [
        ([("q9", "p0", 1)], "name the query 'q9', which the queries lack; add it there or remove its judgements"),
        ([("q0", "p99", 1)], "name the passage 'p99' for query 'q0', which the corpus lacks; complete the corpus or"),
        ([("q0", "p0", 0)], "No query of split 'train' has a relevant passage"),
    ],
)
def test_judgements_that_do_not_fit(tmp_path: Path, judgements: list[tuple[str, str, int]], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        build(tmp_path, judgements=judgements)
    assert not (tmp_path / "out").exists()


def test_the_same_again_is_done_and_foreign_files_stay(tmp_path: Path) -> None:
    rows = build(tmp_path)
    before = (tmp_path / "out" / "README.md").stat().st_mtime_ns
    assert build_lexical_negatives(tmp_path / "data", tmp_path / "out", depth=10) == tmp_path / "out"
    assert (tmp_path / "out" / "README.md").stat().st_mtime_ns == before
    with pytest.raises(InputError, match=r"was made from another depth \(10, now 5\)"):
        build_lexical_negatives(tmp_path / "data", tmp_path / "out", depth=5)
    build_lexical_negatives(tmp_path / "data", Output(tmp_path / "out", overwrite=True), depth=5)
    table = parquet.read_table(tmp_path / "out" / "negatives" / "train.parquet").to_pylist()
    assert [row["negatives"] for row in table] == [row["negatives"][:5] for row in rows.values()]
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "README.md").write_text("a thesis")
    for place in ("project", "data", "."):
        with pytest.raises(InputError):
            build_lexical_negatives(tmp_path / "data", Output(tmp_path / place, overwrite=True))
    assert (tmp_path / "project" / "README.md").read_text() == "a thesis"
    assert (tmp_path / "data" / "corpus.jsonl").exists()


def test_a_split_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no relevance judgements for split 'dev'"):
        build(tmp_path, split="dev")


def test_lists_of_a_collection_that_has_changed_are_not_trained_on(tmp_path: Path) -> None:
    data = write_collection(tmp_path / "data")
    out = build_lexical_negatives(data, tmp_path / "out", depth=10)
    assert len(load_lists(out, data, 2, 0)) == 2
    with (data / "qrels" / "train.tsv").open("a") as judgements:
        judgements.write("q0\tp3\t1\n")  # a negative until now
    with pytest.raises(InputError, match=r"out were made from .*data as it was; make them anew from .*data\."):
        load_lists(out, data, 2, 0)
    (other := write_collection(tmp_path / "other")).joinpath("qrels", "dev.tsv").write_text("")
    with pytest.raises(InputError, match=r"were made from .*data, whose content is another; make them anew from"):
        load_lists(out, other, 2, 0)
    fresh = build_lexical_negatives(other, tmp_path / "fresh", depth=10)
    with pytest.raises(InputError, match=r"out were made from .*data, whose content is another; make them anew from"):
        load_lists([fresh, out], other, 2, 0)


def test_joined_lists_name_each_directory_that_they_are_of(tmp_path: Path) -> None:
    data = write_collection(tmp_path / "data")
    short, long = (build_lexical_negatives(data, tmp_path / f"{depth}", depth=depth) for depth in (2, 10))
    lists = load_lists([short, long], data, 2, 0)
    assert [len(entry.negatives) for entry in lists.entries] == [10, 10], "each passage once"
    alone = {path: load_lists(path, data, 2, 0).sources() for path in (short, long)}
    assert lists.sources() == {**alone[short], "lists 2": alone[long]["lists"]}
    assert load_lists(short, data, 2, 0, queries={"q1"}).entries == load_lists(short, data, 2, 0).entries[1:]


def test_a_query_with_many_positives_is_searched_with_few_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"_id": f"p{at}", "title": "", "text": f"word{at} common"} for at in range(600)]
    judgements = [(f"q{at}", f"p{at}", 1) for at in range(40)] + [("q20", f"p{at}", 1) for at in range(40, 540)]
    queries = [{"_id": f"q{at}", "text": f"word{at} common"} for at in range(40)]
    collection = tmp_path / "collection"
    (collection / "qrels").mkdir(parents=True)
    for name, table in (("corpus", rows), ("queries", queries)):
        write_lines(collection / f"{name}.jsonl", table)
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in judgements)]
    (collection / "qrels" / "train.tsv").write_text("\n".join(lines) + "\n")
    asked: list[tuple[int, int]] = []
    search = LexicalIndex.search

    def watched(index: LexicalIndex, texts: list[str], depth: int) -> Any:
        asked.append((len(texts), depth))
        return search(index, texts, depth)

    monkeypatch.setattr(LexicalIndex, "search", watched)
    monkeypatch.setattr(negatives, "_QUERIES", 10)
    out = build_lexical_negatives(collection, tmp_path / "out", depth=5)
    assert max(texts * hits for texts, hits in asked) <= 10 * (5 + 2 * negatives.SPARE)
    assert sum(texts for texts, _ in asked) == 40
    written = parquet.read_table(out / "negatives" / "train.parquet").to_pylist()
    assert [row["query_id"] for row in written] == [f"q{at}" for at in range(40)]
    assert all(len(row["negatives"]) == 5 for row in written)
