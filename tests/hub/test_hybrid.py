"""Hybrid vectors of exported models are DupMAE's, with hf_dense and without it, and fine-tuning trains them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer, SparseEncoder
from tiny_backbones import BACKBONES
from tiny_retriever import tiny_tokenizer, write_checkpoint, write_encoder, write_retriever
from torch import Tensor

from hf_dense import DupMAEConfig, DupMAEForPreTraining, InputError
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, ListLoss, finetune
from hf_dense.finetuning.lists import Entry, PassageLists
from hf_dense.hub.hybrid import export_hybrid, load_hybrid, save_hybrid
from hf_dense.storage.output import Output

QUERIES = ["b", "longer words"]
PASSAGES = ["a b c", "some longer words here", "zz"]
DENSE, SPARSE = 8, 6
OWN = {"encoder": {"bag": {"head": "own"}}}

LOAD_WITHOUT_HF_DENSE = """
import json, sys
sys.modules["hf_dense"] = None
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], trust_remote_code=True, device="cpu")
queries, passages = json.loads(sys.argv[2])
found = model.encode_query(queries), model.encode_document(passages)
model.save_pretrained(sys.argv[3])
again = SentenceTransformer(sys.argv[3], trust_remote_code=True, device="cpu")
assert (again.encode_document(passages) == found[1]).all()
print("RESULT" + json.dumps([vectors.tolist() for vectors in found]))
"""


def pretrained(directory: Path, backbone: str = "bert", **config: Any) -> Path:
    """A pre-training checkpoint with every bias random."""
    torch.manual_seed(0)
    model = DupMAEForPreTraining(DupMAEConfig(backbone_config=BACKBONES[backbone](0.1), **config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hybrid")
    return export_hybrid(pretrained(folder / "dupmae"), folder / "out", max_length=22, dense=DENSE, sparse=SPARSE)


@torch.no_grad()
def expected_vectors(model: SentenceTransformer, checkpoint: Path, texts: list[str]) -> tuple[Tensor, Tensor]:
    """Dense vectors and scores of all words, (texts, DENSE) and (texts, vocabulary), of the pre-trained parts."""
    source = DupMAEForPreTraining.from_pretrained(checkpoint).eval()
    batch = dict(tiny_tokenizer()(texts, padding=True, return_tensors="pt"))
    del batch["token_type_ids"]
    hidden = source.encoder(**batch).last_hidden_state
    if source.bag_heads:
        scores = source.bag_heads["encoder"](hidden)
    else:
        scores = source.head(hidden) @ source.get_input_embeddings().weight.T + source.head.bias
    lengths = batch["attention_mask"].sum(dim=1)
    words = [row[1:length].max(dim=0).values for row, length in zip(scores, lengths, strict=True)]
    return hidden[:, 0] @ model[1].projection.weight.cpu().T, torch.stack(words)


@pytest.mark.parametrize("encoders", [None, OWN], ids=["shared head", "own head"])
@pytest.mark.parametrize("backbone", [name for name in BACKBONES if name != "electra-small"])
def test_vectors_and_scores_are_those_of_the_pre_trained_parts(
    backbone: str, encoders: dict[str, Any] | None, tmp_path: Path
) -> None:
    checkpoint = pretrained(tmp_path / "dupmae", backbone, encoders=encoders)
    model = load_hybrid(export_hybrid(checkpoint, tmp_path / "out", max_length=22, dense=DENSE, sparse=SPARSE))
    model.to("cpu")
    asked, read = (expected_vectors(model, checkpoint, texts) for texts in (QUERIES, PASSAGES))
    queries, passages = model.encode_query(QUERIES), model.encode_document(PASSAGES)
    np.testing.assert_allclose(queries, torch.cat(asked, dim=1), rtol=1e-5, atol=1e-5)
    kept = read[1].topk(SPARSE)
    scores = asked[0] @ read[0].T + (asked[1][:, kept.indices] * kept.values).sum(-1)
    np.testing.assert_allclose(model.similarity(queries, passages), scores, rtol=1e-5)
    assert (np.count_nonzero(passages[:, DENSE:], axis=1) == SPARSE).all()


def test_the_dense_part_is_of_the_mean_where_that_is_the_bottleneck(tmp_path: Path) -> None:
    checkpoint = pretrained(tmp_path / "dupmae", bottleneck="mean")
    out = export_hybrid(checkpoint, tmp_path / "out", max_length=22, dense=DENSE, sparse=SPARSE)
    local = load_hybrid(out).to("cpu")
    remote = SentenceTransformer(str(out), trust_remote_code=True, device="cpu")
    batch = tiny_tokenizer()(PASSAGES, padding=True, return_tensors="pt")
    with torch.no_grad():
        encoder = DupMAEForPreTraining.from_pretrained(checkpoint).eval().encoder
        bottleneck = encoder(batch["input_ids"], batch["attention_mask"]).pooler_output
        expected = bottleneck @ local[1].projection.weight.T
    for model in (local, remote):
        np.testing.assert_allclose(model.encode_document(PASSAGES)[:, :DENSE], expected, rtol=1e-5, atol=1e-5)


def test_scores_are_equation_12_in_loops(exported: Path) -> None:
    model = load_hybrid(exported).to("cpu")
    checkpoint = exported.with_name("dupmae")
    (asked, asked_words), (read, read_words) = (expected_vectors(model, checkpoint, t) for t in (QUERIES, PASSAGES))
    scores = model.similarity(model.encode_query(QUERIES), model.encode_document(PASSAGES))
    for q in range(len(QUERIES)):
        for d in range(len(PASSAGES)):
            kept = read_words[d].argsort(descending=True)[:SPARSE]
            expected = sum(asked[q, i] * read[d, i] for i in range(DENSE))
            expected += sum(asked_words[q, token] * read_words[d, token] for token in kept)
            assert scores[q, d].item() == pytest.approx(expected.item(), rel=1e-5)


def test_documents_keep_their_best_words_and_padding_changes_nothing(exported: Path) -> None:
    model = load_hybrid(exported).to("cpu")
    _, words = expected_vectors(model, exported.with_name("dupmae"), PASSAGES)
    vectors = model.encode_document(PASSAGES)
    for row, best in zip(vectors[:, DENSE:], words.argsort(descending=True)[:, :SPARSE], strict=True):
        assert sorted(np.flatnonzero(row)) == sorted(best.tolist())
    alone = np.concatenate([model.encode_document([text]) for text in PASSAGES])
    np.testing.assert_allclose(alone, vectors, rtol=1e-5, atol=1e-6)


@pytest.mark.slow  # it starts a process of its own
def test_it_loads_and_is_saved_again_without_hf_dense(exported: Path, tmp_path: Path) -> None:
    model = load_hybrid(exported).to("cpu")
    run = subprocess.run(
        [
            *(sys.executable, "-c", LOAD_WITHOUT_HF_DENSE),
            *(str(exported), json.dumps([QUERIES, PASSAGES]), str(tmp_path / "again")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    queries, passages = json.loads(run.stdout.split("RESULT")[1])
    np.testing.assert_allclose(queries, model.encode_query(QUERIES), atol=1e-6)
    np.testing.assert_allclose(passages, model.encode_document(PASSAGES), atol=1e-6)
    np.testing.assert_array_equal(load_hybrid(tmp_path / "again").encode_query(QUERIES), model.encode_query(QUERIES))


def test_its_modules_make_a_sparse_encoder(exported: Path) -> None:
    model = load_hybrid(exported).to("cpu")
    sparse = SparseEncoder(modules=[*model], device="cpu")
    vectors = sparse.encode_document(PASSAGES)
    assert vectors.is_sparse
    np.testing.assert_array_equal(vectors.to_dense(), model.encode_document(PASSAGES))


def test_settings_come_back(exported: Path) -> None:
    model = load_hybrid(exported)
    assert model.max_seq_length == 22
    assert model.similarity_fn_name == "dot"
    assert model.get_embedding_dimension() == DENSE + 100
    assert model.encode_query(["a " * 60]).shape == (1, DENSE + 100)


def test_the_projection_is_new_and_said_to_be_and_follows_the_seed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint, weights = pretrained(tmp_path / "dupmae"), []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        with caplog.at_level(logging.WARNING):
            out = export_hybrid(checkpoint, tmp_path / name, max_length=22, sparse=SPARSE, seed=seed)
        assert "the projection of the bottleneck; fine-tuning trains it" in caplog.text
        weights.append(load_file(out / "1_HybridHead" / "model.safetensors")["projection.weight"])
        assert weights[-1].shape == (384, 32), "the paper's length"
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def arguments(path: Path, **changes: Any) -> BiencoderTrainingArguments:
    options = {"per_device_train_batch_size": 8, "learning_rate": 1e-3, "temperature": 20.0, "logging_steps": 1}
    return BiencoderTrainingArguments(
        output_dir=str(path), use_cpu=True, report_to="none", disable_tqdm=True, **{**options, **changes}
    )


def test_documents_are_sparse_in_training_and_every_part_gets_gradient(exported: Path, tmp_path: Path) -> None:
    model = load_hybrid(exported).to("cpu").train()
    batch = {"query": model.preprocess([*QUERIES, "z"]), "document": model.preprocess(PASSAGES)}
    vectors = model(batch["document"], task="document")["sentence_embedding"]
    assert vectors.requires_grad
    assert (vectors[:, DENSE:].count_nonzero(dim=1) == SPARSE).all()
    loss = ListLoss(model, arguments(tmp_path))([model.preprocess([*QUERIES, "z"]), model.preprocess(PASSAGES)])
    loss.backward()
    assert model[1].projection.weight.grad.abs().sum() > 0
    head = model[0].model.get_parameter("cls.predictions.transform.dense.weight")
    assert head.grad.abs().sum() > 0


def test_fine_tuning_lowers_the_loss_and_the_result_travels(exported: Path, tmp_path: Path) -> None:
    from datasets import Dataset
    from tiny_retriever import random_words

    words = random_words(16)
    corpus = Dataset.from_dict({"id": words, "title": [""] * 16, "text": [f"{word} {word}" for word in words]})
    entries = [Entry(word, word, (word,), tuple(other for other in words if other != word)) for word in words]
    lists = PassageLists(entries, corpus, 2, seed=0)
    model = load_hybrid(exported).to("cpu")
    before = model[1].projection.weight.detach().clone()
    trained = finetune(model, lists, arguments(tmp_path / "run", max_steps=60, learning_rate=2e-3))
    log = json.loads((tmp_path / "run" / "trainer_state.json").read_text())["log_history"]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    again = load_hybrid(trained).to("cpu")
    assert (again[1].projection.weight - before).abs().max() > 1e-3
    travels = save_hybrid(again, tmp_path / "travels")
    assert json.loads((travels / "modules.json").read_text())[1]["type"] == "hybrid_head.HybridHead"
    remote = SentenceTransformer(str(travels), trust_remote_code=True, device="cpu")
    np.testing.assert_allclose(remote.encode_document(words), again.encode_document(words), atol=1e-6)


def test_the_same_is_done_and_another_is_refused_or_replaces(exported: Path, tmp_path: Path) -> None:
    checkpoint, out = exported.with_name("dupmae"), tmp_path / "out"
    for _ in range(2):
        export_hybrid(checkpoint, out, max_length=22, sparse=SPARSE)
    for changes, message in (({"seed": 1}, "another seed"), ({"dense": 9}, "another dense"), ({"sparse": 7}, "sparse")):
        with pytest.raises(InputError, match=message):
            export_hybrid(checkpoint, out, **{"max_length": 22, "sparse": SPARSE, **changes})
    export_hybrid(checkpoint, Output(out, overwrite=True), max_length=22, sparse=7)
    assert load_hybrid(out)[1].sparse == 7
    retriever = write_retriever(tmp_path / "retriever")
    for place, message in ((checkpoint, "and would replace it"), (retriever, r"another kind of output \(retriever")):
        with pytest.raises(InputError, match=message):
            export_hybrid(checkpoint, Output(place, overwrite=True), max_length=22, sparse=SPARSE)


def test_the_card_says_that_the_projection_is_random(exported: Path) -> None:
    card = ModelCard.load(exported / "README.md")
    assert "dupmae" in card.data.tags
    assert "trust_remote_code=True" in card.text
    assert "The dense projection is random" in card.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sparse": 101}, "sparse is 101; it must be from 1 to 100"),
        ({"sparse": 0}, "sparse is 0"),
        ({"dense": -1}, "dense is -1"),
        ({"max_length": 1}, "at least 2 tokens"),
        ({"max_length": 25}, "takes at most 24"),
    ],
)
def test_bad_options_are_one_sentence_and_leave_nothing(
    options: dict[str, int], message: str, exported: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        export_hybrid(exported.with_name("dupmae"), tmp_path / "out", **{"max_length": 16, "sparse": SPARSE, **options})
    assert not list(tmp_path.iterdir())


def test_other_checkpoints_are_refused(exported: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "retromae")
    pretrained(tmp_path / "bare")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "bare" / file).unlink()
    for checkpoint, message in (
        (tmp_path / "retromae", "is a checkpoint of retromae; hybrid vectors need one of dupmae"),
        (write_encoder(tmp_path / "bert"), "is a checkpoint of bert"),
        (tmp_path / "bare", "Cannot load a tokenizer"),
        (tmp_path / "nowhere", "There is no model directory"),
    ):
        with pytest.raises(InputError, match=message):
            export_hybrid(checkpoint, tmp_path / "out", max_length=16)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="no model of hybrid vectors"):
        load_hybrid(tmp_path / "bert")
    with pytest.raises(InputError, match="There is no model directory"):
        load_hybrid(tmp_path / "nowhere")
    with pytest.raises(InputError, match="gives no hybrid vectors"):
        save_hybrid(SentenceTransformer(str(write_retriever(tmp_path / "retriever"))), tmp_path / "out")
