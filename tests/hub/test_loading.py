"""Models that say what they are not are refused when they are loaded; those that say nothing are not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import HfApi
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer, WordEmbeddings
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer
from tiny_backbones import BACKBONES
from tiny_retriever import (
    change_json,
    static_embeddings,
    tiny_config,
    tiny_tokenizer,
    write_cross_encoder,
    write_dataset,
    write_embedder,
    write_encoder,
    write_retriever,
    write_static,
    write_two_encoders,
)
from transformers import AutoModel, BertForMaskedLM, T5Config, T5EncoderModel

from hf_dense.data.collections import training_pairs
from hf_dense.errors import InputError
from hf_dense.evaluation.analyses import similarity_by_length
from hf_dense.evaluation.retrieval import evaluate_retriever
from hf_dense.experiments.interpolation import Between
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.hub.export import export_cross_encoder, export_encoder
from hf_dense.hub.fingerprints import retriever_fingerprint
from hf_dense.hub.loading import is_cross_encoder, load_encoder, load_retriever, load_tokenizer
from hf_dense.hub.retriever_settings import RetrieverSettings
from hf_dense.hub.retrievers import build_retriever
from hf_dense.hub.towers import untie
from hf_dense.methods import METHODS
from hf_dense.modeling.bottleneck_backbones import FAMILIES
from hf_dense.pretraining.start import start_from
from hf_dense.search.candidates import load_ranker
from hf_dense.search.cross_encoder import load_reranker
from hf_dense.search.index import SearchIndex
from hf_dense.search.index_building import build_index


@pytest.mark.parametrize("said", ["many", 8])
def test_a_retriever_whose_vectors_are_not_what_it_says(tmp_path: Path, said: object) -> None:
    retriever = write_retriever(tmp_path / "retriever")
    change_json(tmp_path / "retriever" / "1_Pooling" / "config.json", embedding_dimension=said)
    with pytest.raises(InputError, match=r"Cannot load a retriever from .*"):
        load_retriever(retriever)


def test_a_model_that_the_hub_has_not(hub_here: HfApi) -> None:
    sentence = (
        "Cannot load a model from someone/nothing: the Hub has no repository of that name, or none that the token"
    )
    with pytest.raises(InputError, match=sentence):
        load_retriever("someone/nothing")


def test_a_directory_that_was_mistyped_is_no_matter_of_the_hub_alone(
    hub_here: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    for load in (load_retriever, load_encoder, load_tokenizer):
        with pytest.raises(InputError, match=r"from build/retreiver \(the directory build has none\): "):
            load("build/retreiver")


def test_a_retriever_that_does_not_say_its_dimensions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = write_retriever(tmp_path / "retriever")
    monkeypatch.setattr(SentenceTransformer, "get_embedding_dimension", lambda _: None)
    assert len(load_retriever(retriever).encode("a")) > 0


@pytest.mark.parametrize("named", [0.5, [{}], "BertModel", {"a": 1}])
def test_architectures_that_are_no_list_of_names(tmp_path: Path, named: object) -> None:
    retriever = write_retriever(tmp_path / "retriever")
    assert not is_cross_encoder(retriever)
    change_json(tmp_path / "retriever" / "config.json", architectures=named)
    with pytest.raises(InputError, match="architectures"):
        is_cross_encoder(retriever)


def test_a_re_ranker_whose_tokens_are_none_of_its_encoder(tmp_path: Path) -> None:
    write_cross_encoder(tmp_path)
    load_reranker(tmp_path)
    change_json(tmp_path / "tokenizer_config.json", sep_token="zebra")
    with pytest.raises(InputError, match="Cannot load a cross-encoder"):
        load_reranker(tmp_path)


def test_a_tokenizer_that_stops_at_what_it_does_not_know(tmp_path: Path) -> None:
    retriever = write_retriever(tmp_path / "retriever")
    load_retriever(retriever)
    change_json(retriever / "tokenizer_config.json", unk_token="zebra")
    for load in (load_retriever, load_tokenizer):
        with pytest.raises(InputError, match="retriever has no token for what it does not know"):
            load(retriever)


def add_token(retriever: Path, special: bool) -> None:
    tokenizer = load_tokenizer(retriever)
    tokenizer.add_tokens("zebrafish", special_tokens=special)
    tokenizer.save_pretrained(retriever)


def test_a_token_that_the_encoder_has_no_row_for(tmp_path: Path) -> None:
    retriever, two = write_retriever(tmp_path / "retriever"), write_two_encoders(tmp_path / "two")
    add_token(retriever, special=False)
    add_token(two / "query_0_Transformer", special=False)
    for model in (retriever, two):
        with pytest.raises(InputError, match=f"The tokenizer of {model} has 58 tokens, its encoder only 57"):
            load_retriever(model)


def test_a_special_token_that_no_text_is_read_by_needs_no_row(tmp_path: Path) -> None:
    """Gemma's tokenizer has one for images, and EmbeddingGemma no row for it."""
    retriever = write_retriever(tmp_path / "retriever")
    expected = load_retriever(retriever).encode("a b")
    add_token(retriever, special=True)
    np.testing.assert_array_equal(load_retriever(retriever).encode("a b"), expected)
    assert build_retriever(retriever, RetrieverSettings(max_length=16)).max_seq_length == 16
    export_encoder(retriever, tmp_path / "encoder")


def test_what_is_no_place_and_no_model_is_no_retriever() -> None:
    for strange in (None, 5):
        with pytest.raises(InputError, match=f"not an object of the type {type(strange).__name__}"):
            load_retriever(strange)  # type: ignore[arg-type]


def test_a_cross_encoder_is_no_retriever(tmp_path: Path) -> None:
    """Sentence-Transformers would take either for an encoder with mean pooling."""
    write_cross_encoder(tmp_path / "plain")
    CrossEncoder(str(tmp_path / "plain")).save_pretrained(str(tmp_path / "saved"))
    for name in ("plain", "saved"):
        with pytest.raises(InputError, match=f"{name} is a cross-encoder, which scores pairs and makes no vectors"):
            build_retriever(tmp_path / name)
    with pytest.raises(InputError, match="makes no vectors"):
        load_retriever(tmp_path / "saved")


@pytest.mark.parametrize("kind", [SparseEncoder, MultiVectorEncoder, CrossEncoder])
def test_what_makes_no_dense_vectors_is_no_retriever(kind: Any, tmp_path: Path) -> None:
    """Sentence-Transformers would load it as one, with mean pooling in place of what it has."""
    BertForMaskedLM(tiny_config()).save_pretrained(tmp_path / "plain")
    tiny_tokenizer().save_pretrained(tmp_path / "plain")
    kind(str(tmp_path / "plain"), device="cpu").save_pretrained(str(tmp_path / "saved"))
    change_json(tmp_path / "saved" / "config.json", architectures=["BertModel"])  # as of one that is a language model
    for load in (load_retriever, build_retriever, load_ranker):
        with pytest.raises(InputError, match=f"saved is a {kind.__name__} of Sentence-Transformers, which makes no"):
            load(tmp_path / "saved")


def rename_weights(model: Path, change: Callable[[str], str | None]) -> Path:
    """Weights under other names; those without one are left out."""
    state = load_file(model / "model.safetensors")
    kept = {new: tensor for name, tensor in state.items() if (new := change(name)) is not None}
    save_file(kept, model / "model.safetensors", metadata={"format": "pt"})
    return model


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda name: f"_orig_mod.{name}", r"lacks 37 of .*, such as embeddings.*; it has _orig_mod.embeddings"),
        (
            lambda name: None if "layer.1." in name else name,
            r"lacks 16 of its encoder's weights, such as encoder.layer.1",
        ),
    ],
    ids=["compiled", "a layer"],
)
def test_weights_that_lack_are_not_made_up(tmp_path: Path, change: Callable[[str], str | None], said: str) -> None:
    embedder = rename_weights(write_embedder(tmp_path / "embedder"), change)
    encoder = rename_weights(write_encoder(tmp_path / "plain"), change)
    with pytest.raises(InputError, match=said):
        load_retriever(embedder)
    with pytest.raises(InputError, match=said):
        load_encoder(encoder)
    with pytest.raises(InputError, match=said):
        start_from(METHODS["retromae"], str(encoder), {})


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_text_is_cut_to_the_positions_that_there_are(
    backbone: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = BACKBONES[backbone](0.0)
    AutoModel.from_config(config).save_pretrained(tmp_path / "encoder")
    tiny_tokenizer().save_pretrained(tmp_path / "encoder")
    first = Transformer(str(tmp_path / "encoder"), max_seq_length=20)
    model = SentenceTransformer(modules=[first, Pooling(32, "mean")], device="cpu")
    model.save_pretrained(str(tmp_path / "retriever"), create_model_card=False)
    assert load_retriever(tmp_path / "retriever").max_seq_length == 20
    assert "positions" not in caplog.text
    change_json(tmp_path / "retriever" / "sentence_bert_config.json", max_seq_length=90, query_length=50)
    found = load_retriever(tmp_path / "retriever")
    if backbone == "modernbert":  # it rotates, and has no table that ends
        assert found.max_seq_length == 90
        return
    positions = FAMILIES[config.model_type].shape(config).positions
    assert (found.max_seq_length, found[0].query_length) == (positions, positions)
    assert (
        f"is to read 90 tokens of a text (max_seq_length), and its encoder has positions for {positions}" in caplog.text
    )
    model.max_seq_length = positions
    for encode, other in ((found.encode_query, model.encode_query), (found.encode_document, model.encode_document)):
        np.testing.assert_allclose(encode(["a " * 100, "b"]), other(["a " * 100, "b"]), atol=1e-6)


def test_a_cross_encoder_has_its_head(tmp_path: Path) -> None:
    write_cross_encoder(tmp_path / "teacher")
    load_reranker(tmp_path / "teacher")
    rename_weights(tmp_path / "teacher", lambda name: None if "classifier" in name else name)
    with pytest.raises(InputError, match=r"lacks 2 of its encoder's weights, such as classifier.bias"):
        load_reranker(tmp_path / "teacher")
    with pytest.raises(InputError, match=r"such as classifier\.bias"):
        export_cross_encoder(tmp_path / "teacher", tmp_path / "out")


def test_two_encoders_are_looked_into(tmp_path: Path) -> None:
    model = untie(load_retriever(write_embedder(tmp_path / "embedder")))
    model.save_pretrained(str(tmp_path / "two"), create_model_card=False)
    load_retriever(tmp_path / "two")
    file = max((tmp_path / "two").rglob("model.safetensors"))
    rename_weights(file.parent, lambda name: None if "layer.1." in name else name)
    with pytest.raises(InputError, match=r"such as encoder\.layer\.1"):
        load_retriever(tmp_path / "two")


def test_an_encoder_that_is_half_of_a_model_is_whole(tmp_path: Path) -> None:
    config = T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    T5EncoderModel(config).save_pretrained(tmp_path / "encoder")
    tiny_tokenizer().save_pretrained(tmp_path / "encoder")
    first = Transformer(str(tmp_path / "encoder"), max_seq_length=16)
    model = SentenceTransformer(modules=[first, Pooling(16, "mean")], device="cpu")
    model.save_pretrained(str(tmp_path / "retriever"), create_model_card=False)
    assert load_retriever(tmp_path / "retriever").encode("a b").shape == (16,)
    rename_weights(tmp_path / "retriever", lambda name: None if "final_layer_norm" in name else name)
    with pytest.raises(InputError, match=r"lacks 1 of its encoder's weights, such as encoder\.final_layer_norm"):
        load_retriever(tmp_path / "retriever")


def test_static_embeddings_are_searched_with(tmp_path: Path) -> None:
    static, data = write_static(tmp_path / "static"), write_dataset(tmp_path / "data")
    mixed = write_two_encoders(tmp_path / "mixed", static_embeddings())
    for model in (static, mixed):
        found = evaluate_retriever(model, data, "test", name="x", out=tmp_path / "out" / model.name)
        assert 0 < found.metrics["ndcg@10"] < 1
    index = build_index(static, data, tmp_path / "index")
    assert len(SearchIndex.load(index, static).search("abcd", 3)) == 3
    again = load_retriever(static)
    before = retriever_fingerprint(again)
    again[0].tokenizer.add_tokens(["xyz"])
    assert retriever_fingerprint(again) != before


def test_what_static_embeddings_are_not_taken_for(tmp_path: Path) -> None:
    static, data = write_static(tmp_path / "static"), write_dataset(tmp_path / "data")
    tries: dict[str, Callable[[], object]] = {
        "has no encoder of transformers that could be moved": lambda: Between(str(static), str(static), str(static)),
        "has no tokenizer of transformers": lambda: similarity_by_length(static, ["a b", "c d"], lengths=[8]),
        "Static embeddings are not fine-tuned here": lambda: finetune(
            static,
            training_pairs(data),
            BiencoderTrainingArguments(str(tmp_path / "run"), per_device_train_batch_size=4, use_cpu=True),
        ),
    }
    for said, attempt in tries.items():
        with pytest.raises(InputError, match=said):
            attempt()
    assert not (tmp_path / "run").exists()
    words = WordEmbeddings(WhitespaceTokenizer(["a", "b"]), [[0.0, 1.0], [1.0, 0.0]])
    SentenceTransformer(modules=[words, Pooling(2, "mean")], device="cpu").save_pretrained(str(tmp_path / "words"))
    with pytest.raises(InputError, match="reads texts by WordEmbeddings; a retriever does by Transformer or Static"):
        load_retriever(tmp_path / "words")


def test_weights_of_another_user_are_said_to_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_retriever(tmp_path / "model")
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place).name != "model.safetensors")  # as for no root
    with pytest.raises(InputError, match="may not be read by this user"):
        load_retriever(tmp_path / "model")


FORKS = """
import os, signal, sys
from hf_dense.hub.loading import load_retriever
from hf_dense.search.cross_encoder import load_reranker

retriever, reranker = load_retriever(sys.argv[1]), load_reranker(sys.argv[2])
child = os.fork()
if child == 0:
    signal.alarm(30)  # ends it
    retriever.encode(["a b c d e"] * 300)
    reranker.predict([("a b", "c d e")] * 300)
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""


@pytest.mark.slow
def test_a_process_may_be_forked_once_models_are_loaded(tmp_path: Path) -> None:
    """As servers do that load before they fork; a child has no threads of torch, and waited for them forever."""
    models = [str(write(tmp_path / write.__name__)) for write in (write_retriever, write_cross_encoder)]
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", FORKS, *models]
    assert subprocess.run(command, env=environment, check=False).returncode == 0
