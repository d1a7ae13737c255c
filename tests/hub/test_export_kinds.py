"""Plain encoders and cross-encoders, and the verb `hf-dense export`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense
from tiny_backbones import BACKBONES
from tiny_retriever import (
    static_embeddings,
    tiny_config,
    tiny_tokenizer,
    write_checkpoint,
    write_cross_encoder,
    write_embedder,
    write_encoder,
    write_static,
    write_two_encoders,
)
from transformers import BertForSequenceClassification, BertModel

from hf_dense import DupMAEForPreTraining, InputError, RetroMAEForPreTraining
from hf_dense.commands.export import add_arguments, run
from hf_dense.hub.export import export_cross_encoder, export_encoder, export_sentence_transformer
from hf_dense.hub.hybrid import load_hybrid
from hf_dense.search.cross_encoder import load_reranker
from hf_dense.storage.output import Output

TEXTS = ["a b c", "some longer words here", "zz"]
PAIRS = [("a b", "c d e"), ("some words", "zz")]

WITHOUT_HF_DENSE = """
import json, sys
sys.modules["hf_dense"] = None
kind, path, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
if kind == "encoder":
    from transformers import AutoModel, AutoTokenizer
    batch = AutoTokenizer.from_pretrained(path)(texts, padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    found = AutoModel.from_pretrained(path, trust_remote_code=False)(**batch).last_hidden_state[:, 0].tolist()
else:
    from sentence_transformers import CrossEncoder
    found = CrossEncoder(path, trust_remote_code=False, device="cpu").predict([tuple(pair) for pair in texts]).tolist()
print("RESULT" + json.dumps(found))
"""


def elsewhere(kind: str, path: Path, texts: list[Any]) -> Any:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_HF_DENSE, kind, str(path), json.dumps(texts)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.split("RESULT")[1])


@pytest.mark.slow  # it starts a process of its own
@pytest.mark.parametrize("backbone", ["bert", "modernbert"])
def test_an_encoder_loads_without_hf_dense_with_equal_vectors(backbone: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint", backbone_config=BACKBONES[backbone](0.1))
    model = RetroMAEForPreTraining.from_pretrained(tmp_path / "checkpoint").eval()
    out = export_encoder(tmp_path / "checkpoint", tmp_path / "out")
    batch = dict(tiny_tokenizer()(TEXTS, padding=True, return_tensors="pt"))
    del batch["token_type_ids"]
    with torch.no_grad():
        expected = model.encoder(**batch).pooler_output
    np.testing.assert_allclose(elsewhere("encoder", out, TEXTS), expected, atol=1e-6)
    config = json.loads((out / "config.json").read_text())
    assert config["model_type"] == backbone
    assert "auto_map" not in config
    assert not [name for name in load_file(out / "model.safetensors") if "pooler" in name]
    assert not list(out.rglob("*.py"))


@pytest.mark.slow  # it starts a process of its own
def test_a_trained_reranker_gives_the_same_logits_without_hf_dense(tmp_path: Path) -> None:
    reranker = load_reranker(write_cross_encoder(tmp_path / "base"), max_length=32)
    reranker.save_pretrained(str(tmp_path / "trained"))
    out = export_cross_encoder(tmp_path / "trained", tmp_path / "out")
    scores = elsewhere("cross-encoder", out, PAIRS)
    np.testing.assert_allclose(scores, reranker.predict(PAIRS), atol=1e-6)
    with torch.no_grad():
        batch = tiny_tokenizer()(*map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="pt")
        logits = BertForSequenceClassification.from_pretrained(tmp_path / "base")(**batch).logits[:, 0]
    np.testing.assert_allclose(scores, logits, atol=1e-6)
    assert CrossEncoder(str(out)).max_seq_length == 32


def test_any_classifier_is_exported_and_its_length_can_be_cut(tmp_path: Path) -> None:
    base = write_cross_encoder(tmp_path / "base", labels=3)
    out = export_cross_encoder(base, tmp_path / "out", max_length=9)
    found = CrossEncoder(str(out), device="cpu")
    assert found.max_seq_length == 9
    np.testing.assert_allclose(found.predict(PAIRS[:1]), CrossEncoder(str(base), max_length=9).predict(PAIRS[:1]))
    assert found.predict(PAIRS).shape == (2, 3)


def without_tokenizer(directory: Path) -> Path:
    BertForSequenceClassification(tiny_config(num_labels=1)).save_pretrained(directory)
    return directory


@pytest.mark.parametrize("export", [export_encoder, export_cross_encoder])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path, "There is no model directory"),
        (without_tokenizer, "There is no tokenizer"),
        (lambda path: write_cross_encoder(path, vocab_size=40), "has 57 tokens, its encoder only 40"),
    ],
)
def test_bad_checkpoints_are_one_sentence_and_leave_nothing(
    export: Callable[..., Path], make: Callable[[Path], Path], message: str, tmp_path: Path
) -> None:
    checkpoint = make(tmp_path / "checkpoint")
    with pytest.raises(InputError, match=message):
        export(checkpoint, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_makes_vectors_beside_pooling_and_a_norm_is_said(tmp_path: Path) -> None:
    """Whoever pools an encoder's states by what its card says would lose the projection."""
    embedder = write_embedder(tmp_path / "embedder", Dense(32, 16))
    for exported in (
        export_encoder(embedder, tmp_path / "encoder"),
        export_sentence_transformer(embedder, tmp_path / "retriever"),
    ):
        card = (exported / "README.md").read_text()
        assert "Its modules, one after the other: Transformer, Pooling, Normalize, Dense." in card
    plain = export_encoder(write_embedder(tmp_path / "plain"), tmp_path / "out")
    assert "Its modules" not in (plain / "README.md").read_text()
    short = SentenceTransformer(str(embedder), truncate_dim=8)
    short.save_pretrained(str(tmp_path / "short"))
    card = (export_sentence_transformer(tmp_path / "short", tmp_path / "cut") / "README.md").read_text()
    assert "Dense. Its vectors are cut to their first 8 numbers." in card


def test_a_model_without_an_encoder_at_its_top_says_where_one_is(tmp_path: Path) -> None:
    static, two = write_static(tmp_path / "static"), write_two_encoders(tmp_path / "two", static_embeddings())
    with pytest.raises(InputError, match=r"static is a Sentence-Transformers model, and an encoder .* another model"):
        export_encoder(static, tmp_path / "out")
    with pytest.raises(InputError, match=r"name one of them, \S*/document_0_Transformer\.$"):
        export_encoder(two, tmp_path / "out")
    old = write_embedder(tmp_path / "old")
    inside = old / "0_Transformer"
    inside.mkdir()
    for file in [path for path in old.iterdir() if path.name in ("config.json", "model.safetensors")]:
        file.rename(inside / file.name)
    with pytest.raises(InputError, match=r"name that, \S*old/0_Transformer\.$"):
        export_encoder(old, tmp_path / "out")


def test_an_encoder_is_no_cross_encoder_and_lengths_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no head that scores pairs"):
        export_cross_encoder(write_encoder(tmp_path / "encoder"), tmp_path / "out")
    for length, message in ((65, "takes at most 64"), (1, "at least 2")):
        with pytest.raises(InputError, match=message):
            export_cross_encoder(write_cross_encoder(tmp_path / "base"), tmp_path / "out", max_length=length)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("export", [export_encoder, export_cross_encoder])
def test_nothing_foreign_is_replaced_and_the_same_is_done(export: Callable[..., Path], tmp_path: Path) -> None:
    base = write_cross_encoder(tmp_path / "base")
    before = (base / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match="the checkpoint, and would replace it"):
        export(base, Output(base, overwrite=True))
    with pytest.raises(InputError, match="was not written by hf_dense"):
        export(base, Output(write_cross_encoder(tmp_path / "other", labels=2), overwrite=True))
    assert (base / "model.safetensors").read_bytes() == before
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        assert export(base, tmp_path / "empty") == tmp_path / "empty"
    with pytest.raises(InputError, match="was made from another checkpoint"):
        export(tmp_path / "other", tmp_path / "empty")
    export(tmp_path / "other", Output(tmp_path / "empty", overwrite=True))
    card = ModelCard.load(tmp_path / "empty" / "README.md")
    assert f"| starts from | {tmp_path / 'other'} |" in card.text
    assert card.data.pipeline_tag == ("feature-extraction" if export is export_encoder else "text-ranking")


def test_another_length_of_a_cross_encoder_is_said(tmp_path: Path) -> None:
    base = write_cross_encoder(tmp_path / "base")
    export_cross_encoder(base, tmp_path / "out", max_length=9)
    with pytest.raises(InputError, match=r"another max_length \(9, now 64\)"):
        export_cross_encoder(base, tmp_path / "out")


def export(*words: str) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    run(parser.parse_args(words))


def test_every_kind_has_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "retromae")
    write_checkpoint(tmp_path / "dupmae", DupMAEForPreTraining)
    retromae, base = str(tmp_path / "retromae"), str(write_cross_encoder(tmp_path / "base"))
    out = {kind: str(tmp_path / kind) for kind in ("retriever", "encoder", "cross-encoder", "hybrid", "onnx")}
    export(
        *(retromae, "--out", out["retriever"], "--max_length", "12", "--pooling", "mean", "--normalize"),
        *("--similarity", "cosine", "--query_prompt", "a b "),
    )
    export(retromae, "--out", out["encoder"], "--kind", "encoder")
    export(base, "--out", out["cross-encoder"], "--kind", "cross-encoder", "--max_length", "14")
    export(
        *(str(tmp_path / "dupmae"), "--out", out["hybrid"], "--kind", "hybrid", "--max_length", "16"),
        *("--dense", "5", "--sparse", "7"),
    )
    monkeypatch.setattr("hf_dense.hub.onnx.export_onnx", lambda checkpoint, out: out.path)  # has tests of its own
    export(out["retriever"], "--out", out["onnx"], "--kind", "onnx")
    model = SentenceTransformer(out["retriever"])
    assert (model.max_seq_length, model.similarity_fn_name, model[1].pooling_mode) == (12, "cosine", "mean")
    assert model.prompts == {"query": "a b ", "document": ""}
    np.testing.assert_allclose(np.linalg.norm(model.encode(TEXTS), axis=1), 1, atol=1e-6)
    assert BertModel.from_pretrained(out["encoder"]).config.hidden_size == 32
    assert CrossEncoder(out["cross-encoder"]).max_seq_length == 14
    head = load_hybrid(out["hybrid"])[1]
    assert (head.dense, head.sparse) == (5, 7)
    export(base, "--out", out["cross-encoder"], "--kind", "cross-encoder", "--max_length", "14")
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"{out['cross-encoder']} is there already"
    assert [line for line in printed if line.startswith("exported to")] == [
        f"exported to {path}" for path in out.values()
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kind", "retriever"], "does not say how long its texts are; name it: hf-dense export --max_length N"),
        (["--kind", "hybrid", "--dense", "5"], "--kind hybrid needs --max_length"),
        (["--kind", "encoder", "--normalize"], "--normalize does not belong to --kind encoder"),
        (["--kind", "onnx", "--max_length", "9"], "--max_length does not belong to --kind onnx"),
        (["--max_length", "9", "--sparse", "9"], "--sparse does not belong to --kind retriever"),
    ],
)
def test_options_of_another_kind_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        export(str(write_encoder(tmp_path / "encoder")), "--out", str(tmp_path / "out"), *words)
    assert not (tmp_path / "out").exists()


PUSH = """
import argparse, json, sys
from hf_dense.commands.export import add_arguments, run
parser = argparse.ArgumentParser()
add_arguments(parser)
run(parser.parse_args([sys.argv[1], "--out", "out", "--kind", "hybrid", "--max_length", "16", "--dense", "5",
                              "--sparse", "7", "--push_to_hub", "someone/hybrid"]))
from hf_dense.hub.hybrid import load_hybrid
from hf_dense.hub.publish import publish
from pathlib import Path
Path("out", "secret.txt").write_text("not ours")
publish("out", "someone/hybrid")
print(json.dumps(load_hybrid("out").encode_document(["a b c"]).tolist()))
"""

LOAD = """
import json, sys
sys.modules["hf_dense"] = None
from huggingface_hub import ModelCard, list_repo_files
from sentence_transformers import SentenceTransformer
model = SentenceTransformer("someone/hybrid", trust_remote_code=True)
vectors = model.encode_document(["a b c"]).tolist()
print(json.dumps([vectors, ModelCard.load("someone/hybrid").text, list_repo_files("someone/hybrid")]))
"""


@pytest.mark.slow
def test_what_is_pushed_loads_from_the_hub(hub_client: Callable[..., Any], tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "dupmae", DupMAEForPreTraining)
    expected = hub_client(PUSH, str(tmp_path / "dupmae"))
    vectors, card, files = hub_client(LOAD)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert 'SentenceTransformer("someone/hybrid", trust_remote_code=True)' in card
    assert "hf_dense.json" in files
    assert "secret.txt" not in files
