"""An evaluation is of the model and the data that it was measured on, whatever their names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from json_lines import write_lines
from manifests import manifest_of
from sentence_transformers import SentenceTransformer
from tiny_retriever import write_cross_encoder, write_dataset, write_retriever
from watched import Watched

from hf_dense import InputError
from hf_dense.evaluation.answers import Answers
from hf_dense.evaluation.candidates import Candidates
from hf_dense.evaluation.documents import Documents
from hf_dense.evaluation.measured import measured_of
from hf_dense.evaluation.reranking import FirstPassages, evaluate_reranker
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.retrieval import Passages, evaluate_retriever
from hf_dense.evaluation.runner import run_protocol
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.precision import Reading
from hf_dense.search import dense, first_stage
from hf_dense.storage.output import Output


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data")


def evaluate(model: Any, collection: Path, out: Path, split: str = "test", overwrite: bool = False) -> RetrievalResult:
    return evaluate_retriever(model, collection, split, name="same", out=Output(out, overwrite=overwrite))


def longer(model: SentenceTransformer) -> None:
    model.max_seq_length = 4


def with_prompt(model: SentenceTransformer) -> None:
    model.prompts = {"query": "a ", "document": ""}


def by_mean(model: SentenceTransformer) -> None:
    model[1].pooling_mode = "mean"


def by_cosine(model: SentenceTransformer) -> None:
    model.similarity_fn_name = "cosine"


def other_weight(model: SentenceTransformer) -> None:
    with torch.no_grad():
        next(model.parameters())[0, 0] += 1e-3


@pytest.mark.parametrize("change", [longer, with_prompt, by_mean, by_cosine, other_weight])
def test_another_model_of_the_same_name_is_refused(
    retriever: Path, collection: Path, tmp_path: Path, change: Callable[[SentenceTransformer], None]
) -> None:
    model, out = load_retriever(retriever), tmp_path / "out"
    before = evaluate(model, collection, out)
    change(model)
    with pytest.raises(InputError, match=r"was made from another model \(.*--overwrite"):
        evaluate(model, collection, out)
    assert RetrievalResult.load(out) == before
    evaluate(model, collection, out, overwrite=True)
    with pytest.raises(InputError, match="was made from another model"):
        evaluate(retriever, collection, out)


def test_another_split_protocol_or_content_is_refused(retriever: Path, collection: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    evaluate(retriever, collection, out)
    with pytest.raises(InputError, match=r"another split \(test, now train\)"):
        evaluate(retriever, collection, out, split="train")
    with pytest.raises(InputError, match=r"another protocol \(passages, now documents\)"):
        run_protocol(Documents(collection, "test"), retriever, out, name="same")
    with pytest.raises(InputError, match="another model"):
        evaluate("bm25", collection, out)
    with (collection / "corpus.jsonl").open("a") as stream:
        stream.write('{"_id": "new", "title": "", "text": "new"}\n')
    with pytest.raises(InputError, match="another collection"):
        evaluate(retriever, collection, out)
    assert evaluate(retriever, collection, out, overwrite=True).origin["passages"] == 61


def test_another_precision_or_length_is_refused(retriever: Path, collection: Path, tmp_path: Path) -> None:
    def measure(**reading: Any) -> RetrievalResult:
        return evaluate_retriever(
            retriever, collection, "test", name="same", out=tmp_path / "out", reading=Reading(**reading)
        )

    plain = measure()
    assert plain.origin["settings"]["precision"] == "float32"
    for reading, sentence in (
        ({"precision": "bf16"}, r"another precision \(fp32, now bf16\)"),
        ({"max_length": 4}, r"another max_length \(none, now 4\)"),
    ):
        with pytest.raises(InputError, match=sentence):
            measure(**reading)
    read = evaluate_retriever(
        retriever, collection, "test", name="same", out=tmp_path / "other", reading=Reading("bf16", 4)
    )
    manifest = manifest_of(tmp_path / "other")
    assert (manifest.made_from["precision"], manifest.made_from["max_length"]) == ("bf16", 4)
    assert read.origin["settings"]["precision"] == "bfloat16"
    assert read.origin["settings"]["longest text"] == "4 tokens"
    assert read.metrics != plain.metrics
    ((task, _, _),) = measured_of(retriever, tmp_path / "other")
    assert task.endswith(", in bf16, of texts cut to 4 tokens")
    bm25 = evaluate_retriever("bm25", collection, "test", name="bm25", out=tmp_path / "bm25", reading=Reading("bf16"))
    assert bm25.metrics == evaluate("bm25", collection, tmp_path / "bm25").metrics  # which computes in neither


def test_a_length_binds_no_cross_encoder(retriever: Path, collection: Path, tmp_path: Path) -> None:
    """Its pairs stay as they are, so nothing may say that they were cut."""
    evaluate("bm25", collection, tmp_path / "bm25" / "x")
    reranker = write_cross_encoder(tmp_path / "reranker")
    first = FirstPassages(tmp_path / "bm25" / "x", Passages.load(collection, "test"), 5)
    found = run_protocol(first, reranker, tmp_path / "out", name="x", reading=Reading(max_length=4))
    assert "max_length" not in manifest_of(tmp_path / "out").made_from
    assert found.origin["settings"]["orders"] == "the first 5 of same (bm25)"
    assert "bytes_per_passage" not in found.origin, "nothing was indexed"


def test_the_same_is_measured_once_wherever_it_lies(
    retriever: Path, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = evaluate(retriever, collection, tmp_path / "out")
    shutil.copytree(retriever, tmp_path / "model")
    shutil.copytree(collection, tmp_path / "copy")
    monkeypatch.setattr(first_stage, "encode_corpus", None)
    again = evaluate_retriever(tmp_path / "model", tmp_path / "copy", "test", name="new", out=tmp_path / "out")
    assert (again.name, again.per_query) == ("new", before.per_query)


def test_its_manifest_says_where_figures_come_from(retriever: Path, collection: Path, tmp_path: Path) -> None:
    out = Output(tmp_path / "out", command="hf-dense evaluate")
    result = evaluate_retriever(retriever, collection, "test", name="mine", out=out)
    manifest = manifest_of(tmp_path / "out")
    assert (manifest.kind, manifest.state, manifest.command) == ("evaluation", "complete", "hf-dense evaluate")
    assert manifest.sources == {"model": str(retriever), "collection": str(collection)}
    assert manifest.made_from.items() >= {"protocol": "passages", "split": "test"}.items()
    assert manifest.facts == {"seconds": result.seconds, "queries": 20}


@pytest.mark.parametrize("protocol", [Passages.load, Documents])
def test_a_killed_evaluation_goes_on_and_only_that_one(
    retriever: Path, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: Any
) -> None:
    monkeypatch.setattr(dense, "BLOCK", 25)
    model = load_retriever(retriever)
    watched = Watched(model, monkeypatch, most=25)
    with pytest.raises(KeyboardInterrupt):
        run_protocol(protocol(collection, "test"), model, tmp_path / "out", name="cut")
    other = write_retriever(tmp_path / "other", seed=3)
    with pytest.raises(InputError, match="holds unfinished work made from another model"):
        run_protocol(protocol(collection, "test"), other, tmp_path / "out", name="cut")
    watched.go_on()
    again = run_protocol(protocol(collection, "test"), model, tmp_path / "out", name="cut")
    assert watched.counts == [25, 10]
    whole = run_protocol(protocol(collection, "test"), retriever, tmp_path / "whole", name="w")
    assert again.per_query == whole.per_query
    assert whole.origin["tokens"] > 0
    assert "resumed" not in whole.origin
    assert (again.origin["tokens"], again.origin["resumed"]) == (None, True), "half of what was read is no figure"
    assert not (tmp_path / "out.partial").exists()


def test_re_ranking_is_bound_to_the_first_passages(retriever: Path, collection: Path, tmp_path: Path) -> None:
    first, out = tmp_path / "first", tmp_path / "again"
    other = write_retriever(tmp_path / "other", seed=5)
    evaluate("bm25", collection, first)
    evaluate_reranker(other, first, collection, name="both", out=out)
    with pytest.raises(InputError, match=r"another depth \(100, now 5\)"):
        evaluate_reranker(other, first, collection, name="both", out=out, depth=5)
    evaluate(retriever, collection, first, overwrite=True)
    with pytest.raises(InputError, match="another first stage"):
        evaluate_reranker(other, first, collection, name="both", out=out)


@pytest.mark.parametrize("protocol", [Passages.load, Documents, Candidates, Answers])
def test_bad_input_leaves_nothing(retriever: Path, collection: Path, tmp_path: Path, protocol: Any) -> None:
    with (collection / "qrels" / "test.tsv").open("a") as stream:
        stream.write("q1\tp7\t0\n")
    rows = [json.loads(line) | {"answers": ["a"]} for line in (collection / "queries.jsonl").read_text().splitlines()]
    write_lines(collection / "queries.jsonl", rows)
    with pytest.raises(InputError, match="no relevance judgements"):
        protocol(collection, "nosuch")
    for model, out, message in (
        (tmp_path / "nosuch", tmp_path / "out", "no model directory"),
        (retriever, retriever, "is the model, and would replace it"),
    ):
        with pytest.raises(InputError, match=message):
            run_protocol(protocol(collection, "test"), model, out, name="bad")
    assert [*tmp_path.iterdir()] == [collection]


def test_models_that_a_protocol_does_not_measure(collection: Path, tmp_path: Path) -> None:
    write_cross_encoder(tmp_path / "cross")
    with (collection / "qrels" / "test.tsv").open("a") as stream:
        stream.write("q1\tp7\t0\n")
    for protocol, model in ((Passages.load, tmp_path / "cross"), (Candidates, "bm25")):
        with pytest.raises(InputError, match="cannot be measured by the protocol"):
            run_protocol(protocol(collection, "test"), model, tmp_path / "out", name="bad")  # type: ignore[operator]
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()
