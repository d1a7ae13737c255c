"""Muon: an optimiser for the matrices of layers, with AdamW for all else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from hf_dense.modeling.modeling_bottleneck import BottleneckForPreTraining

_COEFFICIENTS: Final = (3.4445, -4.7750, 2.0315)  # of the polynomial of odd degree that brings singular values near 1
_ROUNDS: Final = 5
_MOMENTUM: Final = 0.95
_ADAMW: Final = 0.2  # root mean square of the entries of AdamW's updates, about


class Muon(AdamW):
    """AdamW, but in a parameter group with `muon`, of matrices alone, Muon.

    A matrix moves by its momentum with all singular values brought near 1, so that rare directions count as much as
    frequent ones, scaled so that rates and decay are of AdamW's size.

    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), the momentum Nesterov's;
    the scale of Liu et al., "Muon is scalable for LLM training" (arXiv 2502.16982, section 2.2). `torch.optim.Muon`
    with `match_rms_adamw` gives the same. It and pytorch_optimizer's multiply in bfloat16, many times more slowly on
    processors without it (benchmarks/muon.py); here they multiply in float32, all matrices of one shape together.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move all parameters that have gradients; those of matrices are dropped.

        Args:
            closure: computes the loss and the gradients anew.

        Returns:
            What the closure gives, None where there is none.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group.get("muon"):
                self._move(group)
        super().step()  # which passes over what has no gradient
        return loss

    def _move(self, group: dict[str, Any]) -> None:
        alike: defaultdict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for matrix in group["params"]:
            if matrix.grad is not None:
                alike[matrix.shape].append(matrix)
        for shape, matrices in alike.items():
            directions = orthogonalise(torch.stack([self._momentum(matrix) for matrix in matrices]))
            rate = group["lr"] * _ADAMW * max(shape) ** 0.5
            for matrix, direction in zip(matrices, directions, strict=True):
                matrix.mul_(1 - group["lr"] * group["weight_decay"]).sub_(rate * direction)
                matrix.grad = None

    def _momentum(self, matrix: nn.Parameter) -> Tensor:
        """Nesterov's: the gradient once more beside the mean of those so far."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if "momentum" not in state:
            state |= {"momentum": torch.zeros_like(matrix), "step": torch.zeros(())}
        state["step"] += 1  # AdamW asks every parameter for it when a state is loaded
        mean: Tensor = state["momentum"].lerp_(matrix.grad, 1 - _MOMENTUM)
        return matrix.grad.lerp(mean, _MOMENTUM)


def orthogonalise(matrices: Tensor) -> Tensor:
    """Bring all singular values near 1, between about 0.7 and 1.2, by five Newton-Schulz iterations.

    Args:
        matrices: (matrices, rows, columns).

    Returns:
        (matrices, rows, columns), computed in bfloat16 on GPUs, in float32 elsewhere. A matrix of zeros stays one.

    >>> values = torch.linalg.svdvals(orthogonalise(torch.tensor([[[3.0, 1.0], [0.0, 0.2]]])))
    >>> bool((values > 0.5).all() and (values < 1.3).all())
    True
    """
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonalise(matrices.mT).mT
    first, third, fifth = _COEFFICIENTS
    found = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    found = found / (torch.linalg.matrix_norm(found, keepdim=True) + 1e-7)
    for _ in range(_ROUNDS):
        squares = found @ found.mT
        found = torch.baddbmm(
            found, torch.baddbmm(squares, squares, squares, beta=third, alpha=fifth), found, beta=first
        )
    return found.to(matrices.dtype)


def matrices_of(model: BottleneckForPreTraining) -> list[nn.Parameter]:
    """The matrices that Muon is for: of linear layers in encoder and decoders, but those that give words or a score."""
    words = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    found: dict[int, nn.Parameter] = {}
    for part in model.modules():
        if isinstance(part, nn.Linear) and part.out_features not in (1, model.config.vocab_size):
            found[id(part.weight)] = cast(nn.Parameter, part.weight)
    return [weight for key, weight in found.items() if key not in words and weight.requires_grad]
