"""A model's own pooling, norm, similarity, prompts and length stay through every step, unless others are given."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense
from tiny_retriever import (
    static_embeddings,
    write_checkpoint,
    write_embedder,
    write_encoder,
    write_hybrid,
    write_static,
    write_two_encoders,
)

from hf_dense import InputError
from hf_dense.evaluation.settings import describe_model
from hf_dense.hub.export import export_encoder, export_sentence_transformer
from hf_dense.hub.loading import load_retriever, unread_prompts
from hf_dense.hub.precision import Reading
from hf_dense.hub.retriever_settings import RetrieverSettings, embedder_settings, settings_of
from hf_dense.hub.retrievers import build_retriever
from hf_dense.storage.manifest import Manifest

TEXTS = ["a b c", "some longer words here", "zz", "x y z " * 30]
RECORD = {"pooling": "mean", "normalize": True, "similarity": "cosine", "prompts": {"query": "ask "}, "max_length": 20}


def vectors(model: str | Path | SentenceTransformer) -> np.ndarray:
    loaded = model if isinstance(model, SentenceTransformer) else SentenceTransformer(str(model), device="cpu")
    return np.stack([loaded.encode_query(TEXTS), loaded.encode_document(TEXTS)])


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("hf_dense")]


@pytest.mark.parametrize("dense", [False, True])
def test_an_export_of_an_embedder_is_that_embedder(
    dense: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = write_embedder(tmp_path / "embedder", *([Dense(32, 8)] if dense else []))
    out = export_sentence_transformer(embedder, tmp_path / "out")
    np.testing.assert_array_equal(vectors(out), vectors(embedder))
    found, before = (SentenceTransformer(str(path)) for path in (out, embedder))
    assert settings_of(found) == settings_of(before)
    assert (found.max_seq_length, found.similarity_fn_name, found.prompts["query"]) == (20, "cosine", "ask ")
    assert [type(module).__name__ for module in found] == [type(module).__name__ for module in before]
    assert not lines(caplog)
    remark = "pooling mean; normalize False; similarity" if dense else "pooling mean; normalize True; similarity"
    assert remark in (out / "README.md").read_text()


def test_what_is_given_changes_it_and_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    embedder = write_embedder(tmp_path / "embedder")
    out = export_sentence_transformer(
        embedder,
        tmp_path / "out",
        max_length=9,
        pooling="cls",
        normalize=False,
        similarity="dot",
        prompts={"query": "", "document": "say "},
    )
    expected = RetrieverSettings("cls", False, "dot", {"query": "", "document": "say "}, 9)
    assert settings_of(SentenceTransformer(str(out))) == expected
    assert sorted(lines(caplog)) == [
        f"{embedder}: {change}, which is its own."
        for change in (
            "document prompt 'say ' in place of ''",
            "max_length 9 in place of 20",
            "normalize False in place of True",
            "pooling cls in place of mean",
            "query prompt '' in place of 'ask '",
            "similarity dot in place of cosine",
        )
    ]
    plain = export_sentence_transformer(write_encoder(tmp_path / "encoder"), tmp_path / "plain", max_length=9)
    caplog.clear()
    export_sentence_transformer(plain, tmp_path / "again", normalize=True, similarity="dot")
    assert lines(caplog) == [f"{plain}: normalize True in place of False, which is its own."]
    np.testing.assert_allclose(np.linalg.norm(vectors(tmp_path / "again"), axis=-1), 1, atol=1e-6)


def test_a_checkpoint_remembers_its_embedder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = write_checkpoint(tmp_path / "retromae", bottleneck="cls", retriever=RECORD)
    out = export_sentence_transformer(checkpoint, tmp_path / "out")
    found = SentenceTransformer(str(out), device="cpu")
    own = settings_of(found)
    assert own == RetrieverSettings("mean", True, "cosine", {"query": "ask ", "document": ""}, 20)
    np.testing.assert_array_equal(vectors(load_retriever(checkpoint)), vectors(found))
    assert not lines(caplog)
    assert settings_of(build_retriever(checkpoint, RetrieverSettings("cls"))).pooling == "cls"
    assert lines(caplog) == [f"{checkpoint}: pooling cls in place of mean, which is its own."]
    export_encoder(checkpoint, tmp_path / "plain")
    assert "pooling mean; normalize True" in lines(caplog)[-1]
    assert "similarity cosine" in ModelCard.load(tmp_path / "plain" / "README.md").text


@pytest.mark.parametrize("bottleneck", ["cls", "mean"])
def test_a_checkpoint_from_scratch_is_pooled_where_its_bottleneck_is(bottleneck: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "retromae", length=16, bottleneck=bottleneck)
    own = settings_of(load_retriever(checkpoint))
    assert own == RetrieverSettings(bottleneck, False, "dot", {"query": "", "document": ""}, 16)
    export_sentence_transformer(checkpoint, tmp_path / "out")
    assert Manifest.load(tmp_path / "out").made_from["pooling"] == bottleneck


def test_what_cannot_be(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "retromae")
    for given, message in (
        (checkpoint, "does not say how long its texts are; name it: hf-dense export --max_length"),
        (write_encoder(tmp_path / "encoder"), "does not say how long its texts are"),
        (write_hybrid(tmp_path / "dupmae", 4, 8), "is a model of hybrid vectors already"),
    ):
        with pytest.raises(InputError, match=message):
            export_sentence_transformer(given, tmp_path / "out")
    with pytest.raises(InputError, match=r"max_length is 65 tokens; the encoder of .* takes at most 64"):
        export_sentence_transformer(write_embedder(tmp_path / "embedder"), tmp_path / "out", max_length=65)
    with pytest.raises(InputError, match="There is no Sentence-Transformers model someone/nothing"):
        load_retriever("someone/nothing")
    assert not (tmp_path / "out").exists()


BY_NAME = """
import json, sys
from huggingface_hub import HfApi, ModelCard
from hf_dense import InputError
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.hub.loading import load_retriever, unread_prompts
from hf_dense.hub.retriever_settings import RetrieverSettings, embedder_settings, settings_of
from hf_dense.hub.retrievers import build_retriever
from hf_dense.methods import get_method
from hf_dense.pretraining.start import start_from

embedder, encoder, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
for name, folder in (("someone/embedder", embedder), ("someone/bert", encoder)):
    HfApi().create_repo(name)
    HfApi().upload_folder(repo_id=name, folder_path=folder)
out = export_sentence_transformer("someone/embedder", "out")
card = ModelCard.load(out / "README.md").data
started = start_from(get_method("retromae"), "someone/embedder", {}).config
try:
    load_retriever("someone/bert")
    refused = ""
except InputError as error:
    refused = str(error)
print(json.dumps({
    "vectors": load_retriever(out).encode_query(texts).tolist(),
    "card": [card.base_model, card.license],
    "started": [started.bottleneck, started.retriever["max_length"]],
    "refused": refused,
    "plain": settings_of(build_retriever("someone/bert", RetrieverSettings(max_length=9))).pooling,
}))
"""


@pytest.mark.slow
def test_a_name_of_the_hub_is_as_good_as_a_directory(hub_client: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    embedder, encoder = write_embedder(tmp_path / "embedder"), write_encoder(tmp_path / "bert")
    found = hub_client(BY_NAME, str(embedder), str(encoder), json.dumps(TEXTS))
    np.testing.assert_allclose(found["vectors"], vectors(embedder)[0], atol=1e-6)
    assert found["card"] == ["someone/embedder", "mit"]
    assert found["started"] == ["mean", 20]
    assert found["refused"].startswith(
        "There is no Sentence-Transformers model someone/bert, on the Hub or in its cache"
    )
    assert found["plain"] == "cls"


def test_a_pooling_without_prompts_stays_so(tmp_path: Path) -> None:
    model = SentenceTransformer(str(write_embedder(tmp_path / "base")), device="cpu")
    model[1].include_prompt = False
    model.save_pretrained(str(tmp_path / "embedder"), create_model_card=False)
    own = asdict(embedder_settings(tmp_path / "embedder"))
    assert own["include_prompt"] is False
    checkpoint = write_checkpoint(tmp_path / "retromae", bottleneck="mean", retriever=own)
    out = export_sentence_transformer(checkpoint, tmp_path / "out")
    assert not SentenceTransformer(str(out), device="cpu")[1].include_prompt


def test_a_prompt_that_nothing_reads_is_said_and_not_claimed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = SentenceTransformer(str(write_embedder(tmp_path / "base")), device="cpu")
    model.prompts |= {"document": "", "passage": "say ", "corpus": ""}
    model.save_pretrained(str(tmp_path / "embedder"), create_model_card=False)
    loaded = load_retriever(tmp_path / "embedder")
    assert "has the prompt 'say ' for 'passage', which Sentence-Transformers puts before no passage" in caplog.text
    assert (loaded.encode_document("a") == loaded.encode("a")).all()
    assert settings_of(loaded).prompts == {"query": "ask ", "document": "", "corpus": ""}
    assert describe_model(loaded)["prompts"] == "query: 'ask '"
    caplog.clear()
    del loaded.prompts["document"]
    assert unread_prompts(loaded) == {}, "it is the first of its names then"


def test_two_encoders_have_the_lengths_of_both(tmp_path: Path) -> None:
    model = write_two_encoders(tmp_path / "model")
    own = settings_of(load_retriever(model))
    assert (own.max_length, own.query_length) == (20, 8)
    out = export_sentence_transformer(model, tmp_path / "out")
    manifest, card = Manifest.load(out), ModelCard.load(out / "README.md").text
    assert manifest is not None
    assert (manifest.made_from["max_length"], manifest.made_from["query_length"]) == (20, 8)
    assert "It reads at most 20 tokens of a text, and 8 of a query; what follows is cut off." in card
    assert describe_model(load_retriever(model))["longest text"] == "20 tokens, of a query 8"
    long, short = "a b c d e f g h i j k l", "a b c d e f"
    for length in (None, 16):
        cut = build_retriever(out, RetrieverSettings(max_length=length))
        assert settings_of(cut).query_length == 8
        np.testing.assert_allclose(cut.encode_query(long), cut.encode_query(short), atol=1e-6)


def test_static_embeddings_have_no_length(tmp_path: Path) -> None:
    static = write_static(tmp_path / "static")
    mixed = write_two_encoders(tmp_path / "mixed", static_embeddings())
    assert settings_of(load_retriever(static)) == RetrieverSettings(
        None, True, "cosine", {"query": "", "document": ""}, None, None, None
    )
    assert settings_of(load_retriever(mixed)).max_length == 20
    assert describe_model(load_retriever(static))["longest text"] == "any"
    for model in (static, mixed):
        out = export_sentence_transformer(model, tmp_path / f"{model.name}-out")
        np.testing.assert_allclose(vectors(out), vectors(model), atol=1e-6)
        with pytest.raises(InputError, match="Static embeddings read texts of any length; leave max_length"):
            build_retriever(model, RetrieverSettings(max_length=16))
        with pytest.raises(InputError, match="Static embeddings read texts of any length"):
            Reading(max_length=16).apply(load_retriever(model))
