"""Views hold what the declaration of their method says, and the same thing whenever they are rendered."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from tiny_pretraining import METHODS, tiny_keywords, tiny_vocabulary, token_row, token_rows
from tiny_retriever import tiny_config
from torch import Tensor

from hf_dense.methods import get_method
from hf_dense.pretraining.collator import Row, ViewCollator

IGNORED = -100
VOCABULARY = tiny_vocabulary()
CLS, SEP, PAD = VOCABULARY.first, VOCABULARY.last, VOCABULARY.pad


def make_rows(count: int = 6, longest: int = 12, seed: int = 0) -> list[Row]:
    """Rows of random texts, neighbours, continuations and queries."""
    return token_rows(count, longest, seed)


def make_collator(method: str, max_length: int = 64, seed: int = 0, **config: Any) -> ViewCollator:
    """A collator of a method's own views."""
    return ViewCollator(
        get_method(method).config(backbone_config=tiny_config(), **config),
        VOCABULARY,
        max_length,
        seed,
        tiny_keywords(),
    )


def original(view: dict[str, Tensor], row: int) -> list[int]:
    """The text a row was rendered from: labels put back, special tokens and padding taken off."""
    ids, labels = view["input_ids"][row], view["labels"][row]
    size = int(view["attention_mask"][row].sum())
    return torch.where(labels == IGNORED, ids, labels)[1 : size - 1].tolist()


def framed(view: dict[str, Tensor], row: int, length: int) -> bool:
    """[CLS] text [SEP] padding, and the attention mask to it."""
    ids, size = view["input_ids"][row].tolist(), length + 2
    mask = view["attention_mask"][row].tolist()
    padding = len(ids) - size
    return (
        ids[0] == CLS and ids[size - 1] == SEP and ids[size:] == [PAD] * padding and mask == [1] * size + [0] * padding
    )


def same_batch(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Compare every tensor of two batches."""
    return all(
        torch.equal(tensor, second["views"][name][key])
        for name, view in first["views"].items()
        for key, tensor in view.items()
    )


def test_hidden_tokens_carry_the_labels_and_nothing_else_does() -> None:
    rows = make_rows()
    view = make_collator("retromae")(rows)["views"]["encoder"]
    for row, texts in enumerate(rows):
        text = texts["text"]
        assert framed(view, row, len(text))
        assert original(view, row) == text.tolist()
        scored = view["labels"][row] != IGNORED
        assert not scored[0]
        assert not scored[len(text) + 1 :].any()
        assert 0 < int(scored.sum()) <= max(1, round(0.3 * len(text)))


def test_a_passage_that_is_one_word_hides_tokens_up_to_the_budget() -> None:
    first, rest = np.flatnonzero(~VOCABULARY.continues & ~VOCABULARY.special)[0], np.flatnonzero(VOCABULARY.continues)
    text = np.array([first, *rest[:9]], dtype=np.int32)
    view = make_collator("retromae")([{"text": text}])["views"]["encoder"]
    assert int((view["labels"] != IGNORED).sum()) == 3
    assert original(view, 0) == text.tolist()


def test_a_text_without_tokens_is_read_though_its_array_is_of_floats() -> None:
    rows = [{"text": np.array([10, 11], np.int32)}, {"text": np.array([])}]
    view = make_collator("retromae")(rows)["views"]["decoder"]
    assert view["input_ids"].tolist() == [[CLS, 10, 11, SEP], [CLS, SEP, PAD, PAD]]


def test_a_text_without_a_title_is_read_alone() -> None:
    titled = {"view": {"sources": ["titled"]}}
    collate = make_collator("retromae", encoders={"encoder": titled}, decoders={"decoder": titled})
    text, title, none = np.array([10, 11], np.int32), np.array([12], np.int32), np.array([])
    view = collate([{"title": title, "text": text}, {"title": none, "text": text}])["views"]["decoder"]
    assert [original(view, row) for row in range(2)] == [[12, SEP, 10, 11], [10, 11]]
    assert view["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 1], [0] * 6]


def test_of_titles_that_are_drawn_among_others_the_texts_have_their_type_too() -> None:
    mixed = {"view": {"sources": ["titled+text"]}}
    collate = make_collator("retromae", encoders={"encoder": mixed}, decoders={"decoder": mixed})
    rows = [{"title": np.array([12], np.int32), "text": np.array([10, at], np.int32)} for at in range(13, 33)]
    view = collate(rows)["views"]["decoder"]
    with_title = [original(view, row)[0] == 12 for row in range(len(rows))]
    assert view["token_type_ids"].any(1).tolist() == with_title
    assert 0 < sum(with_title) < len(rows)


def test_retromae_decodes_every_token_of_the_unmasked_text() -> None:
    rows = make_rows()
    view = make_collator("retromae")(rows)["views"]["decoder"]
    width = view["input_ids"].shape[1]
    assert width == max(len(row["text"]) for row in rows) + 2
    assert view["visible"].shape == (len(rows), width, width)
    assert view["visible"].dtype is torch.bool
    for row, texts in enumerate(rows):
        text = texts["text"].tolist()
        rest = width - len(text) - 1
        assert view["input_ids"][row, : len(text) + 2].tolist() == [CLS, *text, SEP]
        assert view["labels"][row].tolist() == [IGNORED, *text, *[IGNORED] * rest]


def test_unknown_tokens_are_never_hidden_or_scored() -> None:
    unknown = int(np.flatnonzero(VOCABULARY.special)[1])
    text = np.array([10, unknown, 11, unknown, 12, 13], dtype=np.int32)
    views = make_collator("retromae")([{"text": text}])["views"]
    expected = [IGNORED, 10, IGNORED, 11, IGNORED, 12, 13, IGNORED]
    assert views["decoder"]["labels"][0].tolist() == expected
    assert views["encoder"]["input_ids"][0, [2, 4]].tolist() == [unknown, unknown]


def test_seed_predicts_the_token_after_every_position() -> None:
    rows = make_rows()
    view = make_collator("seed_encoder")(rows)["views"]["decoder"]
    width = view["input_ids"].shape[1]
    assert "visible" not in view
    for row, texts in enumerate(rows):
        text = texts["text"].tolist()
        assert view["input_ids"][row, : len(text) + 2].tolist() == [CLS, *text, SEP]
        # [CLS] predicts the first token, the last token predicts [SEP], and [SEP] predicts nothing.
        assert view["labels"][row].tolist() == [*text, SEP, *[IGNORED] * (width - len(text) - 1)]


def test_cotmae_swaps_text_and_neighbour_between_encoder_and_decoder() -> None:
    rows = make_rows()
    views = make_collator("cotmae")(rows)["views"]
    assert len(views["encoder"]["input_ids"]) == len(views["decoder"]["input_ids"]) == 2 * len(rows)
    for k, row in enumerate(rows):
        text, neighbour = row["text"].tolist(), row["neighbour"].tolist()
        assert original(views["encoder"], 2 * k) == original(views["decoder"], 2 * k + 1) == text
        assert original(views["encoder"], 2 * k + 1) == original(views["decoder"], 2 * k) == neighbour
        assert framed(views["encoder"], 2 * k, len(text))
        assert framed(views["decoder"], 2 * k, len(neighbour))


def test_cotmae_draws_each_side_and_each_view_on_its_own() -> None:
    text = token_row(random.Random(0), 20)
    views = make_collator("cotmae")([{"text": text, "neighbour": text}])["views"]
    hidden = [
        tuple((views[name]["labels"][side] != IGNORED).tolist()) for name in ("encoder", "decoder") for side in (0, 1)
    ]
    assert len(set(hidden)) == 4
    counts = [sum(row) for row in hidden]
    assert counts[:2] == [round(0.3 * len(text))] * 2
    assert counts[2:] == [round(0.45 * len(text))] * 2


def test_the_head_of_a_long_text_is_read() -> None:
    rows = make_rows(longest=30)
    views = make_collator("retromae", max_length=16)(rows)["views"]
    assert views["decoder"]["input_ids"].shape[1] == 16
    for row, texts in enumerate(rows):
        head = texts["text"][:14].tolist()
        assert original(views["encoder"], row) == head
        assert original(views["decoder"], row) == head


def test_a_random_window_is_shared_by_all_views_of_a_source_and_moves_with_the_epoch() -> None:
    text, neighbour = token_row(random.Random(1), 30), token_row(random.Random(2), 30)
    collator = make_collator("cotmae", max_length=16)
    starts = {"text": set(), "neighbour": set()}
    for epoch in range(60):
        collator.epoch = epoch
        views = collator([{"text": text, "neighbour": neighbour}])["views"]
        for name, whole, side in (("text", text, 0), ("neighbour", neighbour, 1)):
            window = original(views["encoder"], side)
            assert len(window) == 14
            assert window == original(views["decoder"], 1 - side)
            found = [at for at in range(len(whole) - 13) if whole[at : at + 14].tolist() == window]
            assert found, "the window is no part of the text"
            starts[name].add(found[0])
    assert len(starts["text"]) > 20
    assert 0 in starts["text"] | starts["neighbour"]
    assert starts["text"] != starts["neighbour"]


def test_a_text_that_fits_is_read_whole() -> None:
    text = token_row(random.Random(3), 5)
    views = make_collator("cotmae", max_length=len(text) + 2)([{"text": text, "neighbour": text[:4]}])["views"]
    assert original(views["encoder"], 0) == text.tolist()


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_a_function_of_seed_and_epoch(method: str) -> None:
    rows = make_rows()
    first, again, seed, epoch = (make_collator(method, seed=value) for value in (0, 0, 1, 0))
    epoch.epoch = 1
    batch = first(rows)
    assert same_batch(batch, first(rows))
    assert same_batch(batch, again(rows))
    assert not same_batch(batch, seed(rows))
    assert not same_batch(batch, epoch(rows))


@pytest.mark.parametrize("method", METHODS)
def test_a_row_is_rendered_the_same_alone_and_in_any_batch(method: str) -> None:
    rows = make_rows()
    collator = make_collator(method)
    together = collator(rows[::-1])["views"]
    for at, row in enumerate(rows[::-1]):
        for name, view in collator([row])["views"].items():
            sides = len(view["input_ids"])
            width = view["input_ids"].shape[1]
            for key in ("input_ids", "labels", "attention_mask"):
                assert torch.equal(together[name][key][at * sides : (at + 1) * sides, :width], view[key])
            if "visible" in view:
                present = view["attention_mask"][0].bool()
                assert torch.equal(together[name]["visible"][at, :width, :width][present], view["visible"][0][present])


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_goes_through_the_model(method: str) -> None:
    from tiny_pretraining import tiny_model

    batch = make_collator(method)(make_rows())
    output = tiny_model(method)(**batch)
    assert list(output.losses) == list(get_method(method).config().weights)
    assert torch.isfinite(output.loss)


def test_the_mask_fill_hides_with_mask_alone() -> None:
    collator = make_collator("retromae", encoders={"encoder": {"view": {"fill": "mask", "rate": 0.5}}})
    view = collator(make_rows())["views"]["encoder"]
    assert (view["input_ids"][view["labels"] != IGNORED] == VOCABULARY.mask).all()


def hidden_tokens(view: dict[str, Tensor]) -> Tensor:
    return view["labels"] != IGNORED


def test_a_complement_hides_exactly_the_other_tokens() -> None:
    views = make_collator("master")(make_rows())["views"]
    encoder, decoder = views["complement_encoder"], views["complement"]
    inner = encoder["attention_mask"].clone()
    inner[:, 0] = 0
    inner[torch.arange(len(inner)), inner.sum(dim=1)] = 0
    assert torch.equal(hidden_tokens(encoder) ^ hidden_tokens(decoder), inner.bool())
    assert not (hidden_tokens(encoder) & hidden_tokens(decoder)).any()


def test_a_superset_holds_what_the_encoder_hides_and_reaches_its_rate() -> None:
    changes = {"decoders": {"decoder": {"view": {"sources": ["text"], "select": "superset", "rate": 0.5}}}}
    views = make_collator("query_cotmae", **changes)(make_rows(300, longest=40))["views"]
    encoder, decoder = hidden_tokens(views["encoder"]), hidden_tokens(views["decoder"])
    assert (encoder <= decoder).all()
    tokens = views["encoder"]["attention_mask"].sum() - 2 * 300
    assert 0.45 < float(decoder.sum() / tokens) < 0.52


def test_halves_are_the_two_parts_of_what_is_read() -> None:
    rows = make_rows(longest=90)
    views = make_collator("master", max_length=32)(rows)["views"]
    for row in range(len(rows)):
        joined = original(views["half"], row) + original(views["neighbour"], row)
        assert joined == original(views["complement_encoder"], row)
        assert 0 <= len(original(views["neighbour"], row)) - len(original(views["half"], row)) <= 1


def test_one_query_is_drawn_in_every_epoch_and_all_are_in_the_end() -> None:
    collator, rows = make_collator("query_cotmae"), make_rows()
    seen: list[set[tuple[int, ...]]] = [set() for _ in rows]
    for epoch in range(40):
        collator.epoch = epoch
        view = collator(rows)["views"]["decoder"]
        for row, texts in enumerate(seen):
            texts.add(tuple(original(view, row)))
    for row, texts in zip(rows, seen, strict=True):
        assert texts == {tuple(query.tolist()) for query in row["queries"]}


def test_all_queries_stand_side_by_side_with_separators() -> None:
    rows = make_rows()
    view = make_collator("master")(rows)["views"]["queries"]
    for row, texts in enumerate(rows):
        first, *others = (query.tolist() for query in texts["queries"])
        assert original(view, row) == first + [token for query in others for token in (SEP, *query)]


def test_contexts_are_mixed_by_weight_and_both_views_read_the_same() -> None:
    sources = {"encoder": ["text", "neighbour:3+continuation:1"], "decoder": ["neighbour:3+continuation:1", "text"]}
    changes = {
        "encoders": {"encoder": {"view": {"sources": sources["encoder"]}}},
        "decoders": {"decoder": {"view": {"sources": sources["decoder"]}}},
    }
    rows = make_rows(400)
    views = make_collator("cotmae", **changes)(rows)["views"]
    near = 0
    for row, texts in enumerate(rows):
        context = original(views["encoder"], 2 * row + 1)
        assert context == original(views["decoder"], 2 * row)
        assert context in (texts["neighbour"].tolist(), texts["continuation"].tolist())
        near += context == texts["neighbour"].tolist()
    assert 0.68 < near / len(rows) < 0.82


def test_hiding_keywords_without_counts_is_refused() -> None:
    with pytest.raises(ValueError, match="A view of this method hides keywords; give the word counts"):
        ViewCollator(get_method("master").config(backbone_config=tiny_config()), VOCABULARY, 32, 0)
