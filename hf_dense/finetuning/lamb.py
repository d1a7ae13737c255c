"""LAMB, with which SEED-Encoder was fine-tuned, for the trainers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch.optim import Optimizer

_OF_ADAM: Final = ("lr", "betas", "eps", "optimizer_dict")  # options that mean the same for both


def lamb(options: Mapping[str, Any]) -> tuple[type[Optimizer], dict[str, Any]]:
    """LAMB in the place of AdamW.

    Args:
        options: of AdamW, as a trainer has them: learning rate, betas, epsilon and groups of weights.

    Returns:
        The class, and its options.

    Source: You et al. 2020, arXiv:1904.00962, algorithm 2, with phi(z) = min(z, 10) and, as in the third version of the
    paper and in the scripts of ANCE, which SEED-Encoder's follow, without correction of the moments' bias.
    """
    from pytorch_optimizer import Lamb

    kept = {name: value for name, value in options.items() if name in _OF_ADAM}
    # The decay is inside of what the trust ratio scales; and the rate is not divided by the first moment's bias, which
    # would make it ten times as high at the first step.
    return Lamb, {**kept, "weight_decouple": False, "adam_debias": True}
