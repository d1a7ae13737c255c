"""Fine-tuning for vectors that can be cut: the loss is the mean over the whole vectors and those that are cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from manifests import manifest_of
from sentence_transformers import SentenceTransformer
from test_biencoder import arguments
from test_biencoder_lists import batch_of, lists, loss_of, relevant_of
from tiny_retriever import write_dataset, write_hybrid, write_retriever
from torch.nn import functional

from hf_dense.commands.main import main
from hf_dense.errors import InputError
from hf_dense.finetuning.biencoder import BiencoderTrainingArguments, finetune
from hf_dense.finetuning.losses import contrastive_loss, cut_vectors, distillation_loss
from hf_dense.finetuning.pipeline import Pipeline, run_pipeline

DIMENSIONS = [16, 4]  # of 32


@pytest.fixture(scope="module", params=["cosine", "dot"])
def retriever(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_retriever(tmp_path_factory.mktemp("retriever") / request.param, similarity=request.param)


@pytest.mark.parametrize("changes", [{}, {"distillation": "kl"}, {"contrast": "own", "distillation": "margin_mse"}])
def test_the_loss_is_the_mean_over_the_dimensions(retriever: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    model, made = SentenceTransformer(str(retriever)).eval(), lists(scored=True)
    found = loss_of(model, batch_of(model, made), tmp_path, matryoshka=DIMENSIONS, **changes)
    rows = [made.dataset()[row] for row in range(6)]
    queries = model.encode([row["query"] for row in rows], convert_to_tensor=True)
    passages = torch.stack([model.encode(row["passages"], convert_to_tensor=True) for row in rows])
    teacher, total = torch.tensor([row["label"] for row in rows]), 0.0
    for dimensions in (32, *DIMENSIONS):
        cut = [vectors[..., :dimensions] for vectors in (queries, passages)]
        if model.similarity_fn_name == "cosine":
            cut = [functional.normalize(vectors, dim=-1) for vectors in cut]
        loss = contrastive_loss(changes.get("contrast", "in_batch"), *cut, 10.0, relevant_of(made, rows=6))
        if "distillation" in changes:
            scores = 10 * torch.einsum("bd,bnd->bn", *cut)
            loss = 0.2 * loss + distillation_loss(changes["distillation"], scores, teacher)
        total += loss.item() / 3
    assert found.item() == pytest.approx(total, rel=1e-4)


def test_what_a_model_cuts_by_itself_is_not_trained(retriever: Path, tmp_path: Path) -> None:
    """Else a training is for vectors that nothing reads."""
    model = SentenceTransformer(str(retriever), truncate_dim=8).eval()
    whole = SentenceTransformer(str(retriever)).eval()
    batch, unit = batch_of(model, lists()), model.similarity_fn_name == "cosine"
    found = loss_of(model, batch, tmp_path, keep_similarities=0.5)
    rows = [lists().dataset()[row] for row in range(6)]
    queries = whole.encode([row["query"] for row in rows], convert_to_tensor=True)
    passages = torch.stack([whole.encode(row["passages"], convert_to_tensor=True) for row in rows])
    cut = [cut_vectors(vectors, 8, unit) for vectors in (queries, passages)]
    expected = contrastive_loss("in_batch", *cut, 10.0, relevant_of(lists(), rows=6))
    assert found.item() == pytest.approx(expected.item(), rel=1e-4), "similarities are as at the start, all are kept"


def test_the_gradient_is_the_mean_of_those_of_the_dimensions(retriever: Path, tmp_path: Path) -> None:
    """The first dimensions are pulled by every loss, the last by that of whole vectors alone."""
    model, gradients = SentenceTransformer(str(retriever)).eval(), {}
    made: list[torch.Tensor] = []

    def keep(_: object, __: object, features: dict[str, torch.Tensor]) -> None:
        made.append(features["sentence_embedding"])
        made[-1].retain_grad()

    model[1].register_forward_hook(keep)
    for name, dimensions in (("whole", None), ("both", [4])):
        made.clear()
        loss_of(model, batch_of(model, lists()), tmp_path, matryoshka=dimensions).backward()
        gradients[name] = torch.cat([vectors.grad for vectors in made if vectors.grad is not None])
    torch.testing.assert_close(gradients["both"][:, 4:], gradients["whole"][:, 4:] / 2)
    assert not torch.allclose(gradients["both"][:, :4], gradients["whole"][:, :4] / 2)
    assert next(model.parameters()).grad is not None


def test_chunks_give_the_gradients_of_the_whole_batch(retriever: Path, tmp_path: Path) -> None:
    gradients = []
    for chunk in (None, 4):
        model = SentenceTransformer(str(retriever)).eval()
        loss_of(model, batch_of(model, lists()), tmp_path, chunk=chunk, matryoshka=DIMENSIONS).backward()
        gradients.append([part.grad.clone() for part in model.parameters() if part.grad is not None])
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


def test_the_model_is_a_plain_one_and_says_its_dimensions(retriever: Path, tmp_path: Path) -> None:
    model = finetune(retriever, lists(), arguments(tmp_path / "run", matryoshka=DIMENSIONS, max_steps=2))
    assert SentenceTransformer(str(model), truncate_dim=4).encode("abc").shape == (4,)
    assert SentenceTransformer(str(model)).encode("abc").shape == (32,)
    manifest = manifest_of(model)
    assert manifest.made_from["matryoshka"] == DIMENSIONS
    assert manifest.facts["dimensions"] == [32, 16, 4]
    said = "Its vectors of 32 dimensions were also trained to be cut to the first 16, 4 (`truncate_dim`)."
    assert said in (model / "README.md").read_text()
    with pytest.raises(InputError, match="was made from another matryoshka"):
        finetune(retriever, lists(), arguments(tmp_path / "run", matryoshka=[16], max_steps=2))


@pytest.mark.parametrize(
    ("dimensions", "sentence"),
    [
        ([0], "0 dimensions were asked for, and the vectors of the model have 32; name fewer, but at least 1"),
        ([32], "32 dimensions were asked for"),
        ([8, 4, 8], "The dimensions 8, 4, 8 hold a number twice; give each once"),
        (["8"], r"matryoshka is \['8'\]; it is a list of whole numbers"),
    ],
)
def test_dimensions_that_are_none(retriever: Path, tmp_path: Path, dimensions: list[Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        finetune(retriever, lists(), arguments(tmp_path / "run", matryoshka=dimensions))
    assert not (tmp_path / "run").exists()


def test_hybrid_vectors_are_not_cut(tmp_path: Path) -> None:
    hybrid = write_hybrid(tmp_path, dense=8, sparse=4)
    with pytest.raises(InputError, match="Dimensions are cut from dense vectors, and the model makes none"):
        finetune(hybrid, lists(), arguments(tmp_path / "run", matryoshka=[4]))


def test_from_the_command_line(retriever: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = write_dataset(tmp_path / "data"), tmp_path / "out"
    words = ["finetune", "--model", str(retriever), "--collection", str(data), "--out", str(out), "--max_steps", "1"]
    words += ["--per_device_train_batch_size", "4", "--use_cpu", "true", "--matryoshka"]
    with pytest.raises(SystemExit, match="2"):
        main([*words, "16", "64"])
    assert "64 dimensions were asked for, and the vectors of the model have 32" in capsys.readouterr().err
    main([*words, "16", "4"])
    manifest = json.loads((out / "model" / "hf_dense.json").read_text())
    assert manifest["made_from"]["matryoshka"] == [16, 4]


def test_a_pipeline_checks_them_before_its_first_stage(retriever: Path, tmp_path: Path) -> None:
    section = {"matryoshka": [64], "per_device_train_batch_size": 4, "passages": 2, "max_steps": 1}
    given = {"collection": str(write_dataset(tmp_path / "data")), "model": str(retriever), "out": str(tmp_path / "run")}
    with pytest.raises(InputError, match="64 dimensions were asked for"):
        run_pipeline(Pipeline(**given, bm25={"depth": 9}, retriever1=section))
    assert not (tmp_path / "run").exists()


def test_without_dimensions_nothing_is_cut(tmp_path: Path) -> None:
    assert BiencoderTrainingArguments(output_dir=str(tmp_path)).matryoshka is None
