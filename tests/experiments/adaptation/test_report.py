"""What the report of an adaptation says of the queries that were given."""

from __future__ import annotations

from pathlib import Path

from hf_dense.data.labels import UNANSWERED
from hf_dense.data.matching import UNFOUND
from hf_dense.experiments.adaptation import report
from hf_dense.experiments.adaptation.material import Material


def test_the_command_that_asks_names_what_an_index_is_built_of_where_there_is_none(tmp_path: Path) -> None:
    facts = {"arms": [{"name": "BM25", "weight": 0.0}, {"name": "both", "weight": 0.4}], "verdict": {"best": "both"}}
    found = report.Adaptation(tmp_path / "my own", facts)
    asked = f"hf-dense search '{tmp_path}/my own/retriever' 'your question'"
    assert found.search("passages.jsonl") == f"{asked} --corpus passages.jsonl --weight 0.4"
    (found.path / "passages").mkdir(parents=True)
    assert found.search("documents") == f"{asked} --corpus '{tmp_path}/my own/passages' --weight 0.4"
    (found.retriever / "index").mkdir(parents=True)
    assert found.search("documents") == asked


def test_labelled_queries_that_are_left_out_are_named_with_the_reason() -> None:
    counts = {"passages": 60, "train": 20, "dev": 10, "test": 14}
    found = Material(Path("own"), Path("own"), ("train", "dev"), counts, 45, {UNFOUND: 30, UNANSWERED: 1})
    assert report._left_out(found) == [
        "Of your 45 labelled queries 31 are left out: 30 have no answer in the documents, 1 have no positive passage."
    ]
    assert report._left_out(Material(Path("own"), Path("own"), (), counts, 45)) == []
