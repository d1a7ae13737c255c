from __future__ import annotations

import pytest
import torch

from hf_dense import Decoder, View
from hf_dense.modeling.bottleneck_layout import PaddedRows, pool

IDS = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def layout(**more: torch.Tensor) -> PaddedRows:
    return PaddedRows({"input_ids": IDS, "attention_mask": MASK, **more})


def test_positions_count_from_zero() -> None:
    assert layout().positions().tolist() == [[0, 1, 2, 3]]
    assert layout().length == 4


def test_pool_and_replace_first_and_spread() -> None:
    hidden = torch.arange(24.0).view(2, 4, 3)
    vectors = torch.tensor([[-1.0, -2.0, -3.0], [-4.0, -5.0, -6.0]])
    assert layout().pool(hidden, "cls").tolist() == [[0.0, 1.0, 2.0], [12.0, 13.0, 14.0]]
    assert layout().pool(hidden, "mean").tolist() == [[4.5, 5.5, 6.5], [15.0, 16.0, 17.0]]
    replaced = layout().replace_first(hidden, vectors)
    assert replaced[:, 0].tolist() == vectors.tolist()
    assert torch.equal(replaced[:, 1:], hidden[:, 1:])
    assert layout().expand(vectors).tolist() == [[row] * 4 for row in vectors.tolist()]


def test_replace_first_keeps_the_type_of_the_states() -> None:
    replaced = layout().replace_first(torch.zeros(2, 4, 3, dtype=torch.bfloat16), torch.ones(2, 3))
    assert replaced.dtype == torch.bfloat16


def test_what_stands_at_padding_is_no_part_of_the_mean_whatever_it_is() -> None:
    hidden = torch.ones(2, 4, 3)
    hidden[1, 3] = float("nan")
    assert layout().pool(hidden, "mean").tolist() == [[1.0] * 3] * 2


def test_a_text_without_tokens_has_the_mean_zero() -> None:
    assert pool(torch.ones(1, 2, 3), torch.zeros(1, 2), "mean").tolist() == [[0.0] * 3]


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_means_are_summed_in_float32_at_least_and_of_the_states_type(kind: torch.dtype, masked: bool) -> None:
    hidden = torch.randn(2, 513, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(kind)
    pooled = pool(hidden, torch.ones(2, 513, dtype=torch.int64) if masked else None, "mean")
    exact = hidden.double().sum(dim=1) / 513
    assert pooled.dtype == kind
    torch.testing.assert_close(pooled, exact.to(kind), rtol=1e-14 if kind == torch.float64 else 0, atol=1e-15)


def test_full_attention_sees_all_but_padding() -> None:
    visible = layout().visibility(Decoder()).expand(2, 1, 4, 4)
    assert visible.int().tolist() == [[[[1, 1, 1, 1]] * 4], [[[1, 1, 1, 0]] * 4]]


def test_causal_attention_sees_its_window_but_no_padding() -> None:
    assert layout().visibility(Decoder(attention="causal:2")).int().tolist() == [
        [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]]],
        [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 0]]],
    ]


def test_causal_attention_without_a_window_sees_all_that_came_before() -> None:
    decoder = Decoder(View(select="none", labels="next"), attention="causal")
    assert layout().visibility(decoder)[0, 0].int().tolist() == torch.ones(4, 4).tril().int().tolist()


def test_a_layers_window_narrows_what_its_decoder_sees() -> None:
    assert layout().visibility(Decoder(), window=1)[0, 0].int().tolist() == [
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [0, 1, 1, 1],
        [0, 0, 1, 1],
    ]


def test_sampled_attention_sees_its_sample_but_no_padding_and_no_row_is_blind() -> None:
    visible = torch.tensor([[[0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 1, 0]]]).expand(2, -1, -1).clone()
    visible[1, 1] = torch.tensor([0, 0, 0, 1])  # sees only padding
    visible[1, 3] = 0
    decoder = Decoder(View(select="none", labels="every"), layers=1, stream="bottleneck", attention="sampled:0.5")
    assert layout(visible=visible).visibility(decoder).int().tolist() == [
        [[[0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0], [1, 0, 1, 0]]],
        [[[0, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0]]],
    ]


def test_sampled_attention_without_its_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="`visible`"):
        layout().visibility(Decoder(attention="sampled:0.5"))


def test_without_a_mask_every_token_counts() -> None:
    rows = PaddedRows({"input_ids": IDS})
    assert rows.visibility(Decoder(attention="causal:1"))[1, 0].int().tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 0, 1, 0],
        [1, 0, 0, 1],
    ]
