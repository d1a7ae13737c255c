"""Labels of every published form end as the same collection."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pyarrow as pa
import pytest
from datasets import load_dataset
from json_lines import write_lines
from pyarrow import parquet
from tiny_retriever import random_words

from hf_dense.data import passage_sources
from hf_dense.data.collections import load_answers, load_corpus, load_qrels, load_queries, query_texts, training_pairs
from hf_dense.data.passage_corpus import Cutting, build_passage_corpus
from hf_dense.data.schemas import TRAINING
from hf_dense.data.supervision import build_collection
from hf_dense.errors import InputError
from hf_dense.finetuning.negatives import build_lexical_negatives
from hf_dense.storage.manifest import MANIFEST, Manifest


def lists(out: Path, split: str = "train") -> list[dict[str, Any]]:
    table = parquet.read_table(out / "negatives" / f"{split}.parquet")
    assert table.schema.names == list(TRAINING)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def texts(out: Path) -> dict[str, str]:
    corpus = load_corpus(out)
    return dict(zip(corpus["id"], corpus["text"], strict=True))


def of_dpr(tmp_path: Path, entries: list[dict[str, Any]], corpus: list[dict[str, Any]] | None = None) -> Path:
    """The collection of labelled questions, and of the passages of a corpus where they have one."""
    (tmp_path / "nq.json").write_text(json.dumps(entries))
    passages = None if corpus is None else str(write_lines(tmp_path / "corpus.jsonl", corpus))
    return build_collection(tmp_path / "nq.json", tmp_path / "out", "dpr", corpus=passages)


def write_pairs(path: Path) -> Path:
    rows = [
        {"query": "what is it", "positive": "it is this", "negatives": ["it is not that", "nor that"]},
        {"query": "who is it", "positive": ["it is me", "me it is"]},
        {"query": "what is it", "positive": "it is this too", "negatives": ["nor that"]},
    ]
    return write_lines(path, rows)


def test_pairs_triples_and_lists_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage_sources, "BATCH", 2)
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


@pytest.mark.parametrize(("ending", "between"), [("csv", ","), ("tsv", "\t")])
def test_a_table_says_the_same(ending: str, between: str, tmp_path: Path) -> None:
    path = tmp_path / f"pairs.{ending}"
    lines = [("query", "positive", "negative"), ("what is it", '"it is, this"', "not that")]
    path.write_text("".join(between.join(line) + "\n" for line in lines))
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
    out = of_dpr(tmp_path, rows)
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
        ("a.txt", "x", "pairs", "pairs come as .jsonl, .json, .csv, .tsv or .parquet"),
        ("a.json", "[1]", "pairs", r"Entry 1 of .* is not an object with query and positive"),
        ("a.json", '{"query": "a", "positive": "b"}', "pairs", "is not a list of JSON"),
        ("a.json", "[{}]", "dpr", r"Entry 1 of .* lacks question or positive_ctxs"),
        ("a.json", "[", "dpr", "is not a list of JSON, or was cut off"),
        (
            "a.json",
            '[{"question": "q", "positive_ctxs": [{"passage_id": "7", "text": ""}]}]',
            "dpr",
            "The passage '7' comes without words; name the corpus",
        ),
        ("a.jsonl", "", "pairs", r"holds no labelled query of split train\.$"),
        (
            "a.jsonl",
            '{"query": "a", "negative": "b"}\n',
            "pairs",
            r"no labelled query of split train: 1 queries without a positive passage\.$",
        ),
        ("a.jsonl", "", "triples", "The form is 'triples'; allowed: pairs, dpr, msmarco, mind"),
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


def test_several_splits_share_a_corpus(tmp_path: Path) -> None:
    folder = write_msmarco(tmp_path / "ms")
    (folder / "queries.train.tsv").write_text("7\tseven\n")
    (folder / "qrels.train.tsv").write_text("7\t0\t13\t1\n")
    out = build_collection(folder, tmp_path / "out", "msmarco", ["train", "dev"])
    assert load_queries(out)["id"][:] == ["7", "1", "2"]
    assert load_qrels(out, "train") == {"7": {"13": 1}}
    assert [row["query_id"] for row in lists(out, "dev")] == ["1", "2"]
    assert lists(out, "dev")[0]["negatives"] == ["12"], "judged and not relevant"
    with pytest.raises(InputError, match="are of one split"):
        build_collection(tmp_path / "pairs.jsonl", tmp_path / "more", "pairs", ["train", "dev"])


def write_msmarco_documents(folder: Path) -> Path:
    folder.mkdir()
    sentences = " ".join(f"This is sentence number {number} of the document." for number in range(6))
    (folder / "msmarco-docs.tsv").write_text(
        f"D1\thttp://a\tTitle\t{sentences}\nD2\thttp://b\tOther\tA short number that is here and says little.\n"
    )
    (folder / "msmarco-doctrain-queries.tsv").write_text("1\tnumber five\n")
    (folder / "msmarco-doctrain-qrels.tsv").write_text("1 0 D1 1\n")
    return folder


def test_documents_whole_for_firstp_and_cut_for_maxp(tmp_path: Path) -> None:
    folder = write_msmarco_documents(tmp_path / "docs")
    whole = build_collection(folder, tmp_path / "whole", "msmarco")
    assert load_corpus(whole)["id"][:] == ["D1", "D2"]
    assert lists(whole)[0]["positives"] == ["D1"]
    cutting = Cutting(length=16, repeats="keep")
    passages = build_passage_corpus(str(folder / "msmarco-docs.tsv"), tmp_path / "passages", cutting)
    cut = build_collection(folder, tmp_path / "cut", "msmarco", corpus=str(passages))
    corpus = load_corpus(cut)
    assert set(corpus["document"][:]) == {"D1", "D2"}
    assert corpus.num_rows > 3
    assert load_qrels(cut, "train") == {"1": {"D1": 1}}, "documents are judged"
    assert lists(cut)[0]["positives"] == ["D1#0"], "the first passage stands for its document in training"
    assert training_pairs(cut)["passage_id"][:] == ["D1#0"]
    negatives = build_lexical_negatives(cut, tmp_path / "negatives")
    (row,) = lists(negatives)
    assert row["positives"] == ["D1#0"]
    assert set(row["negatives"]) == {"D2#0"}, "no passage of a relevant document is a negative"


def test_answers_of_dpr(tmp_path: Path) -> None:
    (tmp_path / "nq-test.csv").write_text("who wrote it\t['Jane Austen', \"O'Brien\"]\nwhen\t\"['1817']\"\n")
    (tmp_path / "psgs.tsv").write_text('id\ttext\ttitle\n1\t"said ""so"" by her"\tT\n')
    out = build_collection(tmp_path / "nq-test.csv", tmp_path / "out", "dpr", "test", str(tmp_path / "psgs.tsv"))
    assert sorted(load_answers(out).values()) == [["1817"], ["Jane Austen", "O'Brien"]]
    assert texts(out) == {"1": 'said "so" by her'}
    assert load_qrels(out, "test") == {}
    with pytest.raises(InputError, match="has no column 'answers'"):
        load_answers(build_collection(write_pairs(tmp_path / "pairs.jsonl"), tmp_path / "other"))


def write_mind(folder: Path, candidates: str = "N3-0 N4-1") -> Path:
    folder.mkdir()
    news = [f"N{at}\tsports\tnba\tTitle {at}\tAbstract {at}\thttp://x\t[]\t[]" for at in range(1, 5)]
    (folder / "news.tsv").write_text("\n".join(news) + "\n")
    rows = [f"1\tU1\t11/11/2019 9:05:58 AM\tN1 N2\t{candidates}", "2\tU2\t11/11/2019 9:05:58 AM\t\tN1-1"]
    (folder / "behaviors.tsv").write_text("\n".join(rows) + "\n")
    return folder


def test_mind(tmp_path: Path) -> None:
    out = build_collection(write_mind(tmp_path / "mind"), tmp_path / "out", "mind", "dev")
    assert load_queries(out)[:] == {"id": ["1"], "text": ["Title 2 [SEP] Title 1"]}, "the last title read comes first"
    assert load_qrels(out, "dev") == {"1": {"N3": 0, "N4": 1}}
    (row,) = lists(out, "dev")
    assert (row["positives"], row["negatives"]) == (["N4"], ["N3"])
    assert "impressions without history | 1" in (out / "README.md").read_text()
    assert load_corpus(out)["title"][0] == "Title 1"
    with pytest.raises(InputError, match=r"Line 1 of .*behaviors.tsv does not say which candidates were clicked"):
        build_collection(write_mind(tmp_path / "unlabelled", "N3 N4"), tmp_path / "more", "mind", "test")


def write_folder(folder: Path) -> Path:
    """Twelve documents of two passages each, and one that repeats another."""
    folder.mkdir()
    for number in range(12):
        text = f"Animal {number} lives in the wood. " * 6
        (folder / f"{number:02}.md").write_text(f"# Animals {number}\n\n{text}\n\n## Food\n\nIt eats plant {number}.\n")
    return folder


def test_texts_are_found_in_the_corpus_and_keep_its_ids_whoever_cuts_it(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "docs")
    corpus = build_passage_corpus(str(folder), tmp_path / "corpus")
    rows = parquet.read_table(corpus / "corpus").to_pylist()
    known = {row["id"]: row["text"] for row in rows}
    pairs = [
        {"query": "where", "positive": [known["03.md#0"].replace(" ", "\n ", 3), "stands nowhere"]},
        {"query": "what", "positive": known["05.md#0"], "negatives": [known["04.md#0"], "nowhere either"]},
        {"query": "nothing", "positive": "stands nowhere"},
    ]
    write_lines(tmp_path / "pairs.jsonl", pairs)
    made = [
        build_collection(tmp_path / "pairs.jsonl", tmp_path / f"by {source.name}", corpus=str(source))
        for source in (corpus, folder)
    ]
    for out in made:
        assert parquet.read_table(out / "corpus").to_pylist() == rows
        assert sorted((row["positives"], row["negatives"]) for row in lists(out)) == [
            (["03.md#0"], []),
            (["05.md#0"], ["04.md#0"]),
        ]
        card = (out / "README.md").read_text()
        assert "| relevant passages that the corpus lacks | 2 |" in card
        assert "| queries without a relevant passage in the corpus | 1 |" in card
        assert "| negatives that the corpus lacks | 1 |" in card
    (tmp_path / "lost.jsonl").write_text(json.dumps(pairs[2]))
    with pytest.raises(InputError, match=r"None of the 1 relevant passages stands in .*docs, whole or in part"):
        build_collection(tmp_path / "lost.jsonl", tmp_path / "lost", corpus=str(folder))


def test_others_read_the_judgements_of_every_split(tmp_path: Path) -> None:
    pairs = [{"query": f"q{row}", "positive": f"{word} {row}"} for row, word in enumerate(random_words(20))]
    write_lines(tmp_path / "pairs.jsonl", pairs)
    out = tmp_path / "out"
    build_collection(tmp_path / "pairs.jsonl", out, split="50/25/25")
    splits = load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert {name: len(rows) for name, rows in splits.items()} == {
        name: len(load_qrels(out, name)) for name in ("train", "dev", "test")
    }
    (passages,) = load_dataset(str(out), "corpus", cache_dir=str(tmp_path / "cache")).values()
    assert len(passages) == 20


def test_texts_that_were_cut_otherwise_are_found_by_their_words(tmp_path: Path) -> None:
    words = random_words(400)
    texts = [" ".join(words[start : start + 40]) for start in range(0, 400, 40)]
    rows = [{"id": f"p{row}", "text": text} for row, text in enumerate(texts)]
    write_lines(tmp_path / "corpus.jsonl", rows)
    passage = texts[3].split()
    pairs = [
        {"query": "a sentence of it", "positive": f"**{' '.join(passage[5:15]).upper()}.**"},
        {"query": "two whole ones", "positive": f"{texts[5]} {texts[6]}"},
        {"query": "one and the head of the next", "positive": f"{texts[7]} {' '.join(texts[8].split()[:10])}"},
        {"query": "seven words", "positive": " ".join(passage[:7])},
        {"query": "a quarter of either", "positive": " ".join([*words[:10], *texts[9].split()[:10], *["new"] * 30])},
        {"query": "whole", "positive": texts[1], "negatives": [texts[2], " ".join(texts[1].split()[:20])]},
    ]
    write_lines(tmp_path / "pairs.jsonl", pairs)
    out = build_collection(tmp_path / "pairs.jsonl", tmp_path / "out", corpus=str(tmp_path / "corpus.jsonl"))
    found = {row["query"]: (row["positives"], row["negatives"]) for row in lists(out)}
    assert found == {
        "a sentence of it": (["p3"], []),
        "two whole ones": (["p5", "p6"], []),
        "one and the head of the next": (["p7"], []),
        "whole": (["p1"], ["p2"]),
    }
    card = (out / "README.md").read_text()
    assert "| relevant passages found in part, cut otherwise in the corpus | 3 |" in card
    assert "| relevant passages that the corpus lacks | 2 |" in card


@pytest.mark.parametrize(
    ("passage", "positive"),
    [
        ("商品签收后七天内可以无理由退货。退货时请保持包装完整。运费由买家承担。", "退货时请保持包装完整。"),
        ("กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย", "เป็นเมืองหลวงและนครที่มีประชากร"),
        (
            normalize("NFD", "Die Tür ist grün und öffnet sich für größere Körbe nach außen."),
            "die Tür ist grün und öffnet sich für",
        ),
    ],
)
def test_texts_of_every_script_are_found_by_their_words(passage: str, positive: str, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"id": "p", "text": passage}))
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"query": "a part of it", "positive": positive}))
    out = build_collection(tmp_path / "pairs.jsonl", tmp_path / "out", corpus=str(tmp_path / "corpus.jsonl"))
    assert [row["positives"] for row in lists(out)] == [["p"]]


def test_splits_share_no_document(tmp_path: Path) -> None:
    corpus = build_passage_corpus(str(write_folder(tmp_path / "docs")), tmp_path / "corpus", Cutting(length=20))
    rows = parquet.read_table(corpus / "corpus").to_pylist()
    pairs = [{"query": f"query {row['id']}", "positive": row["text"]} for row in rows]
    pairs.append({"query": "of all", "positive": [row["text"] for row in rows]})

    def split(number: int, name: str) -> dict[str, set[str]]:
        write_lines(tmp_path / "pairs.jsonl", pairs[-number:])
        out = build_collection(tmp_path / "pairs.jsonl", tmp_path / name, split="50/25/25", corpus=str(corpus))
        assert "| queries left out, of documents in several splits | 1 |" in (out / "README.md").read_text()
        judged = {name: load_qrels(out, name) for name in ("train", "dev", "test")}
        assert set(load_queries(out)["id"]) == {query for found in judged.values() for query in found}
        return {
            name: {passage.partition("#")[0] for graded in found.values() for passage in graded}
            for name, found in judged.items()
        }

    every = split(len(pairs), "all")
    assert sum(map(len, every.values())) == len({row["document"] for row in rows}), "each in one split"
    fewer = split(len(pairs) - 2, "fewer")
    assert all(fewer[name] <= every[name] for name in every), "none moves when there are more"


def test_a_query_in_capitals_is_of_the_split_of_the_same_one(tmp_path: Path) -> None:
    pairs = [
        {"query": f"{which} {number}", "positive": f"text {number} of {which.strip().lower()} {at}"}
        for number in range(100)
        for at, which in enumerate(("Query", " QUERY "))
    ]
    out = build_collection(write_lines(tmp_path / "pairs.jsonl", pairs), tmp_path / "out", split="50/25/25")
    texts = query_texts(out)
    parts = [
        {" ".join(texts[query].lower().split()) for query in load_qrels(out, split)}
        for split in ("train", "dev", "test")
    ]
    assert len(set().union(*parts)) == sum(map(len, parts)) > 20
    assert counted(out)["queries left out, of documents in several splits"] == 200 - 2 * sum(map(len, parts))


def test_shares_that_cannot_be(tmp_path: Path) -> None:
    source = write_pairs(tmp_path / "pairs.jsonl")
    with pytest.raises(
        InputError, match="The split train gets none of the 2 queries, of 2 the documents are in several splits"
    ):
        build_collection(source, tmp_path / "out", split="98/1/1", seed=1)
    with pytest.raises(InputError, match="'80/30' are not three percentages"):
        build_collection(source, tmp_path / "out", split="80/30")
    with pytest.raises(InputError, match="'msmarco' are split already"):
        build_collection(write_msmarco(tmp_path / "ms"), tmp_path / "out", "msmarco", "80/10/10")
    assert not (tmp_path / "out").exists()


def test_a_text_is_found_by_its_words_whatever_has_its_id(tmp_path: Path) -> None:
    texts = ["Cheese is made of milk that was left to stand for a long time.", "Paris is the capital of France today."]
    entry = {
        "question": "what is the capital of france",
        "positive_ctxs": [{"title": "", "text": texts[1], "passage_id": "1"}],
        "hard_negative_ctxs": [{"title": "", "text": texts[0], "passage_id": "2"}],
    }
    out = of_dpr(tmp_path, [entry], [{"id": str(at), "text": text} for at, text in enumerate(texts, 1)])
    assert [*load_qrels(out, "train").values()] == [{"2": 1}]
    assert lists(out)[0]["negatives"] == ["1"]


def test_of_equal_texts_the_one_with_the_id_is_meant(tmp_path: Path) -> None:
    text = "Paris is the capital of France today."
    entry = {"question": "which", "positive_ctxs": [{"title": "", "text": text, "passage_id": "b"}]}
    out = of_dpr(tmp_path, [entry], [{"id": name, "text": text} for name in ("a", "b", "c")])
    assert [*load_qrels(out, "train").values()] == [{"b": 1}]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("query,positive\nq,first, with comma\n", "Line 2 of .* has more cells than the head has columns"),
        ("query,positive,positive\nq,p,r\n", "has two columns called 'positive'"),
        ("query,positive\nq,['first' 'second']\n", "Line 2 of .* has a list that"),
        ('query,positive\nq,"first\n', "Line 1 of .* is no CSV .*correct its quotes"),
    ],
)
def test_a_table_of_pairs_that_is_none(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "pairs.csv").write_text(content)
    with pytest.raises(InputError, match=sentence):
        build_collection(tmp_path / "pairs.csv", tmp_path / "out")


@pytest.mark.parametrize("divider", [";", "\t"])
def test_a_table_of_pairs_may_have_semicolons_or_tabs_for_commas(tmp_path: Path, divider: str) -> None:
    lines = [["query", "positive"], ["which, then", '"first; second, third"']]
    (tmp_path / "pairs.csv").write_text("\n".join(map(divider.join, lines)))
    out = build_collection(tmp_path / "pairs.csv", tmp_path / "out")
    assert [*texts(out).values()] == ["first; second, third"]


def test_a_table_of_pairs_may_begin_with_a_mark_and_have_long_cells(tmp_path: Path) -> None:
    long = "word " * 50_000
    (tmp_path / "pairs.csv").write_text(f"query,positive\nq,{long}\n", encoding="utf-8-sig")
    out = build_collection(tmp_path / "pairs.csv", tmp_path / "out")
    assert [*texts(out).values()] == [long.strip()]


def test_a_table_of_pairs_without_a_header_is_told(tmp_path: Path) -> None:
    for line in ("which\tfirst\tsecond\n", "1\t1\t2\n"):
        (tmp_path / "triples.tsv").write_text(line)
        with pytest.raises(InputError, match=r"The first line of .* names no column query; write a header"):
            build_collection(tmp_path / "triples.tsv", tmp_path / "out")


def test_lists_of_tevatron(tmp_path: Path) -> None:
    passages = [{"docid": str(at), "title": "T", "text": f"text {at}"} for at in range(3)]
    row = {"query_id": "7", "query": "which", "answers": [], "positive_passages": passages[:1]}
    without = {"query_id": "8", "query": "whose", "positive_passages": [], "negative_passages": []}
    source = write_lines(tmp_path / "train.jsonl", [{**row, "negative_passages": passages[1:]}, without])
    out = build_collection(source, tmp_path / "out")
    assert [*load_qrels(out, "train").values()] == [{"0": 1}]
    assert lists(out)[0]["negatives"] == ["1", "2"]
    assert load_corpus(out)[:]["title"] == ["T"] * 3
    assert Manifest.load(out).facts["counts"]["queries without a positive passage"] == 1


def test_lists_of_tevatron_that_are_none(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [{"query": "which", "positive_passages": 5}])
    with pytest.raises(InputError, match=r"Row 1 of .* has passages that are no list"):
        build_collection(source, tmp_path / "out")


def test_pairs_as_sentence_transformers_has_them(tmp_path: Path) -> None:
    row = {"anchor": "which", "positive": "first", "negative_1": "second", "negative_2": "third"}
    out = build_collection(write_lines(tmp_path / "a.jsonl", [row]), tmp_path / "out")
    assert [texts(out)[name] for name in lists(out)[0]["negatives"]] == ["second", "third"]


def test_pairs_in_parquet(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"query": ["which"], "positive": [["first", "second"]]}), tmp_path / "a.parquet")
    out = build_collection(tmp_path / "a.parquet", tmp_path / "out")
    assert sorted(texts(out).values()) == ["first", "second"]
    (tmp_path / "b.parquet").write_text("no")
    with pytest.raises(InputError, match=r"b.parquet is not a Parquet file that can be read"):
        build_collection(tmp_path / "b.parquet", tmp_path / "out 2")


def test_a_file_of_dpr_is_told_from_pairs(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"question": "which", "positive_ctxs": []}]')
    with pytest.raises(InputError, match="is a file of DPR; name its form: --form dpr"):
        build_collection(tmp_path / "a.json", tmp_path / "out")


def test_a_packed_table_of_pairs(tmp_path: Path) -> None:
    packed = gzip.compress(b"Question,Answer\nwhich,first\n")
    (tmp_path / "faq.CSV.gz").write_bytes(packed)
    assert [*texts(build_collection(tmp_path / "faq.CSV.gz", tmp_path / "out")).values()] == ["first"]
    (tmp_path / "faq.csv.gz").write_bytes(packed[:20])
    with pytest.raises(InputError, match="is packed, and cannot be unpacked"):
        build_collection(tmp_path / "faq.csv.gz", tmp_path / "out 2")


def test_a_text_that_says_nothing_is_found_by_its_id(tmp_path: Path) -> None:
    rows = [{"id": str(at), "title": f"T{at}", "text": f"Item {at} ABC short text."} for at in range(20)]
    named = [
        {"title": "T3", "text": "", "passage_id": "3"},
        {"title": "T12", "text": "Item 12 ABD", "passage_id": "12"},
        {"title": "Other", "text": "Item 5 ABD", "passage_id": "5"},
    ]
    out = of_dpr(tmp_path, [{"question": f"q{at}", "positive_ctxs": [one]} for at, one in enumerate(named)], rows)
    assert [*load_qrels(out, "train").values()] == [{"3": 1}, {"12": 1}]


def in_a_table(tmp_path: Path, columns: dict[str, Any]) -> Path:
    """A pair whose passage is in a corpus with these columns."""
    (tmp_path / "corpus" / "corpus").mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), tmp_path / "corpus" / "corpus" / "part-00000.parquet")
    pairs = write_lines(tmp_path / "pairs.jsonl", [{"query": "what is it", "positive": "it is this"}])
    return build_collection(pairs, tmp_path / "out", corpus=str(tmp_path / "corpus"))


@pytest.mark.parametrize("first", [datetime(2024, 1, 2), date(2024, 1, 2), 7])
def test_titles_and_ids_of_a_corpus_are_texts(tmp_path: Path, first: object) -> None:
    out = in_a_table(tmp_path, {"id": [1, 2], "title": [first, None], "text": ["it is this", "it is not"]})
    assert [row["positives"] for row in lists(out)] == [["1"]]
    assert load_corpus(out)["title"][0].startswith(str(first)[:10])


def test_a_corpus_of_objects_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"part-00000.parquet cannot be read: Unsupported cast"):
        in_a_table(tmp_path, {"id": ["1"], "title": [{"en": "this"}], "text": ["it is this"]})


def test_every_passage_of_a_corpus_needs_an_id_of_its_own(tmp_path: Path) -> None:
    for columns, sentence in (
        ({"text": ["it is this"]}, "has no column 'id'"),
        ({"id": ["a", "a"], "text": ["it is this", "it is not"]}, "has the id 'a' more than once"),
    ):
        with pytest.raises(InputError, match=sentence):
            in_a_table(tmp_path, columns)


def test_an_empty_cell_beyond_the_head_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("query,positive\nq,a text,\n")
    assert [*texts(build_collection(tmp_path / "pairs.csv", tmp_path / "out")).values()] == ["a text"]


def counted(out: Path) -> dict[str, int]:
    counts: dict[str, int] = json.loads((out / MANIFEST).read_text())["facts"]["counts"]
    return counts


def test_pairs_may_be_a_list_of_json(tmp_path: Path) -> None:
    rows = [{"query": "q", "positive": "a text"}, {"query": "r", "positives": ["one", "two"]}]
    (tmp_path / "pairs.json").write_text(json.dumps(rows, indent=1))
    write_lines(tmp_path / "pairs.jsonl", rows)
    found = [texts(build_collection(tmp_path / f"pairs.{kind}", tmp_path / kind)) for kind in ("json", "jsonl")]
    assert found[0] == found[1]
    assert sorted(found[0].values()) == ["a text", "one", "two"]


def test_what_is_left_out_of_pairs_is_counted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"query": "q", "positive": "yes, this", "negatives": [" ", "", None, "yes,  this", "not that", "not  that"]},
        {"query": "r", "positive": ["", "that"]},
        {"query": "s", "negatives": ["alone"]},
    ]
    write_lines(tmp_path / "pairs.jsonl", rows)
    out = build_collection(tmp_path / "pairs.jsonl", tmp_path / "out")
    known, counts = texts(out), counted(out)
    assert [[known[name] for name in row["negatives"]] for row in lists(out)] == [["not that"], []]
    assert counts["empty passages"] == 4
    assert counts["negatives that are positives or repeated"] == 2
    assert counts["queries without a positive passage"] == 1


def test_what_is_left_out_of_dpr_is_counted(tmp_path: Path) -> None:
    positive = {"title": "T", "text": "it is me", "passage_id": "7"}
    negatives = [
        {"title": "T", "text": "it is  me", "passage_id": "9"},
        {"title": "U", "text": "not me", "passage_id": "8"},
        {"title": "U", "text": "not me", "passage_id": "10"},
        {"title": "", "text": " "},
    ]
    rows = [
        {"question": "who", "positive_ctxs": [positive], "hard_negative_ctxs": negatives},
        {"question": " ", "positive_ctxs": [positive]},
        {"question": "where", "positive_ctxs": [{"text": ""}], "hard_negative_ctxs": [{"text": "of no query"}]},
    ]
    out = of_dpr(tmp_path, rows)
    (row,) = lists(out)
    assert (row["query"], row["positives"], row["negatives"]) == ("who", ["7"], ["8"])
    assert "of no query" not in texts(out).values()
    counts = counted(out)
    assert counts["empty passages"] == 2
    assert counts["negatives that are positives or repeated"] == 2
    assert counts["questions without words"] == counts["questions without positive passage"] == 1


def test_passages_of_dpr_that_have_an_id_alone_are_not_one(tmp_path: Path) -> None:
    rows = [{"id": str(number), "text": f"text {number} of some"} for number in range(1, 4)]
    first, *others = ({"title": "", "text": "", "passage_id": row["id"]} for row in rows)
    entry = {"question": "which", "positive_ctxs": [first], "hard_negative_ctxs": others}
    out = of_dpr(tmp_path, [entry], rows)
    assert [(row["positives"], row["negatives"]) for row in lists(out)] == [(["1"], ["2", "3"])]


@pytest.mark.parametrize("written", [json.dumps, str])
def test_a_cell_may_hold_a_list(tmp_path: Path, written: Callable[[object], str]) -> None:
    with (tmp_path / "pairs.csv").open("w", newline="") as stream:
        rows = [["q", written(["a, b", "it's"]), written(['"c"', "d"])], ["r", "[1] says so [a]", written([])]]
        csv.writer(stream).writerows([["query", "positives", "negatives"], *rows])
    out = build_collection(tmp_path / "pairs.csv", tmp_path / "out")
    known = texts(out)
    assert [[known[name] for name in row["positives"]] for row in lists(out)] == [["a, b", "it's"], ["[1] says so [a]"]]
    assert [[known[name] for name in row["negatives"]] for row in lists(out)] == [['"c"', "d"], []]


@pytest.mark.parametrize("column", ["label", "score", "relevance", "grade"])
def test_a_grade_of_pairs_is_read(tmp_path: Path, column: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(f"query,passage,{column}\nwhat is it,it is this,2\nwhat is it,it is not that,0\nwho,not me,0.0\n")
    out = build_collection(path, tmp_path / "out")
    known, qrels = texts(out), load_qrels(out, "train")
    assert [{known[name]: grade for name, grade in graded.items()} for graded in qrels.values()] == [
        {"it is this": 2, "it is not that": 0}
    ]
    assert [known[name] for row in lists(out) for name in row["negatives"]] == ["it is not that"]
    assert counted(out)["queries without a positive passage"] == 1
    assert counted(out)["negatives of train"] == 1
    path.write_text(f"query,positive,{column}\nwhat is it,it is this,0.7\n")
    with pytest.raises(InputError, match=f"Row 1 .*'0.7' in the column '{column}'; grades are whole numbers"):
        build_collection(path, tmp_path / "other")


def test_of_two_grades_of_a_passage_the_last_one_counts_and_the_other_is_counted(tmp_path: Path) -> None:
    rows = [("which", "this one", 3), ("which", "that one", 2), ("which", "this one", 1), ("which", "that one", 2)]
    pairs = [{"query": query, "positive": passage, "label": grade} for query, passage, grade in rows]
    out = build_collection(write_lines(tmp_path / "pairs.jsonl", pairs), tmp_path / "out")
    known, (graded,) = texts(out), load_qrels(out, "train").values()
    assert {known[name]: grade for name, grade in graded.items()} == {"this one": 1, "that one": 2}
    assert counted(out)["grades left out, as a later row has another of the same passage"] == 1


def test_rows_of_a_corpus_that_are_left_out_are_counted_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The corpus is read three times: for its ids, for parts of texts, and to be written."""
    corpus = [{"id": 1, "text": "the first text"}, {"id": 1, "text": "another"}, {"id": 2, "text": ""}, {"text": " "}]
    write_lines(tmp_path / "corpus.jsonl", corpus)
    pairs = [{"query": "which", "positive": 1}, {"query": "what", "positive": "nothing of what the corpus has at all"}]
    write_lines(tmp_path / "pairs.jsonl", pairs)
    out = build_collection(tmp_path / "pairs.jsonl", tmp_path / "out", corpus=str(tmp_path / "corpus.jsonl"))
    counts = counted(out)
    assert (counts["passages"], counts["documents read"], counts["duplicate id"], counts["empty"]) == (1, 1, 1, 2)
    assert caplog.messages == [
        "Left out, duplicate id: 'corpus.jsonl: 1'",
        "Left out, empty: 'corpus.jsonl: 2', 'corpus.jsonl-3'",
    ]


def test_an_id_may_stand_in_the_place_of_its_text(tmp_path: Path) -> None:
    pairs = write_lines(tmp_path / "pairs.jsonl", [{"query": "what is it", "positive": "p1", "negatives": ["p2"]}])
    corpus = write_lines(tmp_path / "corpus.jsonl", [{"id": f"p{at}", "text": f"text {at}"} for at in range(3)])
    out = build_collection(pairs, tmp_path / "out", corpus=str(corpus))
    assert [(row["positives"], row["negatives"]) for row in lists(out)] == [(["p1"], ["p2"])]
    with pytest.raises(InputError, match=r"passages of .*pairs\.jsonl are ids such as 'p1'; name the corpus"):
        build_collection(pairs, tmp_path / "other")


def test_an_id_may_be_the_number_0(tmp_path: Path) -> None:
    pairs = write_lines(tmp_path / "pairs.jsonl", [{"query": "what is it", "positive": 0, "negatives": [1, 2]}])
    with pairs.open("a") as more:
        more.write(json.dumps({"query": "and that", "positive": 2, "negative": 0}) + "\n")
    corpus = write_lines(tmp_path / "corpus.jsonl", [{"id": at, "text": f"text {at}"} for at in range(3)])
    out = build_collection(pairs, tmp_path / "out", corpus=str(corpus))
    assert [(row["positives"], row["negatives"]) for row in lists(out)] == [(["0"], ["1", "2"]), (["2"], ["0"])]


def test_of_passages_that_are_alike_the_nearest_to_a_text_is_meant(tmp_path: Path) -> None:
    def product(speed: int, price: int) -> str:
        return (
            f"The drill turns {speed} times a minute and comes in a case with two batteries and a charger, "
            f"costs {price} euros and is sent within three days to any address in the country"
        )

    rows = [{"id": f"p{at}", "text": product(1000 + at, 200 + at)} for at in range(30)]
    write_lines(tmp_path / "corpus.jsonl", rows)
    pairs = [{"query": "before its price rose", "positive": product(1007, 99)}]
    write_lines(tmp_path / "pairs.jsonl", pairs)
    out = build_collection(tmp_path / "pairs.jsonl", tmp_path / "out", corpus=str(tmp_path / "corpus.jsonl"))
    assert [row["positives"] for row in lists(out)] == [["p7"]]
    assert counted(out)["passages of the corpus that hold those found in part"] == 1


def test_ids_of_msmarco_may_have_spaces(tmp_path: Path) -> None:
    folder = write_msmarco(tmp_path / "ms", "1\t0\tpage 11\t1\n")
    (folder / "collection.tsv").write_text("page 11\tone\n12\ttwo\n")
    assert load_qrels(build_collection(folder, tmp_path / "out", "msmarco", "dev"), "dev") == {"1": {"page 11": 1}}


def test_every_query_of_msmarco_has_one_text(tmp_path: Path) -> None:
    folder = write_msmarco(tmp_path / "ms")
    for line, sentence in (
        ("4\t", r"names the query '4'; queries\.dev\.tsv has no text of it"),
        ("4\tone\n4\tother", r"Line 5 of .* gives the query '4' another text than before"),
    ):
        (folder / "queries.dev.tsv").write_text(f"1\tone\n2\ttwo\n3\tthree\n{line}\n")
        (folder / "qrels.dev.tsv").write_text("4 0 11 1\n")
        with pytest.raises(InputError, match=sentence):
            build_collection(folder, tmp_path / "out", "msmarco", "dev")


def test_columns_of_pairs_may_have_capitals(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("Query, Positive\nwhat is it,it is this\n")
    assert list(texts(build_collection(tmp_path / "pairs.csv", tmp_path / "out")).values()) == ["it is this"]
