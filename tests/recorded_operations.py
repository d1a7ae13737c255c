"""What a computation makes on its way, forward and backward: its largest tensor, its matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_)


class Operations(TorchDispatchMode):
    """Records the operations within its context.

    Args:
        largest: elements of the largest tensor that was made.
        shapes: of every tensor that was made.
        products: the two factors of every matrix product.
    """

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.shapes: list[tuple[int, ...]] = []
        self.products: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        self.shapes += [tuple(tensor.shape) for tensor in tensors]
        self.largest = max(
            self.largest, *(tensor.untyped_storage().nbytes() // tensor.itemsize for tensor in tensors), 0
        )
        if function.overloadpacket in _PRODUCTS:
            self.products.append(args[-2:])
        return made

    @property
    def precisions(self) -> set[torch.dtype]:
        """The types of the factors of matrix products."""
        return {factor.dtype for product in self.products for factor in product}
