"""ONNX files of retrievers give the retrievers' vectors."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import HfApi
from sentence_transformers import SentenceTransformer
from tiny_backbones import BACKBONES
from tiny_retriever import (
    change_json,
    tiny_tokenizer,
    write_embedder,
    write_encoder,
    write_hybrid,
    write_retriever,
    write_static,
)
from transformers import AutoTokenizer, BertTokenizer

from hf_dense import InputError, RetroMAEConfig, RetroMAEForPreTraining
from hf_dense.hub import onnx as ours
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.hub.onnx import export_onnx
from hf_dense.hub.publish import publish
from hf_dense.storage.output import Output

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxruntime", "onnxscript")),
    reason="hf_dense[onnx] is not installed",
)
TEXTS = ["a b c", "some longer words here", "zz", "x y z " * 30]


@needs_onnx
@pytest.mark.parametrize(
    ("backbone", "pooling", "normalize"),
    [
        ("bert", "cls", True),
        pytest.param("distilbert", "mean", False, marks=pytest.mark.slow),
        pytest.param("mpnet", "cls", False, marks=pytest.mark.slow),
        pytest.param("modernbert", "mean", True, marks=pytest.mark.slow),
    ],
)
def test_the_file_gives_the_models_vectors(backbone: str, pooling: str, normalize: bool, tmp_path: Path) -> None:
    import onnxruntime

    torch.manual_seed(0)
    config = RetroMAEConfig(backbone_config=BACKBONES[backbone](0.1))
    RetroMAEForPreTraining(config).save_pretrained(tmp_path / "checkpoint")
    tiny_tokenizer().save_pretrained(tmp_path / "checkpoint")
    retriever = export_sentence_transformer(
        tmp_path / "checkpoint",
        tmp_path / "retriever",
        max_length=22,
        pooling=pooling,
        normalize=normalize,
        prompts={"query": "q "},
    )
    out = export_onnx(retriever, tmp_path / "onnx")
    written = (out / "model.onnx").stat().st_mtime_ns
    assert export_onnx(retriever, tmp_path / "onnx") == out
    assert (out / "model.onnx").stat().st_mtime_ns == written, "the same is not made again"

    facts = json.loads((out / "onnx.json").read_text())
    assert facts["similarity"] == "dot"
    assert facts["prompts"] == {"query": "q "}
    session = onnxruntime.InferenceSession(str(out / "model.onnx"))
    assert [entry.name for entry in session.get_inputs()] == facts["inputs"]
    assert ("token_type_ids" in facts["inputs"]) == (backbone == "bert")
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = SentenceTransformer(str(retriever), device="cpu")
    for texts in ([TEXTS[0]], TEXTS):
        batch = tokenizer(texts, padding=True, truncation=True, return_tensors="np")
        assert batch["input_ids"].shape[1] <= 22
        (vectors,) = session.run(None, {name: batch[name] for name in facts["inputs"]})
        np.testing.assert_allclose(vectors, model.encode(texts), atol=1e-5)


@pytest.mark.slow
@needs_onnx
def test_the_card_says_how_a_published_file_is_used(
    hub_here: HfApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = export_sentence_transformer(write_embedder(tmp_path / "embedder"), tmp_path / "model", query_length=8)
    out = export_onnx(model, tmp_path / "onnx")
    publish(out, "someone/onnx")
    loaded = SentenceTransformer(str(model), device="cpu")
    for card in (out / "README.md", Path(hub_here.hf_hub_download("someone/onnx", "README.md"))):
        assert "How it makes vectors: pooling mean; normalize True; similarity cosine; max_length" in card.read_text()
        assert "It reads at most" in card.read_text()
        found: dict[str, Any] = {}
        exec(card.read_text().partition("```python\n")[2].partition("```")[0], found)
        query, passage = "what is a bottleneck", "A bottleneck squeezes a text into one vector."
        np.testing.assert_allclose(found["queries"], loaded.encode_query([query]), atol=1e-5)
        np.testing.assert_allclose(found["passages"], loaded.encode_document([passage]), atol=1e-5)
        assert capsys.readouterr().out.endswith("cosine\n")


@pytest.mark.slow
@needs_onnx
@pytest.mark.parametrize("one_file", [2**20, 0])
def test_no_path_of_this_machine_is_in_the_file(one_file: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_ONE_FILE", one_file)  # bytes of weights; more go into a file beside it
    out = export_onnx(write_embedder(tmp_path / "model"), tmp_path / "onnx")
    assert (out / "model.onnx.data").exists() == (one_file == 0)
    for place in (Path(ours.__file__).parents[2], Path(torch.__file__).parents[1], tmp_path):
        assert str(place).encode() not in (out / "model.onnx").read_bytes()


@needs_onnx
@pytest.mark.slow
def test_a_file_with_other_vectors_never_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = write_retriever(tmp_path / "retriever")
    real = ours._trace

    def wrong(model: SentenceTransformer, *given: object) -> None:
        real(model, *given)
        with torch.no_grad():
            list(model.parameters())[-1].add_(0.01)

    monkeypatch.setattr(ours, "_trace", wrong)
    with pytest.raises(InputError, match="vectors that differ from the model's by"):
        export_onnx(retriever, tmp_path / "onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["retriever", "retriever-encoder"]


@pytest.mark.slow
@needs_onnx
def test_a_file_whose_tokenizer_reads_other_tokens_never_appears(tmp_path: Path) -> None:
    embedder = write_embedder(tmp_path / "embedder")
    change_json(embedder / "sentence_bert_config.json", do_lower_case=True)
    export_onnx(embedder, tmp_path / "lowers")
    BertTokenizer(vocab=tiny_tokenizer().get_vocab(), do_lower_case=False).save_pretrained(embedder)
    with pytest.raises(InputError, match="read texts by settings that no tokenizer keeps, such as do_lower_case"):
        export_onnx(embedder, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_the_extra_is_named_where_it_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "find_spec", lambda name: None if name == "onnxscript" else object())
    with pytest.raises(InputError, match=r"need the package onnxscript; .* pip install 'hf_dense\[onnx\]'"):
        export_onnx(write_retriever(tmp_path / "retriever"), tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


@needs_onnx
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    for given, message in (
        (write_encoder(tmp_path / "encoder"), "has no modules.json"),
        (write_static(tmp_path / "static"), "static has no encoder of transformers"),
        (tmp_path / "nowhere", "There is no model directory"),
    ):
        with pytest.raises(InputError, match=message):
            export_onnx(given, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()
    with pytest.raises(InputError, match="was not written by hf_dense"):
        export_onnx(write_retriever(tmp_path / "retriever"), Output(tmp_path / "encoder", overwrite=True))


@needs_onnx
def test_prompts_that_are_not_pooled_are_refused(tmp_path: Path) -> None:
    model = SentenceTransformer(str(write_embedder(tmp_path / "base")), device="cpu")
    model[1].include_prompt = False
    model.save_pretrained(str(tmp_path / "embedder"), create_model_card=False)
    with pytest.raises(InputError, match="leaves the states of its prompts out of its vectors"):
        export_onnx(tmp_path / "embedder", tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


@needs_onnx
def test_hybrid_vectors_are_refused(tmp_path: Path) -> None:
    """Those of queries and passages are not made alike, and the file got the queries' for both."""
    with pytest.raises(InputError, match="cuts passages to their greatest words, not queries"):
        export_onnx(write_hybrid(tmp_path, dense=4, sparse=8), tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()
