"""Rows of token ids -> the views of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hf_dense.modeling.bottleneck_losses import IGNORED
from hf_dense.modeling.bottleneck_plan import Plan
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig, View, parse_source
from hf_dense.pretraining.keywords import Keywords
from hf_dense.pretraining.masking import (
    Bits,
    Bools,
    Ints,
    draw_keywords,
    draw_tokens,
    fill_hidden,
    fractions,
    noise,
    noise_at,
    row_keys,
    sampled_visibility,
    word_index,
)
from hf_dense.pretraining.vocabulary import Vocabulary

Text = NDArray[np.int32]
Views = dict[str, dict[str, Tensor]]
Row = Mapping[str, Any]  # by column: a `Text`, or several (generated queries)


class _Padded(NamedTuple):
    """Texts of a batch, all (rows, length): token ids, which are no padding, which may be hidden, and `word_index`."""

    ids: Ints
    present: Bools
    maskable: Bools
    word: Ints


@dataclass
class _Batch:
    """The rows of a batch, their keys, and what has been made of them so far, for the views to share.

    Args:
        windows: by source, the texts read.
        padded: by the sources of a view.
        hidden: by view, what it hides (rows, length).
    """

    rows: Sequence[Row]
    keys: Bits
    windows: dict[str, list[Text]] = field(default_factory=dict)
    padded: dict[tuple[str, ...], _Padded] = field(default_factory=dict)
    hidden: dict[str, Bools] = field(default_factory=dict)


class ViewCollator:
    """Render every view that a method's encoders and decoders read.

    Rows hold token ids without special tokens, one array (or a list of arrays) per source column; the collator draws
    and crops them, adds [CLS] and [SEP], pads, hides and labels. What a row looks like depends on the row, the seed and
    the epoch alone.

    Args:
        config: the method's declaration.
        vocabulary: the tokenizer's special tokens and word pieces.
        max_length: longest text in tokens, special tokens included.
        seed: seed of all draws.
        keywords: word counts of the corpus, for views that hide keywords.

    Attributes:
        epoch: number of the epoch; a row is masked anew in each. Set by the trainer.
        chunk: texts that are read at once; None = all. Set by the trainer.

    Raises:
        ValueError: a view hides keywords and there are no `keywords`.
    """

    def __init__(
        self,
        config: BottleneckConfig,
        vocabulary: Vocabulary,
        max_length: int,
        seed: int,
        keywords: Keywords | None = None,
    ) -> None:
        self.config = config
        self.views = config.views
        self.decoders = config.decoder_specs
        self.crop = config.crop
        self.vocabulary = vocabulary
        self.max_length = max_length
        self.seed = seed
        self.keywords = keywords
        self.epoch = 0
        self.chunk: int | None = None
        if keywords is None and config.needs_keywords:
            raise ValueError("A view of this method hides keywords; give the word counts of the corpus (Keywords.of).")

    def __call__(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Collate.

        Args:
            rows: for every source column of the method, an array of token ids, or several.

        Returns:
            `{"views": {name: view}, "plan": plan}`: one view per encoder, and per decoder that does not read its
            encoder's, and their `Plan`, made here so that no device is waited for; of a batch that is read in chunks
            `chunks`, their plans, in place of `plan`. A view has `input_ids`, `attention_mask`, `labels` (batch,
            length), and where its declaration asks for them `visible` (batch, length, length), `uniform` and
            `token_type_ids` (batch, length). A view of several sources has their rows interleaved.
        """
        batch = _Batch(rows, row_keys([row["text"] for row in rows], self.seed, self.epoch))
        return self.planned({name: self._render(name, view, batch) for name, view in self.views.items()})

    def planned(self, views: Views) -> dict[str, Any]:
        """Views with the plan of them, or the plans of their chunks; see `__call__`."""
        if self.chunk is not None and size_of(views) > self.chunk:
            return {"views": views, "chunks": [Plan(self.config, chunk) for chunk in cut(views, self.chunk)]}
        return {"views": views, "plan": Plan(self.config, views)}

    def _render(self, name: str, view: View, batch: _Batch) -> dict[str, Tensor]:
        if view.sources not in batch.padded:
            batch.padded[view.sources] = self._pad([self._read(source, batch) for source in view.sources])
        ids, present, maskable, word = batch.padded[view.sources]
        # The draw differs between the sides of a row but not with the rows beside it.
        keys = np.stack([noise(batch.keys, f"{name}:{source}") for source in view.sources], axis=1).reshape(-1)
        decoder = self.decoders.get(name)
        if view.select == "none":
            hidden, shown = np.zeros_like(present), ids.copy()
        else:
            encoder = decoder.encoder if decoder else name
            hidden = self._select(view, ids, word, keys, batch.hidden.get(encoder), self.views[encoder].rate)
            bits = noise_at(keys, "fill", np.flatnonzero(hidden), ids.shape[1])
            shown = fill_hidden(ids, hidden, bits, view.fill, self.vocabulary.mask, self.vocabulary.size)
        batch.hidden[name] = hidden
        rendered = {
            "input_ids": torch.from_numpy(shown),
            "attention_mask": torch.from_numpy(present.astype(np.int64)),
            "labels": torch.from_numpy(_labels(view, ids, present, maskable, hidden)),
        }
        if view.fill == "generator" and view.select != "none":
            # It draws on the device; by these numbers, so that a row's draw is its own.
            uniform = np.full(ids.shape, -1.0, dtype=np.float32)
            uniform[hidden] = fractions(bits)
            rendered["uniform"] = torch.from_numpy(uniform)
        if decoder is not None and decoder.attention_kind == "sampled":
            visible = sampled_visibility(word, present, decoder.attention_value, keys, "visible")
            rendered["visible"] = torch.from_numpy(visible)
        if any("titled" in parse_source(source) for source in view.sources):
            rendered["token_type_ids"] = torch.from_numpy(_second_part(ids, present, self.vocabulary.last))
        return rendered

    def _select(
        self, view: View, ids: Ints, word: Ints, keys: Bits, by_encoder: Bools | None, encoder_rate: float
    ) -> Bools:
        """Which tokens a view hides (rows, length)."""
        if view.select.startswith("keywords"):
            assert self.keywords is not None
            weights = self.keywords.weigh(view.select, ids, word)
            return draw_keywords(word, weights, view.rate, noise(keys, "select", weights.shape[1]))
        if view.select == "complement":
            assert by_encoder is not None
            return (word >= 0) & ~by_encoder
        rate = view.rate if view.select == "random" else (view.rate - encoder_rate) / (1 - encoder_rate)
        drawn = draw_tokens(word, rate, noise(keys, "select"))
        return drawn if view.select == "random" or by_encoder is None else drawn | by_encoder

    def _read(self, source: str, batch: _Batch) -> list[Text]:
        """The text of each row that a source stands for; all views of a source read the same."""
        if source not in batch.windows:
            batch.windows[source] = self._draw(source, batch)
        return batch.windows[source]

    def _draw(self, source: str, batch: _Batch) -> list[Text]:
        """A column, what is derived from one, or of several by their weights; cropped to what fits."""
        rows, parts = batch.rows, parse_source(source)
        if len(parts) > 1:
            texts = [self._read(part, batch) for part in parts]
            shares = np.cumsum(list(parts.values()))
            picked = np.searchsorted(shares, fractions(noise(batch.keys, f"source:{source}")), "right")
            return [texts[min(at, len(parts) - 1)][row] for row, at in enumerate(picked.tolist())]
        (part,) = parts
        if part != source:  # it has a weight, alone
            return self._read(part, batch)
        if part in ("first_half", "second_half"):
            first = part == "first_half"
            windows = self._read("text", batch)
            return [text[: len(text) // 2] if first else text[len(text) // 2 :] for text in windows]
        end = np.array([self.vocabulary.last], dtype=np.int32)
        if part == "titled":
            whole = [_joined((row["title"], row["text"]), end) for row in rows]
        elif part == "query":
            lists = [row["queries"] for row in rows]
            picks = noise(batch.keys, "query") % np.array([len(queries) for queries in lists], dtype=np.uint64)
            whole = [queries[pick] for queries, pick in zip(lists, picks.tolist(), strict=True)]
        elif part == "queries":
            whole = [_joined(row["queries"], end) for row in rows]
        else:
            whole = [row[part] for row in rows]
        return self._window(whole, batch.keys, part)

    def _window(self, texts: list[Text], keys: Bits, source: str) -> list[Text]:
        """The part of each text that fits; all views of a source read the same part."""
        room = self.max_length - 2
        spare = np.array([len(text) for text in texts], dtype=np.int64) - room
        if spare.max() <= 0:
            return texts
        if self.crop == "head":
            return [text[:room] for text in texts]
        starts = noise(keys, f"crop:{source}") % (np.maximum(spare, 0) + 1).astype(np.uint64)
        return [text[at : at + room] for text, at in zip(texts, starts.tolist(), strict=True)]

    def _pad(self, sides: list[list[Text]]) -> _Padded:
        """[CLS] text [SEP] padding, the sides of each row one after the other."""
        texts = [np.asarray(text, np.int32) for sided in zip(*sides, strict=True) for text in sided]  # [] is of floats
        lengths = np.array([len(text) for text in texts])
        width = int(lengths.max()) + 2
        first, end = np.array([self.vocabulary.first]), np.full(width, self.vocabulary.pad)
        end[0] = self.vocabulary.last
        pieces = [piece for text in texts for piece in (first, text, end[: width - 1 - len(text)])]
        ids = np.concatenate(pieces).reshape(len(texts), width)
        present = np.arange(width) <= lengths[:, None] + 1
        maskable = present & ~self.vocabulary.special[ids]
        return _Padded(ids, present, maskable, word_index(ids, maskable, self.vocabulary.continues))


def size_of(views: Views) -> int:
    """How many texts each view of a batch has."""
    return len(next(iter(views.values()))["labels"])


def cut(views: Views, size: int) -> list[Views]:
    """A batch as chunks of `size` texts."""
    return [
        {name: {key: tensor[at : at + size] for key, tensor in view.items()} for name, view in views.items()}
        for at in range(0, size_of(views), size)
    ]


def _joined(texts: Sequence[Text], end: Text) -> Text:
    """Texts one after the other, with [SEP] between; empty ones are passed over."""
    return np.concatenate([piece for text in texts if len(text) for piece in (end, text)][1:])


def _labels(view: View, ids: Ints, present: Bools, maskable: Bools, hidden: Bools) -> Ints:
    """(rows, length) token to predict at each position, `IGNORED` where none is scored."""
    if view.labels == "next":
        following = np.pad(ids[:, 1:], ((0, 0), (0, 1)))
        return np.where(np.pad(present[:, 1:], ((0, 0), (0, 1))), following, IGNORED)
    return np.where(hidden if view.labels == "hidden" else maskable, ids, IGNORED)


def _second_part(ids: Ints, present: Bools, separator: int) -> Ints:
    """(rows, length) 1 for what stands after the first separator inside a text, 0 before it and at padding."""
    separators = (ids == separator).astype(np.int64)
    return np.where(present & (separators.cumsum(axis=1) > separators), 1, 0)
