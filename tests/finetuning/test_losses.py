"""Every loss against a reference in loops; two processes give what one gives, gradients too."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, multiprocessing

from hf_dense.finetuning.losses import CONTRASTS, contrastive_loss, distillation_loss, relevant_passages

B, N, D, SCALE = 6, 3, 5, 2.5


def vectors(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, D, generator=generator).double(), torch.randn(B, N, D, generator=generator).double()


def dot(first: Tensor, second: Tensor) -> float:
    return SCALE * sum(float(a) * float(b) for a, b in zip(first, second, strict=True))


def softmax_loss(target: float, others: list[float]) -> float:
    return math.log(sum(math.exp(value) for value in [target, *others])) - target


PLACES = torch.tensor([[0, 10, 11], [1, 0, 12], [0, 13, 2], [3, 14, 15], [4, 3, 5], [6, 16, 17]])
RELEVANT = torch.tensor([[0, 2], [1, -1], [0, -1], [3, -1], [4, 5], [6, 3]])  # of which 5 is nobody's positive here


def reference(kind: str, queries: Tensor, passages: Tensor, judged: bool = False) -> float:
    """The loss of each query, written out; passages that are relevant for it are left out where they are told."""
    known = [set(row) if judged else set[int]() for row in RELEVANT.tolist()]
    losses = []
    for i in range(B):
        query, positive = queries[i], passages[i, 0]
        own = dot(query, positive)
        lists = [(j, n) for j in range(B) for n in range(N) if (j, n) != (i, 0) and int(PLACES[j, n]) not in known[i]]
        others = [dot(query, passages[j, n]) for j, n in lists]
        if kind == "simlm_paper":
            others += [dot(positive, passages[j, n]) for j, n in lists]
        if kind == "simlm":
            for j in range(B):
                if j != i and int(PLACES[j, 0]) not in known[i] and int(PLACES[i, 0]) not in known[j]:
                    others += [dot(positive, queries[j]), dot(query, queries[j]), dot(positive, passages[j, 0])]
        if kind in ("own", "hinge"):
            others = [dot(query, passages[i, n]) for n in range(1, N)]
        if kind == "hinge":
            losses.append(sum(max(0.0, 1 - own + other) for other in others) / len(others))
        else:
            losses.append(softmax_loss(own, others))
    return sum(losses) / B


@pytest.mark.parametrize("kind", CONTRASTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_contrastive_losses(kind: str, seed: int) -> None:
    queries, passages = vectors(seed)
    assert contrastive_loss(kind, queries, passages, SCALE).item() == pytest.approx(
        reference(kind, queries, passages), rel=1e-10
    )


@pytest.mark.parametrize("kind", [kind for kind in CONTRASTS if kind not in ("own", "hinge")])
def test_a_relevant_passage_of_another_list_is_no_negative(kind: str) -> None:
    queries, passages = vectors()
    relevant = relevant_passages(PLACES, RELEVANT)
    found = contrastive_loss(kind, queries, passages, SCALE, relevant).item()
    assert found == pytest.approx(reference(kind, queries, passages, judged=True), rel=1e-10)
    assert found < contrastive_loss(kind, queries, passages, SCALE).item()


@pytest.mark.parametrize("kind", CONTRASTS)
def test_where_no_passage_is_in_two_lists_nothing_changes(kind: str) -> None:
    both = []
    relevant = relevant_passages(torch.arange(B * N).view(B, N), N * torch.arange(B)[:, None])
    for told in (None, relevant):
        queries, passages = (part.float().requires_grad_() for part in vectors())
        loss = contrastive_loss(kind, queries, passages, SCALE, told)
        loss.backward()
        both.append((loss, queries.grad, passages.grad))
    assert all(torch.equal(first, second) for first, second in zip(*both, strict=True))


def test_simlm_counts_as_many_logits_as_its_release() -> None:
    """With all scores equal the loss is the logarithm of the number of logits: B N + 3 (B - 1)."""
    loss = contrastive_loss("simlm", torch.zeros(B, D), torch.zeros(B, N, D))
    assert loss.item() == pytest.approx(math.log(B * N + 3 * (B - 1)), rel=1e-6)


def test_kl_is_the_divergence_from_the_teacher() -> None:
    scores, teacher = torch.randn(4, 3).double(), torch.randn(4, 3).double()
    total = 0.0
    for row, wanted in zip(scores, teacher, strict=True):
        p, q = (torch.exp(values) / torch.exp(values).sum() for values in (wanted, row))
        total += sum(float(a) * math.log(float(a) / float(b)) for a, b in zip(p, q, strict=True))
    assert distillation_loss("kl", scores, teacher).item() == pytest.approx(total / 4, rel=1e-5)
    assert distillation_loss("kl", teacher, teacher).item() == pytest.approx(0, abs=1e-7)


def test_margin_mse() -> None:
    scores, teacher = torch.randn(4, 3).double(), torch.randn(4, 3).double()
    squares = [
        (float(scores[i, 0] - scores[i, n]) - float(teacher[i, 0] - teacher[i, n])) ** 2
        for i in range(4)
        for n in (1, 2)
    ]
    assert distillation_loss("margin_mse", scores, teacher).item() == pytest.approx(sum(squares) / 8, rel=1e-10)


def of_half(rank: int, directory: str) -> None:
    """What a process of two, with half the batch, finds."""
    distributed.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=2)
    found = {}
    for kind in CONTRASTS:
        queries, passages = (part.chunk(2)[rank].clone().requires_grad_() for part in vectors())
        relevant = relevant_passages(PLACES.chunk(2)[rank], RELEVANT.chunk(2)[rank][:, : 2 - rank])
        loss = contrastive_loss(kind, queries, passages, SCALE, relevant)
        loss.backward()
        found[kind] = loss.detach(), queries.grad, passages.grad
    torch.save(found, f"{directory}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_give_the_loss_and_gradients_of_one(tmp_path: Path) -> None:
    multiprocessing.spawn(of_half, (str(tmp_path),), nprocs=2)
    known = RELEVANT.clone()
    known[3:, 1] = -1  # the second process has one number of each query
    sides = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    for kind in CONTRASTS:
        queries, passages = (part.requires_grad_() for part in vectors())
        loss = contrastive_loss(kind, queries, passages, SCALE, relevant_passages(PLACES, known))
        loss.backward()
        found, *gradients = zip(*(side[kind] for side in sides), strict=True)
        assert torch.stack(found).mean().item() == pytest.approx(loss.item(), rel=1e-10), kind
        for whole, parts in zip((queries.grad, passages.grad), gradients, strict=True):
            assert whole is not None
            torch.testing.assert_close(torch.cat(parts) / 2, whole, rtol=1e-9, atol=1e-12)  # processes are averaged
