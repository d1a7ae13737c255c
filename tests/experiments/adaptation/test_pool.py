"""The passages that arms are measured on."""

from __future__ import annotations

import shutil
from pathlib import Path

from hf_dense.data.collections import content_hash, load_corpus, load_qrels, load_queries
from hf_dense.experiments.adaptation.material import Material
from hf_dense.experiments.adaptation.pool import draw_pool
from hf_dense.storage.output import Output


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
