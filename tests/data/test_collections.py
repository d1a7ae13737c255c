from __future__ import annotations

import json
import os
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from datasets import Dataset
from json_lines import write_lines
from pyarrow import parquet
from tiny_retriever import write_dataset

from hf_dense.data import collections
from hf_dense.data.collections import (
    asked_again,
    content_hash,
    judged_splits,
    load_corpus,
    load_qrels,
    load_queries,
    training_pairs,
)
from hf_dense.data.passage_sources import find_source
from hf_dense.data.schemas import CORPUS, QRELS, QUERIES
from hf_dense.errors import InputError

PASSAGES = [
    {"id": "d#0", "title": "T", "section": "", "text": "zero", "document": "d", "position": 0, "split": "train"},
    {"id": "d#1", "title": "", "section": "A > B", "text": "one", "document": "d", "position": 1, "split": "train"},
]
QUESTIONS = [{"id": "q1", "text": "first?"}, {"id": "q2", "text": "second?"}]
JUDGEMENTS = [("q2", "d#1", 2), ("q1", "d#0", 1), ("q1", "d#1", 0)]


def write_published(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus").mkdir()
    (folder / "queries").mkdir()
    for at, row in enumerate(PASSAGES):
        Dataset.from_list([row], features=CORPUS).to_parquet(folder / "corpus" / f"part-{at}.parquet")
    Dataset.from_list(QUESTIONS, features=QUERIES).to_parquet(folder / "queries" / "part-0.parquet")
    rows = [dict(zip(QRELS, row, strict=True)) for row in JUDGEMENTS]
    Dataset.from_list(rows, features=QRELS).to_parquet(folder / "qrels" / "train.parquet")
    return folder


def write_beir(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "corpus.jsonl", [{"_id": r["id"], "title": r["title"], "text": r["text"]} for r in PASSAGES])
    write_lines(folder / "queries.jsonl", [{"_id": r["id"], "text": r["text"], "metadata": {}} for r in QUESTIONS])
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in JUDGEMENTS)]
    (folder / "qrels" / "train.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(params=[write_published, write_beir], ids=["published", "beir"])
def collection(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder: Path = request.param(tmp_path / "collection")
    return folder


def test_both_forms_give_the_same_rows(collection: Path) -> None:
    corpus = load_corpus(collection)
    assert [list(corpus[name]) for name in ("id", "title", "text")] == [["d#0", "d#1"], ["T", ""], ["zero", "one"]]
    assert load_queries(collection).to_list() == QUESTIONS
    assert load_qrels(collection, "train") == {"q2": {"d#1": 2}, "q1": {"d#0": 1, "d#1": 0}}


def test_published_corpus_keeps_document_and_position(tmp_path: Path) -> None:
    corpus = load_corpus(write_published(tmp_path / "c"))
    assert corpus.features == CORPUS
    assert load_corpus(write_beir(tmp_path / "b")).column_names == ["id", "title", "text"]


def test_judgements_downloaded_from_the_hub_are_found(tmp_path: Path) -> None:
    qrels = write_published(tmp_path / "c") / "qrels"
    (qrels / "train.parquet").rename(qrels / "train-00000-of-00001.parquet")
    assert load_qrels(tmp_path / "c", "train") == {"q2": {"d#1": 2}, "q1": {"d#0": 1, "d#1": 0}}


def test_one_training_row_per_relevant_passage(collection: Path) -> None:
    assert training_pairs(collection).to_list() == [
        {"query": "second?", "passage": "one", "query_id": "q2", "passage_id": "d#1"},
        {"query": "first?", "passage": "T zero", "query_id": "q1", "passage_id": "d#0"},
    ]


def write_large(folder: Path) -> Path:
    """15 MB of passages that nobody judged, beside those that are."""
    more = pa.table({"id": [f"p{number}" for number in range(300)], "text": ["word " * 10_000] * 300})
    parquet.write_table(more, write_published(folder) / "corpus" / "more.parquet")
    return folder


def peak_of(read: Callable[[Path], Dataset], folder: Path) -> int:
    """Bytes beside those of Arrow that are held at most."""
    tracemalloc.start()
    read(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_texts_are_not_copied_to_open_a_collection(tmp_path: Path) -> None:
    assert peak_of(load_corpus, write_large(tmp_path / "c")) < 1_000_000


def test_passages_that_nobody_judged_are_not_read_for_pairs(tmp_path: Path) -> None:
    assert peak_of(training_pairs, write_large(tmp_path / "c")) < 1_000_000


def test_numeric_ids_and_absent_titles_of_beir(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "c")
    write_lines(folder / "corpus.jsonl", [{"_id": "007", "text": "a"}, {"_id": "8", "title": None, "text": "b"}])
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\t007\t1\n")
    corpus = load_corpus(folder)
    assert list(corpus["id"]) == ["007", "8"]
    assert list(corpus["title"]) == ["", ""]
    assert load_qrels(folder, "test") == {"1": {"007": 1}}


def test_content_hash_follows_the_data_and_not_the_card(collection: Path) -> None:
    before = content_hash(collection)
    (collection / "README.md").write_text("card")
    assert content_hash(collection) == before
    moved = collection.rename(collection.with_name("moved"))
    assert content_hash(moved) == before
    file = next(moved.glob("qrels/*"))
    file.write_bytes(file.read_bytes() + b" ")
    assert content_hash(moved) != before


def test_missing_parts_are_named(collection: Path) -> None:
    with pytest.raises(InputError, match="split 'test'; it has train"):
        load_qrels(collection, "test")
    for loader in (load_corpus, load_queries, content_hash):
        with pytest.raises(InputError, match="nowhere is not a directory"):
            loader(collection / "nowhere")
    with pytest.raises(InputError, match=r"has no corpus: neither corpus/\*.parquet nor .* data passages makes one"):
        load_corpus(collection / "qrels")
    with pytest.raises(InputError, match="has no queries"):
        load_queries(collection / "qrels")
    with pytest.raises(InputError, match="is not a collection"):
        content_hash(collection / "qrels")


def test_a_missing_column_is_named_with_those_present(tmp_path: Path) -> None:
    folder = write_published(tmp_path / "c")
    for file in (folder / "corpus").iterdir():
        Dataset.from_list([{"id": "1", "body": "x"}]).to_parquet(file)
    with pytest.raises(InputError, match="corpus has no column 'text'; its columns are id, body"):
        load_corpus(folder)
    Dataset.from_list([{"query-id": "1", "score": 1}]).to_parquet(folder / "qrels" / "train.parquet")
    with pytest.raises(InputError, match="no column 'corpus-id'; its columns are query-id, score"):
        load_qrels(folder, "train")


def test_an_empty_corpus_is_an_error(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "b")
    (folder / "corpus.jsonl").write_text("")
    with pytest.raises(InputError, match="is empty; it needs at least one passage"):
        load_corpus(folder)


def test_broken_lines_are_an_error(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "b")
    (folder / "corpus.jsonl").write_text('{"_id": "1", "text": \n')
    with pytest.raises(InputError, match=r"corpus\.jsonl cannot be read"):
        load_corpus(folder)


def test_a_row_that_is_null_is_named(tmp_path: Path) -> None:
    """Arrow crashes over one before the first object."""
    folder = write_beir(tmp_path / "b")
    rows = (folder / "corpus.jsonl").read_text()
    for line, text in ((1, f"null\n{rows}"), (3, f"\n\n  null\n{rows}"), (1, "\ufeffnull"), (1, f"[null]\n{rows}")):
        (folder / "corpus.jsonl").write_text(text)
        with pytest.raises(InputError, match=rf"Line {line} of .*corpus\.jsonl is null"):
            load_corpus(folder)


@pytest.mark.parametrize("in_memory", [0, 2**28])
def test_a_text_that_is_no_utf8_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    folder = write_beir(tmp_path / "b")
    (folder / "corpus.jsonl").write_bytes(b'{"_id": "1", "title": "", "text": "a"}\n{"_id": "2", "text": "b\xff"}\n')
    with pytest.raises(InputError, match=r"Line 2 of .*corpus\.jsonl is not UTF-8"):
        load_corpus(folder)
    table = pa.table({"id": ["1"], "text": pa.array([b"b\xff"]).view(pa.string())})
    (folder / "corpus").mkdir()
    parquet.write_table(table, folder / "corpus" / "part.parquet")
    monkeypatch.setattr(collections, "_IN_MEMORY", in_memory)
    with pytest.raises(InputError, match=r"corpus.* cannot be read: .* Invalid UTF8"):
        load_corpus(folder)


@pytest.mark.parametrize("in_memory", [2**28, 0], ids=["at once", "from disk"])
def test_files_of_one_corpus_may_differ_in_columns_and_not_in_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(collections, "_IN_MEMORY", in_memory)
    (tmp_path / "corpus").mkdir()
    parquet.write_table(pa.table({"id": ["1"], "title": ["A"], "text": ["a"]}), tmp_path / "corpus" / "0.parquet")
    parquet.write_table(pa.table({"id": ["2"], "text": ["b"]}), tmp_path / "corpus" / "1.parquet")
    assert load_corpus(tmp_path)["title"][:] == ["A", ""]
    parquet.write_table(pa.table({"id": ["2"], "text": [{"a": 1}]}), tmp_path / "corpus" / "1.parquet")
    with pytest.raises(InputError, match=r"corpus cannot be read: .*(string|struct)"):
        load_corpus(tmp_path)


def test_judgements_of_unknown_rows_are_counted(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "b")
    qrels = folder / "qrels" / "train.tsv"
    qrels.write_text("query-id\tcorpus-id\tscore\nq1\tgone1\t1\nq2\tgone2\t1\nq2\tgone1\t1\nq1\td#0\t1\n")
    with pytest.raises(InputError, match=r"name 2 passages that are not in the corpus, the first being 'gone1'"):
        training_pairs(folder)
    qrels.write_text("query-id\tcorpus-id\tscore\nq9\td#0\t1\n")
    with pytest.raises(InputError, match=r"name 1 queries that are not in the queries, the first being 'q9'"):
        training_pairs(folder)
    qrels.write_text("query-id\tcorpus-id\tscore\nq1\td#0\t0\n")
    with pytest.raises(InputError, match="no relevant passage to train on"):
        training_pairs(folder)


@pytest.mark.parametrize("titles", [True, False])
def test_a_large_corpus_stays_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, titles: bool) -> None:
    folder = write_published(tmp_path / "c")
    if not titles:
        for file in (folder / "corpus").glob("*.parquet"):
            Dataset.from_parquet(str(file)).remove_columns("title").to_parquet(file)
    read = load_corpus(folder)
    monkeypatch.setattr("hf_dense.data.collections._IN_MEMORY", 0)
    opened = load_corpus(folder)
    assert opened.to_list() == read.to_list()
    assert opened.features == read.features
    assert opened.cache_files
    assert not read.cache_files
    Dataset.from_dict({"id": ["a"]}).to_parquet(folder / "corpus" / "part-0.parquet")
    with pytest.raises(InputError, match="has no column 'text'"):
        load_corpus(folder)


@pytest.mark.parametrize("between", [" ", "\t"])
@pytest.mark.parametrize("columns", [3, 4])
def test_judgements_without_a_header_and_as_trec_has_them_are_read(tmp_path: Path, between: str, columns: int) -> None:
    folder = write_beir(tmp_path / "c")
    expected, identity = load_qrels(folder, "train"), content_hash(folder)
    lines = [between.join([query, *["0"] * (columns - 3), name, str(grade)]) for query, name, grade in JUDGEMENTS]
    (folder / "qrels" / "train.tsv").write_text("\n".join(lines) + "\n")
    assert load_qrels(folder, "train") == expected
    assert content_hash(folder) != identity
    (folder / "qrels" / "train.tsv").write_text("\n".join([*lines, "q1 1"]) + "\n")
    with pytest.raises(InputError, match=rf"a line of [12] columns, 'q1 1', not {columns}; correct it"):
        load_qrels(folder, "train")


@pytest.mark.parametrize("line", ["q1 Q0 d#1 1 0.5 me", "query doc grade", "q1,d#1,1"])
def test_what_is_no_judgement_is_refused_with_what_is_wanted(tmp_path: Path, line: str) -> None:
    folder = write_beir(tmp_path / "c")
    (folder / "qrels" / "train.tsv").write_text(line + "\n")
    with pytest.raises(InputError, match=r"query-id, corpus-id and score.* nor does it hold .* TREC's four columns"):
        load_qrels(folder, "train")


def test_judgements_and_tables_that_are_not_read_are_named(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "c")
    (folder / "qrels" / "train.tsv").rename(folder / "qrels" / "train.qrels")
    with pytest.raises(InputError, match=r"it has none; .*train.qrels is not read: put it, .* into qrels/train.tsv"):
        load_qrels(folder, "train")
    (folder / "qrels" / ".DS_Store").write_bytes(b"")
    with pytest.raises(InputError, match=r"no relevance judgements for split 'dev'; it has none$"):
        load_qrels(folder, "dev")
    (folder / "queries.jsonl").rename(folder / "queries.jsonl.gz")
    with pytest.raises(InputError, match=r"has no queries: .*; unpack .*queries.jsonl.gz \(gunzip\)"):
        load_queries(folder)


@pytest.mark.parametrize("place", ["qrels", "default", "data"])
def test_the_parquet_of_mteb_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    folder = write_published(tmp_path / "c")
    expected = load_corpus(folder).to_list(), load_queries(folder).to_list(), load_qrels(folder, "train")
    for file in (*folder.glob("corpus/*.parquet"), *folder.glob("queries/*.parquet")):
        table = parquet.read_table(file)
        parquet.write_table(table.rename_columns({"id": "_id"}), file)
    (folder / "qrels").rename(folder / place)
    assert (load_corpus(folder).to_list(), load_queries(folder).to_list(), load_qrels(folder, "train")) == expected
    assert judged_splits(folder) == ["train"]
    opened = find_source(str(folder), tmp_path / "out").open(tmp_path, Counter())
    assert [name for table in opened() for name in table.column("id").to_pylist()] == ["d#0", "d#1"]
    monkeypatch.setattr("hf_dense.data.collections._IN_MEMORY", 0)
    assert load_corpus(folder).to_list() == expected[0]
    identity = content_hash(folder)
    rows = [dict(zip(QRELS, row, strict=True)) for row in JUDGEMENTS[:1]]
    Dataset.from_list(rows, features=QRELS).to_parquet(folder / place / "train.parquet")
    assert content_hash(folder) != identity


@pytest.mark.parametrize("suffix", ["tsv", "parquet"])
def test_grades_with_a_point_are_whole_numbers(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "c" / "qrels"
    folder.mkdir(parents=True)

    def write(*scores: float) -> None:
        rows = [{"query-id": f"q{at}", "corpus-id": "p", "score": score} for at, score in enumerate(scores)]
        if suffix == "parquet":
            Dataset.from_list(rows).to_parquet(folder / "test.parquet")
        else:
            Dataset.from_list(rows).to_csv(folder / "test.tsv", sep="\t", index=False)

    write(1.0, 2.0, 0.0)
    assert load_qrels(tmp_path / "c", "test") == {"q0": {"p": 1}, "q1": {"p": 2}, "q2": {"p": 0}}
    write(1.0, 0.5)
    with pytest.raises(InputError, match=r"has the grade 0\.5; grades are whole numbers, and 0 is not relevant"):
        load_qrels(tmp_path / "c", "test")


def test_a_line_may_be_as_long_as_a_book(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "b")
    rows: list[dict[str, object]] = [{"_id": str(at), "text": "word " * 100} for at in range(3000)]
    rows[1500]["text"] = "word " * 600_000
    write_lines(folder / "corpus.jsonl", rows)
    assert [len(text) for text in load_corpus(folder)["text"][1499:1501]] == [500, 3_000_000]


def test_ids_of_beir_may_be_whole_numbers(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "b")
    write_lines(folder / "corpus.jsonl", [{"_id": at, "text": "a text"} for at in range(3)])
    assert load_corpus(folder)["id"][:] == ["0", "1", "2"]
    write_lines(folder / "corpus.jsonl", [{"_id": at, "text": "a text"} for at in ("a", 1)])
    with pytest.raises(InputError, match="ids that are neither all texts nor all whole numbers; put them in quotes"):
        load_corpus(folder)


def test_queries_that_are_asked_in_two_splits_are_counted(tmp_path: Path) -> None:
    collection = write_dataset(tmp_path / "data", passages=20, queries=6)
    (collection / "queries.jsonl").write_text(
        "".join(
            json.dumps({"_id": f"q{at}", "text": text}) + "\n"
            for at, text in enumerate(("what is it", "  What IS it ", "who", "where", "when", "how"))
        )
    )
    head = "query-id\tcorpus-id\tscore\n"
    (collection / "qrels" / "train.tsv").write_text(f"{head}q0\tp0\t1\nq2\tp2\t1\nq3\tp3\t0\n")
    (collection / "qrels" / "test.tsv").write_text(f"{head}q1\tp1\t1\nq2\tp2\t1\nq3\tp3\t1\nq4\tp4\t1\n")
    assert "2 of the 4 queries of test are asked in train, too" in asked_again(collection, "test", "train")
    (collection / "qrels" / "test.tsv").write_text(f"{head}q4\tp4\t1\n")
    assert asked_again(collection, "test", "train") == ""
    (collection / "qrels" / "train.tsv").write_text(f"{head}gone\tp0\t1\n")
    assert asked_again(collection, "test", "train") == "", "whoever trains on them is told"


def test_what_is_no_file_is_no_part_of_a_collection_and_not_waited_for(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "collection")
    before = content_hash(folder)
    os.mkfifo(folder / "qrels" / "pipe.tsv")
    assert content_hash(folder) == before
