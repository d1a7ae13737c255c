"""Rows of token ids -> the views of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hf_dense.modeling.bottleneck_losses import IGNORED
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig, Decoder, View
from hf_dense.pretraining.masking import (
    Bits,
    Bools,
    Ints,
    draw_words,
    fill_hidden,
    noise,
    row_keys,
    sampled_visibility,
    word_index,
)
from hf_dense.pretraining.vocabulary import Vocabulary

Row = Mapping[str, NDArray[np.int32]]


class ViewCollator:
    """Render every view that a method's encoders and decoders read.

    Rows hold token ids without special tokens, one array per source column; the collator crops them, adds [CLS] and
    [SEP], pads, hides and labels. What is hidden depends on the row, the seed and the epoch alone.

    Args:
        config: the method's declaration.
        vocabulary: the tokenizer's special tokens and word pieces.
        max_length: longest text in tokens, special tokens included.
        seed: seed of all draws.

    Attributes:
        epoch: visit of the corpus; a row is masked anew at each. Set by the trainer.
    """

    def __init__(self, config: BottleneckConfig, vocabulary: Vocabulary, max_length: int, seed: int) -> None:
        self.views = config.views
        self.decoders = config.decoder_specs
        self.crop = config.crop
        self.vocabulary = vocabulary
        self.max_length = max_length
        self.seed = seed
        self.epoch = 0

    def __call__(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Collate.

        Args:
            rows: for every source column of the method, an array of token ids.

        Returns:
            `{"views": {name: {"input_ids", "attention_mask", "labels" (batch, length)[, "visible" (batch, length,
            length)]}}}`, one view per encoder and decoder. A view of several sources has their rows interleaved.
        """
        keys = row_keys([row["text"] for row in rows], self.seed, self.epoch)
        return {"views": {name: self._render(name, view, rows, keys) for name, view in self.views.items()}}

    def _render(self, name: str, view: View, rows: Sequence[Row], keys: Bits) -> dict[str, Tensor]:
        texts = [self._window([row[source] for row in rows], keys, source) for source in view.sources]
        ids, present = self._pad([text for group in zip(*texts, strict=True) for text in group])
        sides = len(view.sources)
        # The draw differs between the sides of a row but not with the rows beside it.
        keys = np.stack([noise(keys, f"{name}:{source}") for source in view.sources], axis=1).reshape(-1)
        maskable = present & ~self.vocabulary.special[ids]
        word = word_index(ids, maskable, self.vocabulary.continues)
        hidden, shown = np.zeros_like(present), ids
        if view.select == "random":
            hidden = draw_words(word, view.rate, noise(keys, "select", 1, ids.shape[1]))[:, 0]
            bits = noise(keys, "fill", ids.shape[1])
            shown = fill_hidden(ids, hidden, bits, view.fill, self.vocabulary.mask, self.vocabulary.size)
        assert len(ids) == sides * len(rows)
        batch = {
            "input_ids": torch.from_numpy(shown),
            "attention_mask": torch.from_numpy(present.astype(np.int64)),
            "labels": torch.from_numpy(_labels(view, ids, present, maskable, hidden)),
        }
        decoder: Decoder | None = self.decoders.get(name)
        if decoder is not None and decoder.attention_kind == "sampled":
            visible = sampled_visibility(word, present, decoder.attention_value, keys, "visible")
            batch["visible"] = torch.from_numpy(visible)
        return batch

    def _window(self, texts: list[NDArray[np.int32]], keys: Bits, source: str) -> list[NDArray[np.int32]]:
        """The part of each text that fits; all views of a source read the same part."""
        room = self.max_length - 2
        if self.crop == "head":
            return [text[:room] for text in texts]
        starts = noise(keys, f"crop:{source}")
        spare = [max(len(text) - room, 0) for text in texts]
        return [
            text[(at := int(start) % (more + 1)) : at + room]
            for text, start, more in zip(texts, starts, spare, strict=True)
        ]

    def _pad(self, texts: list[NDArray[np.int32]]) -> tuple[Ints, Bools]:
        """[CLS] text [SEP] padding: ids and presence, both (rows, length)."""
        lengths = np.array([len(text) for text in texts])[:, None]
        column = np.arange(int(lengths.max()) + 2)[None]
        ids = np.full((len(texts), column.shape[1]), self.vocabulary.pad, dtype=np.int64)
        ids[(column >= 1) & (column <= lengths)] = np.concatenate(texts)
        ids[:, 0] = self.vocabulary.first
        ids[column == lengths + 1] = self.vocabulary.last
        return ids, column <= lengths + 1


def _labels(view: View, ids: Ints, present: Bools, maskable: Bools, hidden: Bools) -> Ints:
    """(rows, length) token to predict at each position, `IGNORED` where none is scored."""
    if view.labels == "next":
        following = np.pad(ids[:, 1:], ((0, 0), (0, 1)))
        return np.where(np.pad(present[:, 1:], ((0, 0), (0, 1))), following, IGNORED)
    return np.where(hidden if view.labels == "hidden" else maskable, ids, IGNORED)
