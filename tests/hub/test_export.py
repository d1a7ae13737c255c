from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from tiny_backbones import BACKBONES, VOCABULARY
from tiny_retriever import (
    change_json,
    tiny_config,
    tiny_tokenizer,
    write_checkpoint,
    write_embedder,
    write_encoder,
    write_retriever,
)
from transformers import AutoModel, BertModel, BertTokenizer, NomicBertConfig, NomicBertModel

from hf_dense import InputError, RetroMAEForPreTraining
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.retriever_settings import embedder_settings
from hf_dense.storage.manifest import COMPLETE, Manifest
from hf_dense.storage.output import Output

TEXTS = ["a b c", "some longer words here", "zz"]

LOAD_WITHOUT_HF_DENSE = """
import json, sys
sys.modules["hf_dense"] = None
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], trust_remote_code=False)
print("RESULT" + json.dumps(model.encode(json.loads(sys.argv[2])).tolist()))
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_family_of_backbones_is_exported(backbone: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", backbone_config=BACKBONES[backbone](0.1))
    model = RetroMAEForPreTraining.from_pretrained(checkpoint)
    exported = export_sentence_transformer(checkpoint, tmp_path / "out", max_length=22)
    vectors = SentenceTransformer(str(exported), device="cpu").encode(TEXTS)
    batch = dict(tiny_tokenizer()(TEXTS, padding=True, return_tensors="pt"))
    batch.pop("token_type_ids")
    with torch.no_grad():
        expected = model.encoder.eval()(**batch).pooler_output.numpy()
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def cls_vectors(encoder: torch.nn.Module, texts: list[str]) -> np.ndarray:
    batch = tiny_tokenizer()(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        return encoder.eval()(**batch).last_hidden_state[:, 0].numpy()


@pytest.mark.slow  # it starts a process of its own
def test_pretraining_checkpoint_loads_without_hf_dense_with_equal_vectors(checkpoint: Path, tmp_path: Path) -> None:
    exported = export_sentence_transformer(checkpoint, tmp_path / "out", max_length=32)

    run = subprocess.run(
        [sys.executable, "-c", LOAD_WITHOUT_HF_DENSE, str(exported), json.dumps(TEXTS)],
        capture_output=True,
        text=True,
        check=True,
    )
    vectors = json.loads(run.stdout.split("RESULT")[1])
    expected = cls_vectors(AutoModel.from_pretrained(checkpoint), TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert np.abs(expected[0] - expected[1]).max() > 0.1


def test_weights_that_are_parts_of_one_matrix_are_exported(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    NomicBertModel(NomicBertConfig(vocab_size=VOCABULARY, **sizes)).save_pretrained(tmp_path / "encoder")
    tiny_tokenizer().save_pretrained(tmp_path / "encoder")
    encoder = AutoModel.from_pretrained(tmp_path / "encoder")
    query = encoder.layers[0].self_attn.q_proj.weight
    assert query.untyped_storage().nbytes() > query.nbytes  # of keys and values too

    exported = export_sentence_transformer(tmp_path / "encoder", tmp_path / "out", max_length=22)
    vectors = SentenceTransformer(str(exported), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(vectors, cls_vectors(encoder, TEXTS), atol=1e-6)


def test_export_is_a_plain_encoder(checkpoint: Path, tmp_path: Path) -> None:
    exported = export_sentence_transformer(checkpoint, tmp_path / "out", max_length=32)

    config = json.loads((exported / "config.json").read_text())
    assert config["model_type"] == "bert"
    assert config["architectures"] == ["BertModel"]
    assert "auto_map" not in config
    assert not list(exported.rglob("*.py"))
    names = set(load_file(exported / "model.safetensors"))
    assert names == set(BertModel(tiny_config(), add_pooling_layer=False).state_dict())
    assert (exported / "tokenizer.json").is_file()


def test_plain_encoder_exports_the_same_bytes_each_time(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")
    files = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        exported = export_sentence_transformer(encoder, tmp_path / str(seed), max_length=16)
        files.append((exported / "model.safetensors").read_bytes())
    assert files[0] == files[1]


def test_options_are_kept(tmp_path: Path) -> None:
    exported = export_sentence_transformer(
        write_encoder(tmp_path / "encoder"),
        tmp_path / "out",
        max_length=9,
        pooling="mean",
        normalize=True,
        similarity="cosine",
        prompts={"query": "ask "},
    )
    model = SentenceTransformer(str(exported))
    assert model.max_seq_length == 9
    assert model.similarity_fn_name == "cosine"
    assert model.prompts == {"query": "ask ", "document": ""}
    assert model[1].pooling_mode == "mean"
    np.testing.assert_allclose(np.linalg.norm(model.encode(TEXTS), axis=1), 1, atol=1e-6)
    assert model.tokenize(["a " * 40])["input_ids"].shape[1] == 9


def test_default_similarity_is_the_dot_product(tmp_path: Path) -> None:
    model = SentenceTransformer(str(write_retriever(tmp_path / "out")))
    vectors = model.encode(TEXTS)
    np.testing.assert_allclose(model.similarity(vectors, vectors).numpy(), vectors @ vectors.T, rtol=1e-5)


def test_loading_drops_the_pooler_that_would_be_saved_at_random(tmp_path: Path) -> None:
    retriever = load_retriever(write_retriever(tmp_path / "out"))
    retriever.save_pretrained(str(tmp_path / "again"))
    assert not [name for name in load_file(tmp_path / "again" / "model.safetensors") if "pooler" in name]


def test_the_same_export_is_done_and_another_is_refused_or_replaces(checkpoint: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", write_encoder(tmp_path / "encoder", seed=1)
    export_sentence_transformer(checkpoint, out, max_length=16)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.rglob("*") if path.is_file()}
    copy = shutil.copytree(checkpoint, tmp_path / "the same by another name")
    for same in (checkpoint, copy):
        assert export_sentence_transformer(same, out, max_length=16, prompts={"query": ""}) == out
    for source, options, message in (
        (other, {}, "another checkpoint"),
        (checkpoint, {"pooling": "mean"}, r"another pooling \(cls, now mean\)"),
        (checkpoint, {"normalize": True}, "another normalize"),
        (checkpoint, {"similarity": "cosine"}, "another similarity"),
        (checkpoint, {"prompts": {"query": "ask "}}, "another query"),
        (checkpoint, {"max_length": 17}, "another max_length"),
    ):
        with pytest.raises(InputError, match=f"was made from {message}.*--overwrite"):
            export_sentence_transformer(source, out, **{"max_length": 16, **options})
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.rglob("*") if path.is_file()}
    export_sentence_transformer(other, Output(out, overwrite=True), max_length=16, pooling="mean")
    assert SentenceTransformer(str(out))[1].pooling_mode == "mean"
    assert not out.with_name("out.partial").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_hf_dense_did_not_write_is_not_touched(overwrite: bool, tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")
    foreign = tmp_path / "foreign"
    SentenceTransformer(str(write_retriever(tmp_path / "retriever"))).save_pretrained(str(foreign))
    (foreign / "checkpoint-5").mkdir()
    (foreign / "checkpoint-5" / "optimizer.pt").write_text("days of work")
    before = sorted(foreign.rglob("*"))
    for place, message in ((foreign, "was not written by hf_dense"), (encoder, "the checkpoint, and would replace it")):
        with pytest.raises(InputError, match=message):
            export_sentence_transformer(encoder, Output(place, overwrite=overwrite), max_length=16)
    assert sorted(foreign.rglob("*")) == before
    assert (encoder / "model.safetensors").is_file()


def test_the_card_is_ours_and_true(checkpoint: Path, tmp_path: Path) -> None:
    again = shutil.copytree(checkpoint, tmp_path / "retromae")
    Manifest(
        "pre-training",
        COMPLETE,
        {"method": "retromae"},
        command="pretrain x",
        licence="mit",
        seed=3,
        facts={"steps": 7},
    ).save(again)
    out = Output(tmp_path / "out", command="hf-dense export x", licence="apache-2.0")
    export_sentence_transformer(again, out, max_length=16, pooling="mean")
    manifest, card = Manifest.load(out.path), ModelCard.load(out.path / "README.md")
    assert manifest.kind == "retriever"
    assert [step["command"] for step in manifest.facts["lineage"]] == ["pretrain x"]
    assert card.data.license == "apache-2.0"
    assert "retromae" in card.data.tags
    assert card.data.base_model is None
    for line in (
        f'SentenceTransformer("{out.path}")',
        "|  | pre-training | retriever |",
        f"| starts from | random weights | {again} |",
        "| steps of optimisation | 7 | - |",
        "| licence | mit | apache-2.0 |",
        "hf-dense export x",
        "pooling: mean",
        "at most 16 tokens",
    ):
        assert line in card.text
    export_sentence_transformer(checkpoint, tmp_path / "unknown", max_length=16)
    card = ModelCard.load(tmp_path / "unknown" / "README.md")
    assert f"How `{checkpoint}` was made is not recorded." in card.text
    assert "| method | retromae |" in card.text, "its configuration says so"


def without_tokenizer(directory: Path) -> Path:
    BertModel(tiny_config(), add_pooling_layer=False).save_pretrained(directory)
    return directory


def with_smaller_vocabulary(directory: Path) -> Path:
    BertModel(tiny_config(vocab_size=40), add_pooling_layer=False).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return directory


def without_cls(directory: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    without_tokenizer(directory)
    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(directory)
    return directory


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path, "There is no model directory"),
        (without_tokenizer, "There is no tokenizer"),
        (with_smaller_vocabulary, "has 57 tokens, its encoder only 40"),
        (without_cls, r"does not put \[CLS\] first"),
    ],
)
def test_bad_checkpoint_is_one_sentence_and_leaves_nothing(make: object, message: str, tmp_path: Path) -> None:
    checkpoint = make(tmp_path / "checkpoint")
    with pytest.raises(InputError, match=message):
        export_sentence_transformer(checkpoint, tmp_path / "out", max_length=16)
    assert not [path for path in tmp_path.iterdir() if path.name != "checkpoint"]


def test_saving_does_not_ask_the_hub_about_our_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *address, **options: asked.append(address))
    load_retriever(write_retriever(tmp_path / "out")).save_pretrained(str(tmp_path / "again"))
    assert asked == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 1}, "at least 2 tokens"),
        ({"max_length": 65}, "takes at most 64"),
        ({"max_length": 16, "pooling": "max"}, "cls, mean"),
        ({"max_length": 16, "similarity": "euclidean"}, "dot, cosine"),
        ({"max_length": 16, "prompts": {"passage": "x"}}, "query, document"),
    ],
)
def test_bad_option_is_named(options: dict, message: str, tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")
    with pytest.raises(InputError, match=message):
        export_sentence_transformer(encoder, tmp_path / "out", **options)


def test_the_tokenizer_is_the_checkpoints_own(checkpoint: Path, tmp_path: Path) -> None:
    exported = export_sentence_transformer(checkpoint, tmp_path / "out", max_length=32)
    tokenizer = BertTokenizer.from_pretrained(exported)
    assert tokenizer("abc")["input_ids"] == tiny_tokenizer()("abc")["input_ids"]
    assert tokenizer.unk_token_id not in tokenizer("abc")["input_ids"]


def test_what_is_not_saved_is_not_exported(tmp_path: Path) -> None:
    embedder = write_embedder(tmp_path / "embedder")
    change_json(embedder / "sentence_bert_config.json", do_lower_case=True)
    BertTokenizer(vocab=tiny_tokenizer().get_vocab(), do_lower_case=False).save_pretrained(embedder)
    with pytest.raises(InputError, match="makes its vectors by settings that Sentence-Transformers does not save"):
        export_sentence_transformer(embedder, tmp_path / "out")
    with pytest.raises(InputError, match="has do_lower_case True, which pre-training would lose"):
        embedder_settings(embedder)
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_that_lowers_by_itself_needs_no_setting(tmp_path: Path) -> None:
    embedder = write_embedder(tmp_path / "embedder")
    change_json(embedder / "sentence_bert_config.json", do_lower_case=True)
    BertTokenizer(vocab=tiny_tokenizer().get_vocab(), do_lower_case=True).save_pretrained(embedder)
    assert embedder_settings(embedder).pooling == "mean"
    export_sentence_transformer(embedder, tmp_path / "out")


def test_cls_is_where_it_is_pooled(tmp_path: Path) -> None:
    embedder = write_embedder(tmp_path / "embedder")
    without_cls(embedder)
    with pytest.raises(InputError, match=r"does not put \[CLS\] first; cls pooling needs it"):
        export_sentence_transformer(embedder, tmp_path / "out", pooling="cls")
    encoder = write_encoder(tmp_path / "encoder")
    change_json(encoder / "tokenizer_config.json", padding_side="left")
    model = load_retriever(export_sentence_transformer(encoder, tmp_path / "right", max_length=16))
    alone, beside = (model.encode_document(texts)[0] for texts in (["abc"], ["abc", "a longer text"]))
    np.testing.assert_allclose(alone, beside, atol=1e-5)
