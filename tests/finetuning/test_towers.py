"""Two encoders that share no weights: trained, saved, loaded and used as one retriever; a projection; short queries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from huggingface_hub import HfApi
from manifests import manifest_of
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense
from test_biencoder import arguments, killed_after
from test_biencoder_lists import lists
from tiny_retriever import random_words, write_dataset, write_embedder, write_hybrid, write_retriever

from hf_dense.commands.main import main
from hf_dense.data.collections import training_pairs
from hf_dense.errors import InputError
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.experiments.interpolation import Between
from hf_dense.finetuning.batches import ListCollator
from hf_dense.finetuning.biencoder import finetune
from hf_dense.finetuning.pipeline import Pipeline, run_pipeline
from hf_dense.hub.export import export_encoder, export_sentence_transformer
from hf_dense.hub.fingerprints import retriever_fingerprint
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.onnx import export_onnx
from hf_dense.hub.publish import publish
from hf_dense.hub.retriever_settings import RetrieverSettings, embedder_settings, settings_of
from hf_dense.hub.towers import parts_of, project, two_encoders, untie
from hf_dense.search.index import SearchIndex

TEXTS = random_words(12)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`retriever`, `data`, and `two`, trained of both as two encoders with a projection."""
    root = tmp_path_factory.mktemp("towers")
    write_retriever(root / "retriever")
    pairs = training_pairs(write_dataset(root / "data"))
    options = {"untied": True, "projection": True, "learning_rate": 5e-3, "chunk": 5}
    finetune(root / "retriever", pairs, arguments(root / "two", **options))
    return root


def vectors(model: SentenceTransformer) -> tuple[Any, Any]:
    return model.encode_query(TEXTS), model.encode_document(TEXTS)


def test_two_encoders_begin_alike_and_share_nothing(root: Path) -> None:
    one = load_retriever(root / "retriever")
    two = untie(load_retriever(root / "retriever"))
    for found, expected in zip(vectors(two), vectors(one), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    queries, passages = (list(route.parameters()) for route in two[0].sub_modules.values())
    assert not {id(weight) for weight in queries} & {id(weight) for weight in passages}
    assert len(queries) == len(passages) == len(list(one.parameters()))
    assert untie(two) is two
    with torch.no_grad():
        queries[0].normal_()
    assert np.abs(vectors(two)[0] - vectors(one)[0]).max() > 1e-3
    np.testing.assert_allclose(vectors(two)[1], vectors(one)[1], atol=1e-6)


def test_training_moves_both_and_what_is_saved_is_loaded(root: Path) -> None:
    model = root / "two" / "model"
    plain, ours = SentenceTransformer(str(model)), load_retriever(model)
    for found, expected in zip(vectors(ours), vectors(plain), strict=True):
        np.testing.assert_array_equal(found, expected)
    queries, passages = (dict(route.named_parameters()) for route in ours[0].sub_modules.values())
    start = dict(load_retriever(root / "retriever")[0].named_parameters())
    name = "model.encoder.layer.0.attention.self.query.weight"
    for other in (queries[f"0.{name}"], passages[f"0.{name}"]):
        assert not torch.equal(other, start[name])
    assert not torch.equal(queries[f"0.{name}"], passages[f"0.{name}"])
    assert "two encoders that share no weights" in (model / "README.md").read_text()
    assert settings_of(ours) == settings_of(load_retriever(root / "retriever"))
    again = finetune(model, lists(), arguments(root / "again", contrast="own", learning_rate=1e-3))
    assert two_encoders(load_retriever(again)), "two stay two"


def test_a_killed_training_of_two_goes_on(root: Path, tmp_path: Path) -> None:
    pairs = training_pairs(root / "data")
    options = {"untied": True, "max_steps": 8, "save_strategy": "steps", "save_steps": 3}
    whole = finetune(root / "retriever", pairs, arguments(tmp_path / "whole", **options))
    with killed_after(5):
        finetune(root / "retriever", pairs, arguments(tmp_path / "killed", **options))
    resumed = finetune(root / "retriever", pairs, arguments(tmp_path / "killed", **options))
    for found, expected in zip(vectors(load_retriever(resumed)), vectors(load_retriever(whole)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_fingerprint_is_of_both(root: Path) -> None:
    two = load_retriever(root / "two" / "model")
    found = [retriever_fingerprint(two)]
    for route in two[0].sub_modules.values():
        with torch.no_grad():
            next(iter(route.parameters())).add_(1)
        found.append(retriever_fingerprint(two))
    two[0].sub_modules["query"][0].max_seq_length = 9
    found.append(retriever_fingerprint(two))
    assert len(set(found)) == len(found)


def test_it_is_measured_indexed_mined_with_and_exported(root: Path, tmp_path: Path) -> None:
    model = root / "two" / "model"
    result = evaluate_retriever(model, root / "data", "test", name="two", out=tmp_path / "evaluation")
    assert result.metrics["mrr@10"] > 0
    main(["search", str(model), TEXTS[0], "--corpus", str(root / "data"), "--index", str(tmp_path / "index")])
    assert len(SearchIndex.load(tmp_path / "index", model).search(TEXTS[0], 5)) == 5
    main(["data", "negatives", str(root / "data"), "--model", str(model), "--depth", "4", "--out", str(tmp_path / "n")])
    out = export_sentence_transformer(model, tmp_path / "shorter", max_length=10)
    assert {part.max_seq_length for part in parts_of(load_retriever(out)) if hasattr(part, "max_seq_length")} == {10}
    manifest = manifest_of(out)
    assert [step["kind"] for step in manifest.facts["lineage"]][-1] == "retriever"


def test_two_travel_through_the_hub(root: Path, hub_here: HfApi) -> None:
    publish(root / "two" / "model", "someone/two")
    expected = vectors(load_retriever(root / "two" / "model"))
    for loaded in (load_retriever("someone/two"), SentenceTransformer(hub_here.snapshot_download("someone/two"))):
        for found, wanted in zip(vectors(loaded), expected, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_the_stages_of_a_pipeline_keep_two(root: Path, tmp_path: Path) -> None:
    common = {"passages": 3, "max_steps": 2, "per_device_train_batch_size": 4, "use_cpu": True, "depth": 5}
    given = {"collection": str(root / "data"), "model": str(root / "retriever"), "out": str(tmp_path / "out")}
    first = {**common, "untied": True, "projection": True}
    second = {**common, "start": "retriever1"}
    models = run_pipeline(Pipeline.of({**given, "query_length": 8, "retriever1": first, "retriever2": second}))
    for model in models.values():
        loaded = load_retriever(model)
        assert two_encoders(loaded)
        assert settings_of(loaded).query_length == 8
        assert [type(part).__name__ for part in parts_of(loaded)] == 2 * [
            "Transformer",
            "Pooling",
            "Dense",
            "LayerNorm",
        ]


def test_a_projection_is_a_linear_layer_and_a_norm(root: Path, tmp_path: Path) -> None:
    one = load_retriever(root / "retriever")
    states = torch.tensor(one.encode_document(TEXTS))
    head = project(one, seed=3)
    weight = torch.empty(32, 32).normal_(std=0.02, generator=torch.Generator().manual_seed(3))
    expected = torch.nn.functional.layer_norm(states @ weight.T, (32,))
    torch.testing.assert_close(torch.tensor(head.encode_document(TEXTS)), expected, atol=1e-4, rtol=1e-4)
    assert project(head, seed=4) is head
    unit = project(load_retriever(write_embedder(tmp_path / "embedder")), seed=3)
    assert np.linalg.norm(unit.encode_query(TEXTS), axis=1) == pytest.approx(1), "a norm of vectors stays the last"
    assert settings_of(unit).similarity == "cosine"
    dense = load_retriever(write_embedder(tmp_path / "dense", Dense(32, 32)))
    assert len(project(dense, seed=3)) == len(dense) + 2, "a linear layer of its own is no such head"
    cut = load_retriever(root / "retriever")
    cut.truncate_dim = 8
    vectors = project(cut, seed=3).encode_document(TEXTS)
    np.testing.assert_allclose(vectors, head.encode_document(TEXTS)[:, :8], atol=1e-6)


def test_queries_are_cut_to_a_length_of_their_own(root: Path, tmp_path: Path) -> None:
    out = export_sentence_transformer(root / "retriever", tmp_path / "short", query_length=6)
    model, whole = load_retriever(out), load_retriever(root / "retriever")
    text = " ".join(TEXTS)
    assert settings_of(model) == RetrieverSettings(**{**vars(settings_of(whole)), "query_length": 6})
    whole.max_seq_length = 6
    np.testing.assert_allclose(model.encode_query([text]), whole.encode_query([text]), atol=1e-6)
    whole.max_seq_length = 32
    np.testing.assert_allclose(model.encode_document([text]), whole.encode_document([text]), atol=1e-6)
    read: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        forward = type(model).forward
        patch.setattr(
            type(model), "forward", lambda *a, **k: (read.append(a[1]["input_ids"].shape[1]), forward(*a, **k))[1]
        )
        pairs = Dataset.from_dict({"query": [f"{text} {row}" for row in "abc"], "passage": [*TEXTS[:3]]})
        finetune(out, pairs, arguments(tmp_path / "tuned", max_steps=1, per_device_train_batch_size=3))
    assert max(read) == 6, "in training too"
    collate = ListCollator(preprocess_fn=model.preprocess, router_mapping={"query": "query"})
    assert collate([{"query": text, "passages": [text, text]}])["query_input_ids"].shape == (1, 6)
    for length in (2, 33):
        with pytest.raises(InputError, match=f"query_length is {length}; it must be from 3 to max_length, 32"):
            export_sentence_transformer(root / "retriever", tmp_path / "none", query_length=length)


@pytest.mark.parametrize(
    ("refused", "sentence"),
    [
        (
            lambda two, root: export_encoder(two, root / "x"),
            "has two encoders, and one is wanted here; name one of them",
        ),
        (lambda two, root: export_onnx(two, root / "x"), "has two encoders, and an ONNX file holds one"),
        (lambda two, root: Between(str(two), str(two)), "has two encoders; only retrievers of one are merged"),
        (lambda two, root: Between(str(root / "retriever"), str(two)), "has two encoders; only retrievers of one"),
        (lambda two, root: embedder_settings(two), r"by more than pooling and a norm \(Router"),
        (lambda two, root: export_sentence_transformer(two, root / "x", pooling="mean"), "has two encoders, whose"),
        (
            lambda two, root: finetune(write_hybrid(root / "h", 4, 4), lists(), arguments(root / "x", untied=True)),
            "Hybrid vectors come of one encoder",
        ),
    ],
)
def test_where_two_cannot_go_is_said(root: Path, refused: Callable[[Path, Path], object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        refused(root / "two" / "model", root)
    assert not (root / "x").exists()


def test_one_of_the_two_is_an_encoder(root: Path, tmp_path: Path) -> None:
    out = export_encoder(root / "two" / "model" / "query_0_Transformer", tmp_path / "queries")
    assert (out / "config.json").is_file()
