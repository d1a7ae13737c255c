"""Judgements: appended by several, the last one counts, read as queries, beside what must stay replaceable."""

from __future__ import annotations

import json
import resource
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from manifests import manifest_of
from pyarrow import parquet
from tiny_retriever import write_dataset

from hf_dense.commands.main import build_parser
from hf_dense.data.collections import load_qrels
from hf_dense.data.labels import read_pairs
from hf_dense.data.supervision import build_collection
from hf_dense.errors import InputError
from hf_dense.experiments.adaptation.run import KIND
from hf_dense.search.index import Hit, build_index
from hf_dense.serving.judgements import Judgements, judgements_of, next_commands
from hf_dense.storage.manifest import MANIFEST
from hf_dense.storage.output import Output


def hit(text: str) -> Hit:
    return Hit(1.0, f"id of {text}", "a title", text)


def test_a_line_for_every_judgement_and_the_last_one_counts(tmp_path: Path) -> None:
    file = tmp_path / "judged.jsonl"
    judgements = Judgements(file)
    assert not file.exists()
    for text, good in (("a", True), ("b", False), ("a", False), ("b", True), ("ü\n c", False)):
        judgements.add(" why? ", hit(text), good)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert rows[0] == {"query": "why?", "positive": "a", "id": "id of a"}
    assert rows[4] == {"query": "why?", "negative": "ü\n c", "id": "id of ü\n c"}
    for known in (judgements, Judgements(file)):
        assert [known.verdict("why?", hit(text)) for text in ("a", "b", "ü\n c", "d")] == [False, True, False, None]
        assert known.verdict("what?", hit("a")) is None
        assert known.answered == 1


def test_they_are_the_queries_of_an_adaptation(corpus: Dataset, tmp_path: Path) -> None:
    judgements = Judgements(tmp_path / "judged.jsonl")
    texts = corpus["text"][:]
    for query, row, good in (("locks", 0, True), ("locks", 3, False), ("files", 2, False), ("locks", 2, True)):
        judgements.add(query, hit(texts[row]), good)
    labels = read_pairs(judgements.path)
    assert list(labels.queries.values()) == ["locks"]
    assert labels.dropped == {"queries without a positive passage": 1}
    passages = tmp_path / "passages"
    passages.mkdir()
    (passages / "corpus.jsonl").write_text("".join(json.dumps({**row, "_id": row["id"]}) + "\n" for row in corpus))
    built = build_collection(judgements.path, tmp_path / "built", corpus=str(passages))
    (graded,) = load_qrels(built, "train").values()
    assert graded == {"p0": 1, "p2": 1}
    assert parquet.read_table(built / "negatives" / "train.parquet")["negatives"].to_pylist() == [["p3"]]


def test_negatives_of_a_pair_take_nothing_back(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    rows = [{"query": "q", "positive": "a"}, {"query": "q", "positive": "b", "negatives": ["a", "c"]}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judgements = Judgements(file)
    assert [judgements.verdict("q", hit(text)) for text in "abc"] == [True, True, False]


def test_nothing_is_left_of_a_judgement_for_which_a_disk_has_no_room(tmp_path: Path) -> None:
    judgements = Judgements(tmp_path / "judged.jsonl")
    judgements.add("first", hit("a"), True)
    before, limits = judgements.path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))
    try:
        with pytest.raises(InputError, match="There is no room left to write"):
            judgements.add("second", hit("words " * 100), True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert judgements.path.read_bytes() == before
    judgements.add("third", hit("b"), True)
    assert Judgements(judgements.path).answered == 2


def test_many_tabs_may_judge_at_once(tmp_path: Path) -> None:
    file = tmp_path / "judged.jsonl"
    tabs = [Judgements(file) for _ in range(4)]
    long = "many words " * 2_000
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: tabs[at % 4].add(f"q{at}", hit(f"{at} {long}"), True), range(80)))
    assert Judgements(file).answered == len(file.read_text().splitlines()) == 80


def test_a_judgement_may_come_while_those_before_are_counted(tmp_path: Path) -> None:
    judgements = Judgements(tmp_path / "judged.jsonl")
    judgements.add("q0", hit("a"), True)

    class Meanwhile(dict[str, int]):
        def values(self) -> Any:
            wait([pool.submit(judgements.add, "q1", hit("b"), True)], timeout=0.2)
            return super().values()

    [(name, graded)] = judgements._known.grades.items()
    judgements._known.grades[name] = Meanwhile(graded)
    with ThreadPoolExecutor(1) as pool:
        assert judgements.answered == 1
    assert Judgements(judgements.path).answered == 2


def test_a_line_that_was_left_open_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"query": "mine", "positive": "a"}')
    Judgements(file).add("q", hit("b"), True)
    assert Judgements(file).answered == 2


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("judged.csv", "kept as .jsonl"), ("no/judged.jsonl", "no file that can"), ("dir.jsonl", "no file that can")],
)
def test_where_nothing_can_be_kept(name: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "dir.jsonl").mkdir()
    with pytest.raises(InputError, match=sentence):
        Judgements(tmp_path / name)


def test_a_title_alone_is_not_judged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="title alone"):
        Judgements(tmp_path / "judged.jsonl").add("q", hit(" "), True)
    assert not (tmp_path / "judged.jsonl").exists()


def test_the_file_lies_beside_what_must_stay_replaceable(adapted: Path) -> None:
    beside = adapted.with_name("adapted-judgements.jsonl")
    assert judgements_of(adapted) == judgements_of(adapted / "arms" / "fine-tuned" / "training" / "model") == beside
    Judgements(judgements_of(adapted)).add("q", hit("a"), True)
    with Output(adapted, overwrite=True).occupy(KIND, {"budget": "1m"}) as work:
        work.complete()
    assert beside.is_file()
    (adapted / "judgements.jsonl").touch()  # which is why
    with pytest.raises(InputError, match="move it away"):
        Output(adapted, overwrite=True).occupy(KIND, {"budget": "2m"})


def test_what_to_type_next(adapted: Path, retriever: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(adapted.parent)
    file = judgements_of(Path("adapted"))
    assert file == Path("adapted-judgements.jsonl")
    assert next_commands(Path("adapted"), file) == (
        "hf-dense adapt 'my documents' --base me/embedder --method dupmae --length 64 "
        "--queries adapted-judgements.jsonl --out adapted-judged"
    )
    ours = "hf-dense adapt DOCS --base retriever --queries f.jsonl --out retriever-judged"
    assert next_commands(Path("retriever"), Path("f.jsonl")) == ours
    build_parser(["adapt"]).parse_args(shlex.split(ours)[1:])


def test_the_next_adaptation_has_the_queries_of_this_one_too(adapted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(adapted.parent)
    own, file = Path("my pairs.jsonl"), Path("adapted-judgements.jsonl")
    found = manifest_of(adapted)
    replace(found, sources=found.sources | {"queries": str(own)}).save(adapted)
    assert next_commands(Path("adapted"), file).count("\n") == 0, "as they are gone"
    own.write_text('{"query": "a", "positive": "text"}')
    assert next_commands(Path("adapted"), own).count("\n") == 0, "as they are added to"
    file.write_text('{"query": "b", "positive": "text"}\n')
    joined, adapt = next_commands(Path("adapted"), file).splitlines()
    assert " --queries adapted-queries.jsonl --out adapted-judged" in adapt
    subprocess.run(joined, shell=True, check=True)
    assert list(read_pairs(Path("adapted-queries.jsonl")).queries.values()) == ["a", "b"]


def test_the_queries_of_before_are_not_written_over(adapted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(adapted.parent)
    own, file = Path("adapted-queries.jsonl"), Path("adapted-judgements.jsonl")
    own.write_text('{"query": "a", "positive": "text"}')
    file.write_text('{"query": "b", "positive": "text"}\n')
    found = manifest_of(adapted)
    replace(found, sources=found.sources | {"queries": str(own)}).save(adapted)
    joined, adapt = next_commands(Path("adapted"), file).splitlines()
    assert " --queries adapted-queries-2.jsonl --out adapted-judged" in adapt
    subprocess.run(joined, shell=True, check=True)
    assert list(read_pairs(own).queries.values()) == ["a"]
    assert list(read_pairs(Path("adapted-queries-2.jsonl")).queries.values()) == ["a", "b"]


@pytest.mark.parametrize(("kept", "keeps"), [({"kept": "my/other:test"}, "--keep my/other:test"), ({}, "--keep none")])
def test_the_next_adaptation_has_the_settings_of_this_one(kept: dict[str, str], keeps: str, adapted: Path) -> None:
    found = manifest_of(adapted)
    made_from = found.made_from | {"seed": 3, "precision": "fp32"}
    sources = {"documents": "docs", "base": "me/embedder", "teacher": "me/teacher", **kept}
    replace(found, made_from=made_from, sources=sources).save(adapted)
    command = next_commands(adapted, Path("f.jsonl"))
    for given in ("--method dupmae", "--length 64", "--precision fp32", "--seed 3", "--teacher me/teacher", keeps):
        assert f" {given} " in command
    assert "--budget" not in command, "which is the default"
    build_parser(["adapt"]).parse_args(shlex.split(command)[1:])


def test_a_collection_with_queries_is_made_anew(retriever: Path) -> None:
    collection = write_dataset(retriever.with_name("dataset"), passages=5, queries=2)
    build_index(retriever, collection, Output(retriever / "index", overwrite=True))
    assert (retriever / "index" / MANIFEST).is_file()
    labels, adapt = map(shlex.split, next_commands(retriever, Path("f.jsonl")).splitlines())
    assert labels[1:6] == ["data", "labels", "f.jsonl", "--corpus", str(collection)]
    assert adapt[2] == labels[-1] == f"{retriever}-labelled"
    assert "--queries" not in adapt
