"""Flat rows: the texts of a batch one after the other, without padding.

The only file of the model that knows how texts lie in tensors. All but attention reads one row for every real token;
attention reads groups of texts of similar length, each padded to its longest. Of a stack's last layer only those rows
are computed that somebody reads. What depends on lengths, `Places` and `Rows`, is made where the masks lie: of masks in
the host's memory, without waiting for a GPU (see `bottleneck_plan.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .bottleneck_attention import causal_window, near, open_blind_rows
from .bottleneck_backbones import Rotation
from .bottleneck_declaration import Decoder
from .bottleneck_precision import filled, single_dtype

_SIMILAR = 0.75  # a group's shortest text, as a share of its longest
_BLOCK = 128  # queries that see the same stretch of a long text, in a layer with a window


def join_views(views: list[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """What an encoder reads of several views, one below the other and padded to the longest.

    Returns:
        `input_ids`, `attention_mask`, and `token_type_ids` where a view has them.
    """
    names = ["input_ids", "attention_mask"]
    if any("token_type_ids" in view for view in views):
        names.append("token_type_ids")
    length = max(view["input_ids"].shape[1] for view in views)
    defaults = [{"attention_mask": tokens_of(view), "token_type_ids": view["input_ids"] * 0} for view in views]
    rows = [{**default, **view} for default, view in zip(defaults, views, strict=True)]
    return {name: torch.cat([F.pad(row[name], (0, length - row[name].shape[1])) for row in rows]) for name in names}


def tokens_of(view: Mapping[str, Tensor]) -> Tensor:
    """(batch, length) attention mask of a view; all ones where it has none."""
    return view.get("attention_mask", torch.ones_like(view["input_ids"]))


def counted(view: Mapping[str, Tensor]) -> Tensor:
    """(batch,) bool: the texts of a view that count, all where it does not say."""
    return view.get("counted", torch.ones_like(view["input_ids"][:, 0])).bool()


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
    single = single_dtype(hidden.dtype)
    if attention_mask is None:
        return hidden.mean(dim=1, dtype=single).to(hidden.dtype)
    tokens = attention_mask.bool()[:, :, None]
    total = hidden.masked_fill(~tokens, 0.0).sum(dim=1, dtype=single)
    return (total / tokens.sum(dim=1).clamp(min=1)).to(hidden.dtype)


class _TakeRows(torch.autograd.Function):
    """Rows at places of which none comes twice: backwards, each gradient goes to its place, and none is added up."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.count = len(rows)
        return rows.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        (gradient,) = gradients
        return gradient.new_zeros(ctx.count, *gradient.shape[1:]).index_copy_(0, places, gradient), None


def take_rows(rows: Tensor, places: Tensor) -> Tensor:
    """(n, ...) rows at (m,) places, of which none comes twice -> (m, ...)."""
    taken: Tensor = _TakeRows.apply(rows, places)  # type: ignore[no-untyped-call]
    return taken


class Group(NamedTuple):
    """Rows of texts of similar length, which attention reads padded.

    Args:
        start, stop: from which to which of the flat rows they are.
        texts: how many texts these are of.
        length: of the longest, in rows.
        places: (rows,) the place of each among the texts * length padded rows; None where nothing is padded.
    """

    start: int
    stop: int
    texts: int
    length: int
    places: Tensor | None

    def pad(self, flat: Tensor) -> Tensor:
        """(n, ...) flat rows -> (texts, length, ...) of this group, 0 at padding."""
        part = flat[self.start : self.stop]
        if self.places is not None:
            padded = part.new_zeros(self.texts * self.length, *part.shape[1:])
            part = padded.index_copy(0, self.places, part)
        padded_rows: Tensor = part.unflatten(0, (self.texts, self.length))
        return padded_rows

    def unpad(self, padded: Tensor) -> Tensor:
        """(texts, length, ...) -> the (rows, ...) that are no padding."""
        rows: Tensor = padded.flatten(0, 1)
        return rows if self.places is None else take_rows(rows, self.places)


class Rows(NamedTuple):
    """Some of a layout's rows: those of a stack's last layer that are read.

    Args:
        at: (n,) which, ascending.
        groups: of these rows, of the same texts as the layout's.
    """

    at: Tensor
    groups: Sequence[Group]


class Places(NamedTuple):
    """Where the tokens of a batch stand among the flat rows, longest text first.

    Args:
        order: (batch,) the texts, longest first.
        tokens: (batch,) how many tokens each text has.
        at: (rows,) the place of each row among the batch * length padded tokens.
        text: (rows,) the text of each row, by its number in the batch.
        positions: (rows,) its position in that text, from 0.
        where: (batch, length) the row of each token; at padding, -1.
        groups: texts of similar length.
    """

    order: Tensor
    tokens: Tensor
    at: Tensor
    text: Tensor
    positions: Tensor
    where: Tensor
    groups: Sequence[Group]

    @classmethod
    def of(cls, attention_mask: Tensor) -> Places:
        """Of a (batch, length) mask: 1 = token, 0 = padding, which comes after the tokens; no text is empty."""
        present = attention_mask.bool()
        tokens = present.sum(dim=1)
        order = tokens.argsort(descending=True, stable=True)
        batch, width = present.shape
        columns = torch.arange(width, device=present.device)
        at = (order[:, None] * width + columns)[columns < tokens[order, None]]
        unplaced = torch.full((batch * width,), -1, device=present.device)
        where = unplaced.index_copy(0, at, torch.arange(len(at), device=present.device)).view(batch, width)
        counts = tokens[order].tolist()
        groups = _groups([counts[start:stop] for start, stop in _similar(counts)], present.device)
        return cls(order, tokens, at, at // width, at % width, where, groups)

    def flatten(self, padded: Tensor) -> Tensor:
        """(batch, length, ...) -> (rows, ...), what stands at padding left out."""
        return padded.flatten(0, 1).index_select(0, self.at)

    def inner(self) -> Tensor:
        """(rows,) bool: the tokens of every text without its first and last, which are [CLS] and [SEP]."""
        return (self.positions > 0) & (self.positions < self.tokens[self.text] - 1)

    def counts(self, read: Tensor) -> list[int]:
        """How many rows of each text are True in (rows,) bool, longest text first."""
        ends = F.pad(read.cumsum(0), (1, 0))[F.pad(self.tokens[self.order].cumsum(0), (1, 0))].tolist()
        return [after - before for before, after in pairwise(ends)]

    def rows(self, read: Tensor) -> Rows:
        """The rows where (rows,) bool is True."""
        counts = iter(self.counts(read))
        groups = _groups([list(islice(counts, group.texts)) for group in self.groups], read.device)
        return Rows(read.nonzero().squeeze(1), groups)


class Blocks(NamedTuple):
    """What a layer with a window sees of long texts: blocks of queries, each of which sees the keys around it alone.

    What is computed and kept grows with the texts' length, not with its square.

    Args:
        window: how far a query sees to either side, in tokens.
        mask: (texts or 1, blocks, size, size + 2 * window) bool, True = may look; the keys of a block begin `window`
            before it.
    """

    window: int
    mask: Tensor

    @classmethod
    def of(cls, window: int, tokens: Tensor, length: int) -> Blocks:
        """Of texts that are padded to `length`; (texts or 1,) tokens of each, or of all."""
        at = torch.arange(-(-length // _BLOCK) * _BLOCK, device=tokens.device).view(-1, _BLOCK)
        seen = at[:, :1] - window + torch.arange(_BLOCK + 2 * window, device=tokens.device)
        there = (seen >= 0) & (seen < tokens[:, None, None])
        return cls(window, open_blind_rows(near(at, seen[:, None], window) & there[:, :, None]))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        """Attention of three (texts, heads, length, size) -> the same."""
        texts, _, length, _ = query.shape
        mask = self.mask.expand(texts, -1, -1, -1).flatten(0, 1)[:, None]
        parts = (self._cut(query, 0), self._cut(key, self.window), self._cut(value, self.window))
        mixed = F.scaled_dot_product_attention(*parts, attn_mask=mask, dropout_p=dropout)
        joined: Tensor = mixed.unflatten(0, (texts, -1)).transpose(1, 2).flatten(2, 3)
        return joined[:, :, :length]

    def _cut(self, rows: Tensor, around: int) -> Tensor:
        """(texts, heads, length, size) -> (texts * blocks, heads, a block's rows and so many around it, size)."""
        whole = self.mask.shape[1] * _BLOCK
        cut = F.pad(rows, (0, 0, around, around + whole - rows.shape[2])).unfold(2, _BLOCK + 2 * around, _BLOCK)
        return cut.permute(0, 2, 1, 4, 3).flatten(0, 1)


class LayerMask:
    """What the queries of a layer see, group by group.

    Args:
        queries: groups of the query rows.
        keys: the same texts' key rows.
        masks: for each group (texts or 1, heads or 1, queries or 1, keys) bool, True = may look, or what to add to
            scores, or blocks; None = everything.
        text: (queries,) the text of each query row.
        rotation: cosines and sines of rotary positions of queries and of keys; None where nothing rotates.
    """

    def __init__(
        self,
        queries: Sequence[Group],
        keys: Sequence[Group],
        masks: Sequence[Tensor | Blocks | None],
        text: Tensor,
        rotation: tuple[Rotation, Rotation] | None = None,
    ) -> None:
        self.queries = queries
        self.keys = keys
        self.masks = masks
        self.text = text
        self.rotation = rotation

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        """Scaled dot-product attention.

        Args:
            query: (queries or more, heads, size); of rows behind those of the groups nothing is read.
            key: (keys or more, heads, size).
            value: as `key`.
            dropout: of attention weights.

        Returns:
            As `query`, zeros behind the groups' rows.
        """
        parts = []
        for queries, keys, mask in zip(self.queries, self.keys, self.masks, strict=True):
            asking, asked, given = (  # (texts, heads, length, size)
                group.pad(rows).transpose(1, 2) for group, rows in ((queries, query), (keys, key), (keys, value))
            )
            if isinstance(mask, Blocks):
                mixed = mask.attend(asking, asked, given, dropout)
            else:
                seen = mask.to(query.dtype) if mask is not None and mask.dtype != torch.bool else mask
                mixed = F.scaled_dot_product_attention(asking, asked, given, attn_mask=seen, dropout_p=dropout)
            parts.append(queries.unpad(mixed.transpose(1, 2)))
        return torch.cat([*parts, torch.zeros_like(query[self.queries[-1].stop :])])


class FlatRows:
    """The tokens of a batch, longest text first, one row each.

    Args:
        view: `input_ids` (batch, length), `attention_mask` (batch, length; 1 = token, 0 = padding, which comes after
            the tokens; no text is empty), and for a decoder with sampled attention `visible` (batch, length, length;
            True = may look).
        places: where they stand, on the view's device; without them a GPU is waited for.

    Attributes:
        order, text, positions, where, groups: see `Places`.
        input_ids: (rows,).
    """

    def __init__(self, view: Mapping[str, Tensor], places: Places | None = None) -> None:
        self.places = Places.of(tokens_of(view)) if places is None else places
        self.order, self._tokens, _, self.text, self.positions, self.where, self.groups = self.places
        self.visible = view.get("visible")
        self.input_ids = self.flatten(view["input_ids"])

    @property
    def length(self) -> int:
        """Of the longest text, in tokens."""
        return self.groups[0].length

    def flatten(self, padded: Tensor) -> Tensor:
        """(batch, length, ...) -> (rows, ...), what stands at padding left out."""
        return self.places.flatten(padded)

    def inner(self) -> Tensor:
        """(rows,) bool: the tokens of every text without its first and last, which are [CLS] and [SEP]."""
        return self.places.inner()

    def means(self, hidden: Tensor) -> Tensor:
        """(rows, dim) states -> (batch, dim), the mean of every text, summed in float32 at least; see `pool`."""
        single = single_dtype(hidden.dtype)
        total = hidden.new_zeros(len(self.order), hidden.shape[1], dtype=single)
        total = total.index_add(0, self.text, hidden.to(single))
        return (total / self._tokens[:, None]).to(hidden.dtype)

    def replace_first(self, hidden: Tensor, vectors: Tensor) -> Tensor:
        """(rows, dim) states with the (batch, dim) `vectors` at the first position of every text."""
        return hidden.index_copy(0, self.where[:, 0], vectors.to(hidden.dtype))

    def mask(
        self,
        decoder: Decoder | None = None,
        window: int | None = None,
        read: Rows | None = None,
        bias: Tensor | None = None,
        rotation: Rotation | None = None,
    ) -> LayerMask:
        """What a layer sees.

        Args:
            decoder: whose kind of attention it has; None = full.
            window: how far it sees to either side, in tokens; None = everywhere.
            read: the rows that are its queries; all when absent.
            bias: (1, heads, length, length) what relative positions add to scores.
            rotation: cosines and sines (rows, size) of rotary positions.

        Raises:
            ValueError: the decoder samples its visibility and the view carries none.
        """
        queries = self.groups if read is None else read.groups
        masks: list[Tensor | Blocks | None] = []
        start = 0
        in_blocks = read is None and bias is None and (decoder is None or decoder.attention_kind == "full")
        for asking, keys in zip(queries, self.groups, strict=True):
            texts = self.order[start : start + keys.texts]
            start += keys.texts
            if window is not None and in_blocks and keys.length > 2 * (_BLOCK + window):
                padded = keys.places is not None
                masks.append(Blocks.of(window, self._tokens[texts if padded else texts[:1]], keys.length))
                continue
            at = self._columns(keys.length) if read is None else asking.pad(self.positions[read.at])
            seen = self._seen(texts, at, keys, decoder, window)
            masks.append(seen if bias is None else _biased(bias, at, keys.length, seen))
        text = self.text if read is None else self.text[read.at]
        if rotation is None:
            return LayerMask(queries, self.groups, masks, text)
        turned = rotation if read is None else (rotation[0][read.at], rotation[1][read.at])
        of_queries, of_keys = ((filled(cosines), filled(sines)) for cosines, sines in (turned, rotation))
        return LayerMask(queries, self.groups, masks, text, (of_queries, of_keys))

    def _seen(
        self, texts: Tensor, at: Tensor, keys: Group, decoder: Decoder | None, window: int | None
    ) -> Tensor | None:
        """(texts or 1, 1, queries or 1, keys) bool of texts whose queries stand `at` (texts or 1, queries)."""
        columns = self._columns(keys.length)[0]
        mask = None if keys.places is None else (columns < self._tokens[texts, None])[:, None]
        kind = "full" if decoder is None else decoder.attention_kind
        if kind == "full" and window is None:
            return None if mask is None else mask[:, None]
        mask = torch.ones_like(columns, dtype=torch.bool)[None, None] if mask is None else mask
        if decoder is not None and kind == "causal":
            mask = mask & causal_window(at, columns, int(decoder.attention_value) or keys.length)
        elif kind == "sampled":
            if self.visible is None:
                raise ValueError("This decoder samples what each position sees; its view needs a `visible` mask.")
            visible = self.visible[texts, :, : keys.length].bool()
            mask = mask & visible.gather(1, at[:, :, None].expand(len(visible), -1, keys.length))
        if window is not None:
            mask = mask & near(at, columns, window)
        return open_blind_rows(mask)[:, None]

    def _columns(self, length: int) -> Tensor:
        """(1, length) positions from 0."""
        return torch.arange(length, device=self.text.device)[None]


def _groups(counts: Sequence[Sequence[int]], device: torch.device) -> list[Group]:
    """Groups of texts by how many rows each of them has."""
    shapes, shifts, row = [], list[int](), 0
    for part in counts:
        longest, first = max(part), row
        for text, count in enumerate(part):
            shifts.append(text * longest - row)
            row += count
        shapes.append((first, row, len(part), longest, min(part) < longest))
    rows = torch.tensor([count for part in counts for count in part], device=device)
    shift = torch.tensor(shifts, device=device).repeat_interleave(rows, output_size=row)
    places = torch.arange(row, device=device) + shift  # of each row among the padded rows of its group
    return [
        Group(start, stop, texts, longest, places[start:stop] if uneven else None)
        for start, stop, texts, longest, uneven in shapes
    ]


def _similar(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Descending lengths cut into parts (from, to) of similar ones."""
    start = 0
    for at, length in enumerate(lengths):
        if length < _SIMILAR * lengths[start]:
            yield start, at
            start = at
    yield start, len(lengths)


def _biased(bias: Tensor, at: Tensor, keys: int, seen: Tensor | None) -> Tensor:
    """(1, heads, length, length) bias for queries `at` (texts or 1, queries): (texts or 1, heads, queries, keys)."""
    added = bias[0][:, at, :keys].transpose(0, 1)
    return added if seen is None else added.masked_fill(~seen, float("-inf"))
