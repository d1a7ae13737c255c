from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_dense import Decoder, View
from hf_dense.modeling.bottleneck_layout import FlatRows, LayerMask, join_views, pool, take_rows

IDS = torch.tensor([[2, 9, 3, 0], [2, 7, 8, 3]])  # the longer one last: in the layout it comes first
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
SAMPLED = Decoder(View(select="none", labels="every"), layers=1, stream="bottleneck", attention="sampled:0.5")
CAUSAL = Decoder(View(select="none", labels="next"), attention="causal")


def layout(**more: Tensor) -> FlatRows:
    return FlatRows({"input_ids": IDS, "attention_mask": MASK, **more})


def of_lengths(lengths: Sequence[int], **more: Tensor) -> FlatRows:
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return FlatRows({"input_ids": mask * 7, "attention_mask": mask, **more})


def visible_rows(mask: LayerMask, width: int) -> list[list[list[int]]]:
    """What each query row of each group sees, as 0 and 1."""
    rows = []
    for asking, keys, seen in zip(mask.queries, mask.keys, mask.masks, strict=True):
        whole = torch.ones(asking.texts, 1, asking.length, keys.length, dtype=torch.bool)
        wide = F.pad((whole if seen is None else seen & whole)[:, 0], (0, width - keys.length))
        rows += asking.unpad(wide).int().tolist()
    return rows


def test_tokens_stand_one_after_the_other_longest_text_first() -> None:
    rows = layout()
    assert rows.input_ids.tolist() == [2, 7, 8, 3, 2, 9, 3]
    assert rows.text.tolist() == [1, 1, 1, 1, 0, 0, 0]
    assert rows.positions.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert rows.where.tolist() == [[4, 5, 6, -1], [0, 1, 2, 3]]
    assert rows.length == 4
    assert rows.inner().tolist() == [False, True, True, False, False, True, False]


def test_without_a_mask_every_token_counts() -> None:
    assert FlatRows({"input_ids": IDS}).input_ids.tolist() == [2, 9, 3, 0, 2, 7, 8, 3]


def test_means_and_first_rows_are_those_of_their_texts() -> None:
    hidden = torch.arange(14.0).view(7, 2)
    vectors = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    assert layout().means(hidden).tolist() == [[10.0, 11.0], [3.0, 4.0]]
    replaced = layout().replace_first(hidden, vectors)
    assert replaced[[4, 0]].tolist() == vectors.tolist()
    kept = [1, 2, 3, 5, 6]
    assert torch.equal(replaced[kept], hidden[kept])


def test_replace_first_keeps_the_type_of_the_states() -> None:
    assert layout().replace_first(torch.zeros(7, 3, dtype=torch.bfloat16), torch.ones(2, 3)).dtype == torch.bfloat16


def test_what_stands_at_padding_is_no_part_of_the_mean_whatever_it_is() -> None:
    hidden = torch.ones(2, 4, 3)
    hidden[0, 3] = float("nan")
    assert pool(hidden, MASK, "mean").tolist() == [[1.0] * 3] * 2
    assert layout().means(layout().flatten(hidden)).tolist() == [[1.0] * 3] * 2


def test_a_text_without_tokens_has_the_mean_zero() -> None:
    assert pool(torch.ones(1, 2, 3), torch.zeros(1, 2), "mean").tolist() == [[0.0] * 3]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_means_are_summed_in_float32_at_least_and_of_the_states_type(kind: torch.dtype) -> None:
    hidden = torch.randn(2, 513, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(kind)
    exact = (hidden.double().sum(dim=1) / 513).to(kind)
    flat = of_lengths([513, 513]).means(hidden.flatten(0, 1))
    for pooled in (pool(hidden, torch.ones(2, 513), "mean"), pool(hidden, None, "mean"), flat):
        assert pooled.dtype == kind
        torch.testing.assert_close(pooled, exact, rtol=1e-14 if kind == torch.float64 else 0, atol=1e-15)


def test_views_are_joined_with_what_only_some_of_them_have() -> None:
    joined = join_views([{"input_ids": IDS, "attention_mask": MASK}, {"input_ids": IDS[:, :2]}])
    assert joined["input_ids"].tolist() == [*IDS.tolist(), [2, 9, 0, 0], [2, 7, 0, 0]]
    assert joined["attention_mask"].tolist() == [*MASK.tolist(), [1, 1, 0, 0], [1, 1, 0, 0]]
    typed = join_views([{"input_ids": IDS, "token_type_ids": MASK}, {"input_ids": IDS}])
    assert typed["token_type_ids"].tolist() == [*MASK.tolist(), *(MASK * 0).tolist()]


def test_full_attention_sees_all_but_padding() -> None:
    assert visible_rows(layout().mask(), 4) == [[1, 1, 1, 1]] * 4 + [[1, 1, 1, 0]] * 3
    (alone,) = of_lengths([3, 3]).mask().masks
    assert alone is None, "where nothing is padded nothing is masked"


def test_causal_attention_sees_its_window_but_no_padding() -> None:
    longer = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]]
    assert visible_rows(layout().mask(Decoder(attention="causal:2")), 4) == longer + longer[:3]


def test_causal_attention_without_a_window_sees_all_that_came_before() -> None:
    assert visible_rows(layout().mask(CAUSAL), 4)[:4] == torch.ones(4, 4).tril().int().tolist()


def test_a_layers_window_narrows_what_its_decoder_sees() -> None:
    longer = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    shorter = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0]]
    assert visible_rows(layout().mask(Decoder(), window=1), 4) == longer + shorter


def test_a_window_over_long_texts_takes_memory_by_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_dense.modeling.bottleneck_layout._BLOCK", 4)
    for lengths, texts in (([17, 17], 1), ([17, 15, 14], 3)):
        (mask,) = of_lengths(lengths).mask(window=2).masks
        assert mask.mask.shape == (texts, 5, 4, 4 + 2 * 2)
    (mask,) = of_lengths([12]).mask(window=2).masks
    assert isinstance(mask, Tensor), "texts of two blocks are read whole"


def test_sampled_attention_sees_its_sample_but_no_padding_and_no_row_is_blind() -> None:
    visible = torch.tensor([[[0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 1, 0]]]).expand(2, -1, -1).clone()
    visible[0, 1] = torch.tensor([0, 0, 0, 1])  # sees only padding
    seen = [[0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 1, 0]]
    expected = [*seen, seen[0], [1, 0, 0, 0], seen[2]]
    assert visible_rows(layout(visible=visible).mask(SAMPLED), 4) == expected


def test_sampled_attention_without_its_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="`visible`"):
        layout().mask(SAMPLED)


LENGTHS = (3, 17, 16, 9, 3, 12, 5)


@pytest.mark.parametrize("kind", ["full", "causal", "sampled", "window", "biased"])
@pytest.mark.parametrize("part", [False, True], ids=["all", "some"])
def test_attention_is_that_of_every_text_alone(kind: str, part: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where some texts have no query, in blocks, and with the gradients."""
    monkeypatch.setattr("hf_dense.modeling.bottleneck_layout._BLOCK", 4)
    generator = torch.Generator().manual_seed(0)
    longest, heads, size = max(LENGTHS), 2, 4
    visible = torch.rand(len(LENGTHS), longest, longest, generator=generator) < 0.5
    visible[:, :, 0] = True
    rows = of_lengths(LENGTHS, visible=visible)
    bias = torch.randn(1, heads, longest, longest, generator=generator, dtype=torch.float64)
    kinds = {
        "full": {},
        "causal": {"decoder": CAUSAL},
        "sampled": {"decoder": SAMPLED},
        "window": {"window": 2},
        "biased": {"bias": bias},
    }
    count = len(rows.text)
    wanted = (torch.rand(count, generator=generator) < 0.4) & (rows.text != 2) if part else torch.ones(count).bool()
    read = rows.places.rows(wanted) if part else None
    mask = rows.mask(**kinds[kind], read=read)
    assert len(rows.groups) > 2
    flat = torch.randn(3, count, heads, size, generator=generator, dtype=torch.float64).requires_grad_()
    mixed = mask.attend(flat[0][wanted], flat[1], flat[2], dropout=0.0)
    weights = torch.randn(count, heads, size, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((mixed * weights[wanted]).sum(), flat)

    alone = []
    for text, length in enumerate(LENGTHS):
        at = rows.where[text, :length]
        query, key, value = (flat[which][at].transpose(0, 1) for which in range(3))
        columns = torch.arange(length)
        back = columns[:, None] - columns
        seen = {
            "causal": back >= 0,
            "sampled": visible[text, :length, :length],
            "window": back.abs() <= 2,
        }.get(kind, torch.ones(length, length).bool())
        scores = query @ key.transpose(1, 2) / size**0.5
        scores = scores + (bias[0, :, :length, :length] if kind == "biased" else 0)
        shares = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        alone.append((at, (shares @ value).transpose(0, 1)))
    expected = torch.zeros(count, heads, size, dtype=torch.float64)
    expected = expected.index_copy(0, torch.cat([at for at, _ in alone]), torch.cat([one for _, one in alone]))
    torch.testing.assert_close(mixed, expected[wanted], atol=1e-12, rtol=0)
    (plain,) = torch.autograd.grad((expected[wanted] * weights[wanted]).sum(), flat)
    torch.testing.assert_close(gradient, plain, atol=1e-12, rtol=0)


def test_texts_of_similar_length_are_padded_together() -> None:
    rows = of_lengths(LENGTHS)
    assert [(group.texts, group.length) for group in rows.groups] == [(2, 17), (2, 12), (1, 5), (2, 3)]
    assert sum(group.texts * group.length for group in rows.groups) < 1.1 * sum(LENGTHS)


def test_rotations_of_the_queries_are_those_of_their_rows() -> None:
    rows = of_lengths([4, 3])
    turns = torch.randn(2, 7, 4)
    read = rows.places.rows(torch.tensor([1, 0, 0, 1, 0, 1, 0]).bool())
    assert read.at.tolist() == [0, 3, 5]
    assert [group.places.tolist() for group in read.groups if group.places is not None] == [[0, 1, 2]]
    mask = rows.mask(read=read, rotation=(turns[0], turns[1]))
    assert mask.rotation is not None
    of_queries, of_keys = mask.rotation
    assert torch.equal(of_queries[0], turns[0][[0, 3, 5]])
    assert torch.equal(of_keys[1], turns[1])
    assert mask.text.tolist() == [0, 0, 1]


def test_rows_are_taken_with_their_gradients() -> None:
    rows = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    places = torch.tensor([4, 0, 2])
    assert torch.equal(take_rows(rows, places), rows[places])
    assert torch.autograd.gradcheck(lambda given: take_rows(given, places), rows)
    nothing = take_rows(rows, places[:0])
    assert nothing.shape == (0, 3)
