"""One collection of three splits, whatever there was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from json_lines import write_lines
from tiny_retriever import random_words, write_dataset

from hf_dense.data.collections import load_corpus, load_qrels, query_texts
from hf_dense.data.labels import UNANSWERED, Labels
from hf_dense.data.matching import UNFOUND
from hf_dense.errors import InputError
from hf_dense.experiments.adaptation import material
from hf_dense.experiments.adaptation.material import known_queries, prepare
from hf_dense.storage.output import Output

SPLITS = ("train", "dev", "test")


@pytest.fixture(autouse=True)
def few_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "_LEAST", {"dev": 1, "test": 1})


def write_documents(folder: Path, count: int = 80) -> Path:
    """Markdown files, each with two headings of its own and a paragraph under each."""
    folder.mkdir()
    words = random_words(40 * count, seed=3)
    for number in range(count):
        own = words[40 * number : 40 * (number + 1)]
        parts = [f"# {own[0]} {own[1]}", " ".join(own[2:20]) + ".", f"## {own[20]} {own[21]}", " ".join(own[22:]) + "."]
        (folder / f"{number}.md").write_text("\n\n".join(parts))
    return folder


def test_queries_are_made_where_there_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs = write_documents(tmp_path / "docs")
    (docs / "short.md").write_text("Too few.")
    found = prepare(str(docs), None, 128, 0, Output(tmp_path / "out"))
    assert f"{docs}: 81 documents read, 80 passages, 1 passages below 4 words\n" in capsys.readouterr().err
    assert found.made == SPLITS
    assert found.counts["passages"] == len(load_corpus(found.collection)) == 80
    judged = {split: load_qrels(found.collection, split) for split in SPLITS}
    assert all(found.counts[split] == len(judged[split]) > 0 for split in SPLITS)
    document = dict(zip(*(load_corpus(found.collection)[name] for name in ("id", "document")), strict=True))
    read = [{document[name] for grades in judged[split].values() for name in grades} for split in SPLITS]
    assert len(set().union(*read)) == sum(map(len, read)), "a document is asked for in one split"


@pytest.mark.parametrize("count", [3, 20])
def test_few_labelled_queries_are_reported_on_and_none_is_trained_on(tmp_path: Path, count: int) -> None:
    docs, pairs = write_documents(tmp_path / "docs"), tmp_path / "judged.jsonl"
    passages = prepare(str(docs), None, 128, 0, Output(tmp_path / "first")).collection
    texts = load_corpus(tmp_path / "first" / "passages")["text"][:count]
    rows = [{"query": f"what is number {number}?", "positive": text} for number, text in enumerate(texts)]
    write_lines(pairs, rows)
    found = prepare(str(docs), str(pairs), 128, 0, Output(tmp_path / "out"))
    assert found.made == ("train", "dev")
    asked = query_texts(found.collection)
    assert {asked[query] for query in load_qrels(found.collection, "test")} == {row["query"] for row in rows}
    assert not {asked[query] for query in load_qrels(found.collection, "train")} & {row["query"] for row in rows}
    assert load_corpus(found.collection)["id"] == load_corpus(passages)["id"]
    assert load_corpus(found.passages)["text"][:count] == texts, "as they were before sentences became queries"


def test_labels_that_name_documents_in_place_of_texts_are_refused(tmp_path: Path) -> None:
    docs, pairs = write_documents(tmp_path / "docs"), tmp_path / "judged.csv"
    pairs.write_text("query,positive\n" + "".join(f"what is {number}?,{number}.md\n" for number in range(12)))
    sentence = r"names the document '\d+.md' for 'what is \d+\?'; give in its place the text"
    with pytest.raises(InputError, match=sentence):
        prepare(str(docs), str(pairs), 16, 0, Output(tmp_path / "out"))


@pytest.mark.parametrize("form", ["few", "many"])
def test_labelled_queries_that_are_left_out_are_counted(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if form == "many":
        monkeypatch.setattr(material, "_FEW", 30)
    docs, pairs = write_documents(tmp_path / "docs"), tmp_path / "judged.jsonl"
    prepare(str(docs), None, 128, 0, Output(tmp_path / "first"))
    texts = load_corpus(tmp_path / "first" / "passages")["text"][:60]
    rows = [{"query": f"what is number {number}?", "positive": text} for number, text in enumerate(texts)]
    elsewhere = " ".join(random_words(12, seed=9))
    rows += [{"query": f"what is {number} elsewhere?", "positive": f"{elsewhere} {number}"} for number in range(30)]
    rows += [{"query": "what is nowhere?", "positive": texts[0], "label": 0}]
    write_lines(pairs, rows)
    capsys.readouterr()
    found = prepare(str(docs), str(pairs), 128, 0, Output(tmp_path / "out"))
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"{pairs}: ")]
    assert "30 queries without a relevant passage in the corpus" in said
    assert "1 queries without a positive passage" in said
    assert (found.given, found.left_out) == (91, {UNFOUND: 30, UNANSWERED: 1})


def test_what_a_collection_lacks_comes_from_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "_FEW", 10)
    collection = write_dataset(tmp_path / "own", passages=60, queries=40)
    (collection / "qrels" / "test.tsv").rename(collection / "qrels" / "dev.tsv")
    given = {split: load_qrels(collection, split) for split in ("train", "dev")}
    found = prepare(str(collection), None, 128, 0, Output(tmp_path / "out"))
    judged = {split: load_qrels(found.collection, split) for split in SPLITS}
    assert judged["test"] == given["dev"], "what is reported on is what was kept for it"
    assert judged["train"] | judged["dev"] == given["train"]
    assert len(judged["dev"]) == 4
    assert not judged["train"].keys() & judged["dev"].keys()
    assert found.made == ()


def judged(*asked: tuple[str, ...]) -> Labels:
    names = [f"q{at}" for at in range(len(asked))]
    grades = {name: dict.fromkeys(passages, 1) | {"p": 0} for name, passages in zip(names, asked, strict=True)}
    return Labels({name: f"asked {name}" for name in names}, grades)


def test_queries_that_are_chosen_by_ask_for_other_documents_than_those_trained_on() -> None:
    pairs = judged(*((f"{at // 2}#{at % 2}", f"{at // 2}#2") for at in range(200)))  # of each document two
    documents = {passage: passage.split("#")[0] for grades in pairs.grades.values() for passage in grades}
    for seed in range(5):
        train, dev = material._divided(pairs, documents, seed)
        assert len(dev.queries) == 20
        assert train.queries | dev.queries == pairs.queries
        asked = [
            {documents[name] for grades in part.grades.values() for name in grades if name != "p"}
            for part in (train, dev)
        ]
        assert not asked[0] & asked[1]
    assert material._divided(pairs, documents, 0) == material._divided(pairs, documents, 0)


def test_queries_that_all_hang_together_are_drawn_one_by_one() -> None:
    chain = judged(*((f"p{at}", f"p{at + 1}") for at in range(100)))
    train, dev = material._divided(chain, {}, 0)
    assert (len(train.queries), len(dev.queries)) == (90, 10)


@pytest.mark.parametrize("linked", [False, True])
def test_queries_that_differ_in_case_alone_are_not_divided(linked: bool) -> None:
    pairs = judged(*((f"p{at}", f"p{at + 1}") if linked else (f"p{at}",) for at in range(200)))
    texts = [text for number in range(100) for text in (f"what is {number}?", f" WHAT is  {number}?")]
    pairs.queries = dict(zip(pairs.queries, texts, strict=True))
    for seed in range(5):
        parts = material._divided(pairs, {}, seed)
        train, dev = ({" ".join(text.lower().split()) for text in part.queries.values()} for part in parts)
        assert not train & dev
        assert linked or len(dev) == 10


@pytest.mark.parametrize("named", ["in a column", "in ids"])
def test_documents_are_found(tmp_path: Path, named: str) -> None:
    rows = [{"id": f"d{at // 2}#{at % 2}", "title": "", "text": f"text {at}"} for at in range(4)]
    if named == "in a column":
        rows = [row | {"id": f"p{at}", "document": row["id"][:2]} for at, row in enumerate(rows)]
    write_lines(tmp_path / "corpus.jsonl", rows)
    assert [*material._documents(str(tmp_path)).values()] == ["d0", "d0", "d1", "d1"]


def test_a_whole_collection_is_used_as_it_is(tmp_path: Path) -> None:
    collection = write_dataset(tmp_path / "own")
    (collection / "qrels" / "dev.tsv").write_bytes((collection / "qrels" / "test.tsv").read_bytes())
    assert prepare(str(collection), None, 128, 0, Output(tmp_path / "out")).collection == collection
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="has judged queries of its own"):
        prepare(str(collection), "pairs.jsonl", 128, 0, Output(tmp_path / "out"))


def test_too_few_queries_to_tell_anything_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "_LEAST", {"dev": 1, "test": 10})
    with pytest.raises(
        InputError, match=r"Queries with a relevant passage for test: 7, and 10 are the least .* or another --seed"
    ):
        prepare(str(write_documents(tmp_path / "docs")), None, 128, 0, Output(tmp_path / "out"))
    assert not (tmp_path / "out" / "collection").exists()


def test_a_whole_collection_needs_queries_with_something_relevant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(material, "_LEAST", {"dev": 5, "test": 10})
    collection = write_dataset(tmp_path / "own")
    judgements = (collection / "qrels" / "test.tsv").read_text()
    (collection / "qrels" / "dev.tsv").write_text(judgements.replace("\t1\n", "\t0\n"))
    with pytest.raises(InputError, match=r"for dev: 0, and 5 are the least that .* labelled queries.$"):
        prepare(str(collection), None, 128, 0, Output(tmp_path / "out"))
    (collection / "qrels" / "dev.tsv").write_text(judgements)
    found = prepare(str(collection), None, 128, 0, Output(tmp_path / "out"))
    assert found.counts == {"passages": 60, "train": 20, "dev": 20, "test": 20}


def test_the_splits_of_a_collection_stay_however_few_its_queries_are(tmp_path: Path) -> None:
    collection = write_dataset(tmp_path / "own", passages=60, queries=40)
    given = load_qrels(collection, "test")
    found = prepare(str(collection), None, 128, 0, Output(tmp_path / "out"))
    assert found.made == ()
    assert load_qrels(found.collection, "test") == given


def test_many_labels_of_few_documents_are_divided_by_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "_FEW", 30)
    docs, pairs = write_documents(tmp_path / "docs"), tmp_path / "judged.jsonl"
    prepare(str(docs), None, 128, 0, Output(tmp_path / "first"))
    text = load_corpus(tmp_path / "first" / "passages")["text"][0]
    rows = [{"query": f"what is number {number}?", "positive": text} for number in range(60)]
    write_lines(pairs, rows)
    found = prepare(str(docs), str(pairs), 128, 0, Output(tmp_path / "out"))
    assert found.made == ()
    assert sum(found.counts[split] for split in SPLITS) == 60
    assert all(found.counts[split] > 1 for split in SPLITS)


def with_splits(place: Path, **splits: range) -> Path:
    """A collection whose queries, by their numbers, are judged in these splits."""
    write_dataset(place, passages=60, queries=40)
    head, *rows = (place / "qrels" / "test.tsv").read_text().splitlines()
    for file in (place / "qrels").iterdir():
        file.unlink()
    for split, numbers in splits.items():
        kept = [row for row in rows if int(row.split("\t")[0][1:]) in numbers]
        (place / "qrels" / f"{split}.tsv").write_text("\n".join([head, *kept]) + "\n")
    return place


@pytest.mark.parametrize(
    ("splits", "used"),
    [
        (("train", "validation", "test"), {"train": "train", "dev": "validation", "test": "test"}),
        (("train", "dev", "held_out"), {"train": "train", "dev": "dev", "test": "held_out"}),
        (("train", "validation"), {"test": "validation"}),
    ],
)
def test_splits_of_other_names_are_used(splits: tuple[str, ...], used: dict[str, str], tmp_path: Path) -> None:
    parts = zip(splits, (range(20), range(20, 30), range(30, 40)), strict=False)
    collection = with_splits(tmp_path / "own", **dict(parts))
    found = prepare(str(collection), None, 128, 0, Output(tmp_path / "out"))
    assert found.made == ()
    for split, given in used.items():
        assert load_qrels(found.collection, split) == load_qrels(collection, given)


def test_a_split_of_another_name_alone_is_reported_on(tmp_path: Path) -> None:
    documents = prepare(str(write_documents(tmp_path / "docs")), None, 128, 0, Output(tmp_path / "first")).passages
    queries = [{"_id": f"q{row}", "text": f"what is {row}"} for row in range(20)]
    qrels = [f"q{row}\t{name}\t1" for row, name in enumerate(load_corpus(documents)["id"][:20])]
    own = tmp_path / "own"
    (own / "qrels").mkdir(parents=True)
    (own / "qrels" / "validation.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *qrels]) + "\n")
    rows = [{"_id": row["id"], "title": row["title"], "text": row["text"]} for row in load_corpus(documents)]
    for name, lines in (("corpus", rows), ("queries", queries)):
        write_lines(own / f"{name}.jsonl", lines)
    found = prepare(str(own), None, 128, 0, Output(tmp_path / "out"))
    assert found.made == ("train", "dev")
    assert load_qrels(found.collection, "test") == load_qrels(own, "validation")


@pytest.mark.parametrize("splits", [("train", "dev", "test"), ("train", "test")])
def test_what_is_judged_must_be_in_the_collection(splits: tuple[str, ...], tmp_path: Path) -> None:
    parts = zip(splits, (range(20), range(20, 30), range(30, 40)), strict=False)
    collection = with_splits(tmp_path / "own", **dict(parts))
    judgements, queries = collection / "qrels" / "test.tsv", collection / "queries.jsonl"
    sound = judgements.read_text()
    judgements.write_text(sound.replace("\tp", "\tgone"))
    with pytest.raises(InputError, match=r"name 'gone\d+' for query 'q\d+', which is not in the corpus"):
        prepare(str(collection), None, 128, 0, Output(tmp_path / "out"))
    judgements.write_text(sound)
    blank = sound.splitlines()[1].split("\t")[0]
    rows = [json.loads(line) for line in queries.read_text().splitlines() if f'"{blank}"' not in line]
    write_lines(queries, [*rows, {"_id": blank, "text": " "}])
    with pytest.raises(InputError, match=f"The query '{blank}' of .* is empty"):
        prepare(str(collection), None, 128, 0, Output(tmp_path / "out"))


def test_queries_to_report_on_that_are_trained_on_are_counted(tmp_path: Path) -> None:
    collection = write_dataset(tmp_path / "own", passages=60, queries=40)  # the same ones in train and test
    lines = (collection / "qrels" / "test.tsv").read_text().splitlines(keepends=True)
    (collection / "qrels" / "dev.tsv").write_text("".join(lines[:11]))
    found = prepare(str(collection), None, 128, 0, Output(tmp_path / "out"))
    assert [said.partition(",")[0] for said in known_queries(found)] == [
        "10 of the 10 queries of dev are asked in train",
        "40 of the 40 queries of test are asked in train",
    ]
