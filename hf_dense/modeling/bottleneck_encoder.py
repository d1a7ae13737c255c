"""A backbone's layers on flat rows: each is run as a decoder's `Block` that has the weights of that layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedConfig

from .bottleneck_backbones import Backbone, Family, has_token_types
from .bottleneck_declaration import Decoder
from .bottleneck_decoder import Block, Masks
from .bottleneck_layout import FlatRows, LayerMask, Rows, take_rows
from .bottleneck_precision import filled, unfilled


class LayerRunner:
    """Runs the layers of backbones of one configuration; it has no weights of its own.

    What transformers' own forward pass computes, with dropout where it has it, but for padding and for rows of the last
    layer that nobody reads. Hooks on a layer as a whole are not called, but for those of FSDP2, which put a layer's
    weights together for as long as it is run.
    """

    def __init__(self, family: Family, config: PreTrainedConfig) -> None:
        self.family = family
        self.kinds = family.attention_kinds(config, int(config.num_hidden_layers), copied=True)
        with torch.device("meta"):
            self.block = Block(family.shape(config), Decoder())
            self.first = Block(family.shape(config), Decoder())  # ModernBERT's has no norm before attention
        self.first.attention_norm = cast(nn.LayerNorm, nn.Identity())

    def run(
        self,
        backbone: Backbone,
        layout: FlatRows,
        types: Tensor | None = None,
        read: Rows | None = None,
        kept: Collection[int] = (),
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Embeddings and all layers, the last one at the rows that are read.

        Args:
            backbone: whose these are.
            layout: of the texts.
            types: (rows,) token types; for backbones that have them.
            read: rows of the last layer; all when absent.
            kept: numbers of inner layers (0 = embeddings) whose states are wanted.

        Returns:
            (read rows, dim) last states, after the norm that a pre-norm backbone ends with; (rows, dim) by number of
            the inner layer.
        """
        hidden = self.family.embed(backbone, layout.positions, layout.input_ids, types=types)
        masks = layer_masks(self.family, backbone, layout, hidden)
        count, hidden = len(hidden), filled(hidden)
        inner = {}
        layers = self.family.layers(backbone)
        for at, (layer, kind) in enumerate(zip(layers, self.kinds, strict=True)):
            if at in kept:
                inner[at] = unfilled(hidden, count)
            rows = read if at == len(layers) - 1 else None
            queries = hidden if rows is None else filled(take_rows(hidden, rows.at))
            hidden = self._layer(layer, queries, hidden, masks(kind, rows))
        hidden = unfilled(hidden, count if read is None else len(read.at))
        norm = self.family.final_norm(backbone)
        return hidden if norm is None else norm(hidden), inner

    def _layer(self, layer: nn.Module, queries: Tensor, memory: Tensor, mask: LayerMask) -> Tensor:
        """One layer's states of the queries (rows, dim)."""

        def compute(queries: Tensor, memory: Tensor) -> Tensor:
            weights = self.family.rename_layer(dict(layer.named_parameters()))
            block = self.block if "attention_norm.weight" in weights else self.first
            block.train(layer.training)
            states: Tensor = functional_call(block, weights, (queries, memory, mask))
            return states

        run = partial(_with_hooks, layer, compute) if is_sharded(layer) else compute
        if layer.training and getattr(layer, "gradient_checkpointing", False):
            recomputed: Tensor = checkpoint(run, queries, memory, use_reentrant=False)
            return recomputed
        return run(queries, memory)


def is_sharded(module: nn.Module) -> bool:
    """Whether FSDP2 has cut up the weights of a module (it is a `torch.distributed.fsdp.FSDPModule`, which not every
    build of torch has)."""
    return hasattr(module, "set_reshard_after_forward")


def _with_hooks(layer: nn.Module, compute: Callable[[Tensor, Tensor], Tensor], *states: Tensor) -> Tensor:
    """What `compute` gives of `states`, computed between the hooks of `layer`, which has its weights then."""
    layer.forward = compute
    try:
        computed: Tensor = nn.Module.__call__(layer, *states)
    finally:
        del layer.forward
    return computed


def token_types(config: PreTrainedConfig, view: Mapping[str, Tensor], layout: FlatRows) -> Tensor | None:
    """(rows,) token types of a view, where it has them and the backbone tells them apart."""
    types = view.get("token_type_ids") if has_token_types(config) else None
    return None if types is None else layout.flatten(types)


def layer_masks(
    family: Family, backbone: Backbone, layout: FlatRows, hidden: Tensor, decoder: Decoder | None = None
) -> Masks:
    """What layers see of a layout, with the backbone's windows and scheme of positions; each mask is made once.

    Args:
        hidden: (rows, dim) states, of whose type and device rotations and biases are.
        decoder: whose kind of attention the layers have; None = the backbone's own.
    """
    made: dict[tuple[str, bool], LayerMask] = {}

    def masks(kind: str, read: Rows | None) -> LayerMask:
        key = (kind, read is None)
        if key not in made:
            made[key] = layout.mask(
                decoder,
                family.window(backbone.config, kind),
                read,
                family.position_bias(backbone, hidden, layout.length),
                family.rotation(backbone, hidden, layout.positions, kind),
            )
        return made[key]

    return masks
