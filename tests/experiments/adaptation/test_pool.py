"""The passages that arms are measured on."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from json_lines import write_lines
from tiny_retriever import random_words

from hf_dense.data.collections import content_hash, load_corpus, load_qrels, load_queries
from hf_dense.experiments.adaptation.material import Material, prepare
from hf_dense.experiments.adaptation.pool import count_asked, draw_pool
from hf_dense.storage.output import Output

SPLITS = ("train", "dev", "test")


def test_a_pool_holds_what_is_relevant_and_no_judgement_of_what_it_lacks(collection: Path, tmp_path: Path) -> None:
    material = Material(collection, collection, (), {"passages": 60, "train": 20, "dev": 10, "test": 10})
    assert draw_pool(material, 60, 0, Output(tmp_path / "all")) == collection
    pools = [draw_pool(material, 20, 0, Output(tmp_path / name)) for name in ("one", "two")]
    assert content_hash(pools[0]) == content_hash(pools[1])
    names = set(load_corpus(pools[0])["id"])
    assert len(names) == 20
    judged = {split: load_qrels(pools[0], split) for split in ("dev", "test")}
    assert all(len(grades) > 0 for grades in judged.values())
    assert {name for grades in judged.values() for found in grades.values() for name in found} <= names
    whole = {**load_qrels(collection, "dev"), **load_qrels(collection, "test")}
    assert all(whole[query] == found for grades in judged.values() for query, found in grades.items())
    assert set(load_queries(pools[0])["id"]) == {query for grades in judged.values() for query in grades}


def test_the_queries_of_a_pool_are_counted_before_it_is_drawn(collection: Path, tmp_path: Path) -> None:
    material = Material(collection, collection, (), {"passages": 60, "train": 20, "dev": 10, "test": 10})
    assert count_asked(material, 60, 0) == {"dev": 10, "test": 10}
    for size in (4, 10, 20):
        pool = draw_pool(material, size, 3, Output(tmp_path / str(size)))
        counted = count_asked(material, size, 3)
        assert counted == {split: len(load_qrels(pool, split)) for split in ("dev", "test")}
        assert 0 < sum(counted.values()) < 20


def test_passages_that_are_judged_irrelevant_do_not_crowd_queries_out(collection: Path, tmp_path: Path) -> None:
    shutil.copytree(collection, tmp_path / "judged")
    corpus = load_corpus(collection)["id"][:]
    for split in ("dev", "test"):
        with (tmp_path / "judged" / "qrels" / f"{split}.tsv").open("a") as stream:
            for query, grades in load_qrels(collection, split).items():
                stream.writelines(f"{query}\t{name}\t0\n" for name in corpus if name not in grades)
    made = []
    for place in (collection, tmp_path / "judged"):
        material = Material(place, place, (), {"passages": 60, "train": 20, "dev": 10, "test": 10})
        made.append(draw_pool(material, 20, 0, Output(tmp_path / "pools" / place.name)))
    assert load_qrels(made[0], "test") == load_qrels(made[1], "test")


@pytest.mark.parametrize("drawn", [False, True])
def test_what_people_ask_for_is_whole_where_queries_to_train_on_took_sentences_out(tmp_path: Path, drawn: bool) -> None:
    docs, pairs = tmp_path / "docs", tmp_path / "judged.jsonl"
    docs.mkdir()
    own, shared = random_words(180, seed=1), random_words(30, seed=2)
    for number in range(60):
        parts = [f"Every {word} near the {shared[number // 2]} river grows well." for word in own[number::60]]
        (docs / f"{number}.txt").write_text(" ".join(parts))
    rows = [
        {"query": f"what is tree {number}?", "positive": (docs / f"{number}.txt").read_text()} for number in range(12)
    ]
    write_lines(pairs, rows)
    found = prepare(str(docs), str(pairs), 128, 0, Output(tmp_path / "out"))
    assert found.made == ("train", "dev")
    pool = draw_pool(found, 50 if drawn else 60, 0, Output(tmp_path / "pool"))
    before, now, less = (
        dict(zip(rows["id"], rows["text"], strict=True))
        for rows in map(load_corpus, (found.passages, pool, found.collection))
    )
    asked = {split: {name for grades in load_qrels(pool, split).values() for name in grades} for split in SPLITS[1:]}
    assert len(asked["test"]) == 12
    assert all(now[name] == (less if name in asked["dev"] else before)[name] for name in now)
    assert any(less[name] != before[name] for name in asked["test"] - asked["dev"])
    assert load_qrels(pool, "dev") == load_qrels(found.collection, "dev")
    same = replace(found, made=SPLITS)
    assert draw_pool(same, 60, 0, Output(tmp_path / "made")) == found.collection, "all were made"
