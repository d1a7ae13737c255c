"""Padding: how the texts of a batch lie in its tensors, and the vectors and attention masks that follow.

The only file of the model that knows about padding. The engine asks a layout for vectors of texts, masks and
positions; texts packed into one row can come in as a second layout with the same methods.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .bottleneck_attention import causal_window, near, open_blind_rows
from .bottleneck_declaration import Decoder


def join_views(views: list[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """What an encoder reads of several views, one below the other and padded to the longest.

    Returns:
        `input_ids`, `attention_mask`, and `token_type_ids` where a view has them.
    """
    names = ["input_ids", "attention_mask"]
    if any("token_type_ids" in view for view in views):
        names.append("token_type_ids")
    length = max(view["input_ids"].shape[1] for view in views)
    defaults = [{"attention_mask": PaddedRows(v).attention_mask, "token_type_ids": v["input_ids"] * 0} for v in views]
    rows = [{**default, **view} for default, view in zip(defaults, views, strict=True)]
    return {
        name: torch.cat([torch.nn.functional.pad(row[name], (0, length - row[name].shape[1])) for row in rows])
        for name in names
    }


def pool(hidden: Tensor, attention_mask: Tensor | None, bottleneck: str) -> Tensor:
    """The vector of every text, from its states.

    Args:
        hidden: (batch, length, dim) last hidden states.
        attention_mask: (batch, length), 1 = token, 0 = padding; None = no padding.
        bottleneck: `cls`, the state at the first position, or `mean`, the mean over all tokens, the first and last
            included: Sentence-Transformers' mean pooling. Sums are of float32 at least.

    Returns:
        (batch, dim), of the states' type.
    """
    if bottleneck == "cls":
        return hidden[:, 0]
    single = hidden.dtype if hidden.dtype == torch.float64 else torch.float32
    if attention_mask is None:
        return hidden.mean(dim=1, dtype=single).to(hidden.dtype)
    tokens = attention_mask.bool()[:, :, None]
    total = hidden.masked_fill(~tokens, 0.0).sum(dim=1, dtype=single)
    return (total / tokens.sum(dim=1).clamp(min=1)).to(hidden.dtype)


class PaddedRows:
    """One text per row, padded at the end.

    Args:
        view: `input_ids` (batch, length), `attention_mask` (batch, length; 1 = token, 0 = padding), and for a decoder
            with sampled attention `visible` (batch, length, length; True = may look). `counted` (batch,) is False for
            texts that are there only to fill a batch; all count when it is absent.
    """

    def __init__(self, view: Mapping[str, Tensor]) -> None:
        self.input_ids = view["input_ids"]
        self.attention_mask = view.get("attention_mask", torch.ones_like(self.input_ids))
        self.visible = view.get("visible")
        self.counted = view.get("counted", torch.ones_like(self.input_ids[:, 0])).bool()

    @property
    def length(self) -> int:
        """Length of the rows, in tokens, padding included."""
        return self.input_ids.shape[1]

    def pool(self, hidden: Tensor, bottleneck: str) -> Tensor:
        """(batch, length, dim) -> (batch, dim): the vector of every text, of the kind `bottleneck` (`cls`, `mean`)."""
        return pool(hidden, self.attention_mask, bottleneck)

    def replace_first(self, hidden: Tensor, vectors: Tensor) -> Tensor:
        """`hidden` (batch, length, dim) with `vectors` (batch, dim) at the first position of every text."""
        return torch.cat([vectors[:, None].to(hidden.dtype), hidden[:, 1:]], dim=1)

    def expand(self, vectors: Tensor) -> Tensor:
        """(batch, dim) -> (batch, length, dim): the vector of its text at every position."""
        return vectors[:, None].expand(-1, self.length, -1)

    def positions(self) -> Tensor:
        """(1, length) position of every token in its text, from 0."""
        return torch.arange(self.length, device=self.input_ids.device)[None]

    def inner(self) -> Tensor:
        """(batch, length) bool: the tokens of every text without its first and last, which are [CLS] and [SEP]."""
        mask = self.attention_mask.bool()
        inner = mask.clone()
        inner[:, 0] = False
        last = mask.sum(dim=1, keepdim=True) - 1
        return inner & (self.positions() != last)

    def visibility(self, decoder: Decoder, window: int | None = None) -> Tensor:
        """(batch, 1, length, length) bool mask for scaled dot-product attention, of the decoder's kind of attention.

        Args:
            decoder: the decoder.
            window: how far its layer sees to either side, in tokens; None = everywhere.

        Raises:
            ValueError: the decoder samples its visibility and the view carries none.
        """
        mask = self.attention_mask.bool()[:, None, :]
        if decoder.attention_kind == "causal":
            mask = mask & causal_window(self.length, int(decoder.attention_value) or self.length, mask.device)
        elif decoder.attention_kind == "sampled":
            if self.visible is None:
                raise ValueError("This decoder samples what each position sees; its view needs a `visible` mask.")
            mask = mask & self.visible.bool()
        if window is not None:
            mask = mask & near(self.length, window, mask.device)
        return open_blind_rows(mask)[:, None]
