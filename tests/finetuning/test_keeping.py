"""The loss against forgetting: similarities stay near those of the model that training started from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from test_biencoder import arguments, killed_after, weights
from test_biencoder_lists import batch_of, lists, loss_of
from tiny_retriever import tiny_config, tiny_tokenizer, write_retriever
from torch import Tensor, distributed, multiprocessing
from transformers import BertModel

from hf_dense.errors import InputError
from hf_dense.finetuning.biencoder import ListLoss, finetune
from hf_dense.finetuning.losses import keeping_loss
from hf_dense.hub.export import export_sentence_transformer
from hf_dense.storage.checkpoints import load_history


@pytest.fixture(scope="module", params=["cosine", "dot"])
def retriever(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without dropout, which alone moves the vectors of so small a model far."""
    encoder = tmp_path_factory.mktemp("retriever") / "encoder"
    torch.manual_seed(0)
    still = tiny_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    BertModel(still, add_pooling_layer=False).save_pretrained(encoder)
    tiny_tokenizer().save_pretrained(encoder)
    out = encoder.with_name(request.param)
    return export_sentence_transformer(encoder, out, max_length=32, similarity=request.param)


def vectors(seed: int) -> Tensor:
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(seed)).double()


def similarities(texts: Tensor) -> list[float]:
    """Of every text to every other one."""
    return [float(texts[row] @ texts[at]) for row in range(6) for at in range(6) if at != row]


def test_the_loss_is_how_far_similarities_have_moved_beside_how_much_they_varied() -> None:
    texts, before = vectors(0), vectors(1)
    was = similarities(before)
    variance = sum((value - sum(was) / 30) ** 2 for value in was) / 30
    moved = sum((now - value) ** 2 for now, value in zip(similarities(texts), was, strict=True)) / 30
    assert keeping_loss(texts, before).item() == pytest.approx(moved / variance, rel=1e-5)
    assert keeping_loss(3 * texts, 3 * before).item() == pytest.approx(moved / variance, rel=1e-5), "in any unit"
    rotation = torch.linalg.qr(vectors(2)[:5])[0]
    assert keeping_loss(texts @ rotation, texts).item() == pytest.approx(0, abs=1e-9)
    assert keeping_loss(texts[:2], before[:2]).isfinite(), "of two texts one similarity, which does not vary"


def of_half(rank: int, directory: str) -> None:
    """What a process of two, with half the texts, finds."""
    distributed.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=2)
    texts, before = (vectors(seed).chunk(2)[rank].clone() for seed in (0, 1))
    loss = keeping_loss(texts.requires_grad_(), before)
    loss.backward()
    torch.save((loss.detach(), texts.grad), f"{directory}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_give_the_loss_and_gradients_of_one(tmp_path: Path) -> None:
    multiprocessing.spawn(of_half, (str(tmp_path),), nprocs=2)
    found, gradients = zip(*(torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)), strict=True)
    texts = vectors(0).requires_grad_()
    loss = keeping_loss(texts, vectors(1))
    loss.backward()
    assert texts.grad is not None
    assert torch.stack(found).mean().item() == pytest.approx(loss.item(), rel=1e-6)
    torch.testing.assert_close(torch.cat(gradients) / 2, texts.grad, rtol=1e-5, atol=1e-9)  # processes are averaged


def test_it_is_nothing_at_the_start_and_something_once_the_model_has_moved(retriever: Path, tmp_path: Path) -> None:
    model, made = SentenceTransformer(str(retriever)).eval(), lists(scored=True)
    options = {"distillation": "kl", "contrast_weight": 0.0, "temperature": 0.1}
    loss = ListLoss(model, arguments(tmp_path, keep_similarities=3.0, **options))
    batch = batch_of(model, made)
    features = [
        {key.removeprefix(name): value for key, value in batch.items() if key.startswith(name)}
        for name in ("query_", "passage_")
    ]
    found = loss(features, batch["label"])
    assert isinstance(found, dict)
    assert found.keys() == {"contrast_loss", "distillation_loss", "keeping_loss"}
    assert found["keeping_loss"].item() == pytest.approx(0, abs=1e-4)
    assert {id(part) for part in loss.parameters()} == {id(part) for part in model.parameters()}, "else it were trained"
    with torch.no_grad():
        for part in model.parameters():
            part.add_(0.1 * torch.randn_like(part))
    moved = loss(features, batch["label"])
    assert isinstance(moved, dict)
    assert moved["keeping_loss"].item() > 0.01


def test_chunks_give_the_gradients_of_the_whole_batch(retriever: Path, tmp_path: Path) -> None:
    gradients = []
    for chunk in (None, 4):
        model = SentenceTransformer(str(retriever)).eval()
        loss = ListLoss(model, arguments(tmp_path, keep_similarities=3.0, chunk=chunk))
        with torch.no_grad():
            for part in model.parameters():
                part.mul_(1.1)
        batch = batch_of(model, lists())
        features = [
            {key.removeprefix(name): value for key, value in batch.items() if key.startswith(name)}
            for name in ("query_", "passage_")
        ]
        torch.stack(list(loss(features).values())).sum().backward()
        gradients.append([part.grad.clone() for part in model.parameters() if part.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) > 0
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-5)


def test_a_model_trained_with_it_stays_nearer_to_its_start(retriever: Path, tmp_path: Path) -> None:
    made = lists()
    texts = [entry.query for entry in made.entries]

    def similarities(model: Path) -> Tensor:
        loaded = SentenceTransformer(str(model))
        vectors = loaded.encode(texts, convert_to_tensor=True, normalize_embeddings=True)
        return vectors @ vectors.T

    distances, start = {}, similarities(retriever)
    for weight in (0.0, 10.0):
        options: dict[str, Any] = {"temperature": 0.1, "keep_similarities": weight, "max_steps": 12}
        model = finetune(retriever, made, arguments(tmp_path / str(weight), **options))
        distances[weight] = (similarities(model) - start).square().mean().item()
    assert distances[10.0] < 0.5 * distances[0.0]
    assert all("keeping_loss" in row for row in load_history(tmp_path / "10.0") if "loss" in row)
    with pytest.raises(InputError, match=r"was made from another keep_similarities \(10.0, now 2.0\)"):
        finetune(retriever, made, arguments(tmp_path / "10.0", temperature=0.1, keep_similarities=2.0, max_steps=12))


def test_a_resumed_run_has_the_same_start(tmp_path: Path) -> None:
    retriever = write_retriever(tmp_path / "retriever", similarity="cosine")
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "keep_similarities": 1.0, "temperature": 0.1}
    whole = finetune(retriever, lists(), arguments(tmp_path / "whole", **options))
    with killed_after(3):
        finetune(retriever, lists(), arguments(tmp_path / "killed", **options))
    resumed = finetune(retriever, lists(), arguments(tmp_path / "killed", **options))
    expected, found = weights(whole), weights(resumed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_without_it_the_loss_is_as_it_was(retriever: Path, tmp_path: Path) -> None:
    model = SentenceTransformer(str(retriever)).eval()
    batch = batch_of(model, lists())
    assert ListLoss(model, arguments(tmp_path)).start == ()
    assert loss_of(model, batch, tmp_path, keep_similarities=0.0).item() == loss_of(model, batch, tmp_path).item()


def test_a_weight_below_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"keep_similarities is -1.0; it is a weight, 0 or more"):
        arguments(tmp_path, keep_similarities=-1.0)
