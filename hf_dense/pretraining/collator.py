"""Rows of token ids -> the views of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hf_dense.modeling.bottleneck_losses import IGNORED
from hf_dense.modeling.configuration_bottleneck import BottleneckConfig, View, parse_source
from hf_dense.pretraining.keywords import Keywords
from hf_dense.pretraining.masking import (
    Bits,
    Bools,
    Ints,
    draw_keywords,
    draw_words,
    fill_hidden,
    fractions,
    noise,
    row_keys,
    sampled_visibility,
    word_index,
)
from hf_dense.pretraining.vocabulary import Vocabulary

Text = NDArray[np.int32]
Row = Mapping[str, Any]  # by column: a `Text`, or several (generated queries)


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
        self.views = config.views
        self.decoders = config.decoder_specs
        self.crop = config.crop
        self.vocabulary = vocabulary
        self.max_length = max_length
        self.seed = seed
        self.keywords = keywords
        self.epoch = 0
        if keywords is None and config.needs_keywords:
            raise ValueError("A view of this method hides keywords; give the word counts of the corpus (Keywords.of).")

    def __call__(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Collate.

        Args:
            rows: for every source column of the method, an array of token ids, or several.

        Returns:
            `{"views": {name: view}}`, one view per encoder, and per decoder that does not read its encoder's. A view
            has `input_ids`, `attention_mask`, `labels` (batch, length), and where its declaration asks for them
            `visible` (batch, length, length), `uniform` and `token_type_ids` (batch, length). A view of several sources
            has their rows interleaved.
        """
        keys = row_keys([row["text"] for row in rows], self.seed, self.epoch)
        hidden: dict[str, Bools] = {}
        return {"views": {name: self._render(name, view, rows, keys, hidden) for name, view in self.views.items()}}

    def _render(
        self, name: str, view: View, rows: Sequence[Row], keys: Bits, hidden_of: dict[str, Bools]
    ) -> dict[str, Tensor]:
        texts = [self._read(source, rows, keys) for source in view.sources]
        ids, present = self._pad([text for group in zip(*texts, strict=True) for text in group])
        # The draw differs between the sides of a row but not with the rows beside it.
        keys = np.stack([noise(keys, f"{name}:{source}") for source in view.sources], axis=1).reshape(-1)
        maskable = present & ~self.vocabulary.special[ids]
        word = word_index(ids, maskable, self.vocabulary.continues)
        hidden, shown = np.zeros_like(present), ids
        more: dict[str, Tensor] = {}
        if view.select != "none":
            decoder = self.decoders.get(name)
            encoder = decoder.encoder if decoder else name
            hidden = self._select(view, ids, word, keys, hidden_of.get(encoder), self.views[encoder].rate)
            bits = noise(keys, "fill", ids.shape[1])
            shown = fill_hidden(ids, hidden, bits, view.fill, self.vocabulary.mask, self.vocabulary.size)
            if view.fill == "generator":  # it draws on the device; by these numbers, so that a row's draw is its own
                more["uniform"] = torch.from_numpy(np.where(hidden, fractions(bits), -1.0).astype(np.float32))
        hidden_of[name] = hidden
        batch = {
            "input_ids": torch.from_numpy(shown),
            "attention_mask": torch.from_numpy(present.astype(np.int64)),
            "labels": torch.from_numpy(_labels(view, ids, present, maskable, hidden)),
        }
        decoder = self.decoders.get(name)
        if decoder is not None and decoder.attention_kind == "sampled":
            visible = sampled_visibility(word, present, decoder.attention_value, keys, "visible")
            more["visible"] = torch.from_numpy(visible)
        if "titled" in view.sources:
            more["token_type_ids"] = torch.from_numpy(_second_part(ids, present, self.vocabulary.last))
        return batch | more

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
        drawn = draw_words(word, rate, noise(keys, "select", 1, ids.shape[1]))[:, 0]
        return drawn if view.select == "random" or by_encoder is None else drawn | by_encoder

    def _read(self, source: str, rows: Sequence[Row], keys: Bits) -> list[Text]:
        """The text of each row that a source stands for; all views of a source read the same."""
        parts = parse_source(source)
        texts = {part: self._part(part, rows, keys) for part in parts}
        if len(parts) == 1:
            return texts[source.partition(":")[0]]
        picked = np.searchsorted(np.cumsum(list(parts.values())), fractions(noise(keys, f"source:{source}")), "right")
        names = list(parts)
        return [texts[names[min(at, len(names) - 1)]][row] for row, at in enumerate(picked)]

    def _part(self, part: str, rows: Sequence[Row], keys: Bits) -> list[Text]:
        """A column, or what is derived from one, cropped to what fits."""
        if part in ("first_half", "second_half"):
            windows = self._window([row["text"] for row in rows], keys, "text")
            first = part == "first_half"
            return [text[: len(text) // 2] if first else text[len(text) // 2 :] for text in windows]
        if part == "titled":
            end = np.array([self.vocabulary.last], dtype=np.int32)
            return self._window([np.concatenate([row["title"], end, row["text"]]) for row in rows], keys, "titled")
        if part == "query":
            lists = [row["queries"] for row in rows]
            picks = noise(keys, "query") % np.array([len(queries) for queries in lists], dtype=np.uint64)
            drawn = [queries[int(pick)] for queries, pick in zip(lists, picks, strict=True)]
            return self._window(drawn, keys, "query")
        if part == "queries":
            end = np.array([self.vocabulary.last], dtype=np.int32)
            joined = [np.concatenate([piece for query in row["queries"] for piece in (end, query)][1:]) for row in rows]
            return self._window(joined, keys, "queries")
        return self._window([row[part] for row in rows], keys, part)

    def _window(self, texts: list[Text], keys: Bits, source: str) -> list[Text]:
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

    def _pad(self, texts: list[Text]) -> tuple[Ints, Bools]:
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


def _second_part(ids: Ints, present: Bools, separator: int) -> Ints:
    """(rows, length) 1 for what stands after the first separator inside a text, 0 before it and at padding."""
    separators = (ids == separator).astype(np.int64)
    return np.where(present & (separators.cumsum(axis=1) > separators), 1, 0)
