"""Losses on vectors of queries and passages: pure functions.

Shapes: queries (B, D) and passages (B, N, D) of a process, N for each query, the positive first. A score is a dot
product (of unit vectors, where the similarity is cosine) times `scale`, the inverse temperature. The mean of the losses
of several processes is the loss of their joint batch, and so are the gradients.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from hf_dense.modeling.bottleneck_gather import gather_rows

CONTRASTS: Final[dict[str, str]] = {
    "in_batch": "softmax over all passages of the batch (DPR, coCondenser, CoT-MAE, RetroMAE)",
    "simlm_paper": "the same, its positive too set against all other passages (SimLM eq. 3)",
    "simlm": "the same, the positive and the query set against other positives and queries (SimLM's released code)",
    "own": "softmax over the query's own passages (with one negative: SEED's released code)",
    "hinge": "1 - positive + negative where above 0, over the query's own negatives (SEED's paper)",
}
DISTILLATIONS: Final[dict[str, str]] = {
    "none": "no teacher",
    "kl": "divergence of the softmax over a query's passages from the teacher's (SimLM, MASTER, RetroMAE, DupMAE)",
    "margin_mse": "squared difference of the margins between positive and negatives from the teacher's",
}


def cut_vectors(vectors: Tensor, dimensions: int | None, unit: bool) -> Tensor:
    """The first dimensions of vectors, all where None; of length 1 where `unit`.

    Args:
        vectors: (..., D).
        dimensions: how many are kept, D at most.
        unit: whether each vector is divided by its norm, after the cut.

    >>> cut_vectors(torch.tensor([3.0, 4.0, 12.0]), 2, unit=True)
    tensor([0.6000, 0.8000])
    """
    kept = vectors[..., :dimensions]
    return functional.normalize(kept, dim=-1) if unit else kept


def contrastive_loss(
    kind: str, queries: Tensor, passages: Tensor, scale: float = 1.0, relevant: Tensor | None = None
) -> Tensor:
    """How badly queries tell their positives from other passages: the loss named `kind` (see `CONTRASTS`).

    Args:
        relevant: which passages of the batch are no negatives of a query (see `relevant_passages`); None for its own
            positive alone. A query's own list has none of them beside the positive.

    Returns:
        The mean over the B queries.
    """
    if kind not in ("own", "hinge"):
        return in_batch_loss(queries, passages, scale, kind, relevant)
    scores = own_scores(queries, passages, scale)
    if kind == "hinge":
        return functional.relu(1 - scores[:, :1] + scores[:, 1:]).mean()
    return listwise_loss(scores)


def listwise_loss(scores: Tensor) -> Tensor:
    """Cross-entropy of the positive among its list.

    Args:
        scores: (B, N) raw logits, the positive first.

    Returns:
        The mean over the B lists.

    Source: SimLM section 3.3; MASTER's released code.

    >>> round(listwise_loss(torch.tensor([[1.0, 0.0]])).item(), 4)  # log(1 + 1/e)
    0.3133
    """
    return functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))


def in_batch_loss(
    queries: Tensor, passages: Tensor, scale: float = 1.0, kind: str = "in_batch", relevant: Tensor | None = None
) -> Tensor:
    """Cross-entropy of the positive among the passages of all queries, without others that are relevant.

    Source: DPR section 3.2. For `simlm_paper` (SimLM eq. 3) the logits of a query also hold the scores of its positive
    with all passages but itself; for `simlm` (its released code) those of its positive with the other queries, of
    itself with these, and of its positive with the other positives. A passage that is relevant for the query too, or
    a copy of its positive in another list, has no logit in any of these; nor has, for `simlm`, a query that shares a
    relevant passage.

    >>> round(in_batch_loss(torch.eye(2), torch.eye(2)[:, None]).item(), 4)  # log(1 + 1/e)
    0.3133
    """
    everything, start = gather_rows(passages)
    rows = torch.arange(start, start + len(queries), device=queries.device)
    flat, positives = everything.flatten(0, 1), passages[:, 0]
    target = rows * passages.shape[1]
    own = functional.one_hot(target, len(flat)).bool()
    spared = torch.zeros_like(own) if relevant is None else relevant & ~own
    logits = [(queries @ flat.T).masked_fill(spared, float("-inf"))]
    if kind == "simlm_paper":
        logits.append((positives @ flat.T).masked_fill(spared | own, float("-inf")))
    elif kind == "simlm":
        others, _ = gather_rows(queries)
        theirs = spared[:, :: passages.shape[1]]  # of the other positives
        mine = gather_rows(theirs)[0].T[rows]
        spared = theirs | mine | functional.one_hot(rows, len(others)).bool()
        blocks = positives @ others.T, queries @ others.T, positives @ everything[:, 0].T
        logits += [block.masked_fill(spared, float("-inf")) for block in blocks]
    return functional.cross_entropy(scale * torch.cat(logits, dim=1), target)


def relevant_passages(numbers: Tensor, relevant: Tensor) -> Tensor:
    """Which passages of all processes are relevant for each query of this one.

    Args:
        numbers: (B, N) of the passages, the same for copies and on all processes.
        relevant: (B, M) numbers of those that are relevant for a query; -1 where it has fewer.

    Returns:
        (B, passages of all processes) truth values.

    >>> relevant_passages(torch.tensor([[4, 7], [7, 5]]), torch.tensor([[4, -1], [7, 4]])).int().tolist()
    [[1, 0, 0, 0], [1, 1, 1, 0]]
    """
    everything = gather_rows(numbers)[0].flatten()
    found = torch.zeros(len(relevant), len(everything), dtype=torch.bool, device=numbers.device)
    for known in relevant.T:  # one comparison with all is M times as large
        found |= everything == known[:, None]
    return found


def distillation_loss(kind: str, scores: Tensor, teacher: Tensor) -> Tensor:
    """How far a query's scores are from the teacher's: the loss named `kind` (see `DISTILLATIONS`).

    Args:
        scores: (B, N), the positive first.
        teacher: (B, N) logits.

    Returns:
        The mean over the B queries. Source of `kl`: SimLM section 3.3 (no teacher temperature); RetroMAE's release
        divides by N too.

    >>> distillation_loss("kl", torch.tensor([[3.0, 1.0]]), torch.tensor([[2.0, 0.0]])).item()
    0.0
    """
    if kind == "margin_mse":
        margins, wanted = (values[:, :1] - values[:, 1:] for values in (scores, teacher))
        return functional.mse_loss(margins, wanted)
    found, wanted = (values.float().log_softmax(dim=1) for values in (scores, teacher))
    return functional.kl_div(found, wanted, reduction="batchmean", log_target=True)


def own_scores(queries: Tensor, passages: Tensor, scale: float = 1.0) -> Tensor:
    """(B, N) scores of every query with its own passages."""
    return scale * torch.einsum("bd,bnd->bn", queries, passages)


def keeping_loss(texts: Tensor, before: Tensor) -> Tensor:
    """How far the similarities between texts have moved: mean squared difference over their variance before.

    So its unit is the same for dot products and cosines; 1 is as far as similarities that are all alike.

    Args:
        texts: (R, D) vectors of a process's queries and passages.
        before: (R, E) vectors of the same texts by the model that training started from.

    Returns:
        The mean over the R texts and all others. Source: similarity-preserving distillation (Tung and Mori,
        1907.09682), here from a model's own past, and without their norms of rows.

    >>> keeping_loss(torch.eye(3), torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).item()  # variance 2 / 9
    1.5
    """
    (everything, start), (everything_before, _) = gather_rows(texts), gather_rows(before)
    others = ~torch.eye(len(everything), dtype=torch.bool, device=texts.device)
    all_before = (everything_before @ everything_before.T).float()
    spread = all_before[others].var(correction=0).clamp_min(torch.finfo(torch.float32).eps)
    own = slice(start, start + len(texts))
    moved = (texts @ everything.T).float() - all_before[own]
    return moved[others[own]].square().mean() / spread
