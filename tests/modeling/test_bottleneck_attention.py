from __future__ import annotations

import pytest
import torch

from hf_dense.modeling.bottleneck_attention import causal_window, open_blind_rows

LENGTH = 7


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_causal_window_sees_the_last_k_inputs_and_the_first(k: int) -> None:
    expected = [[j == 0 or i - k < j <= i for j in range(LENGTH)] for i in range(LENGTH)]
    assert causal_window(LENGTH, k).tolist() == expected


def test_window_of_three_spelled_out() -> None:
    assert causal_window(5, 3).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 0, 1, 1, 1],
    ]


@pytest.mark.parametrize("k", [LENGTH, LENGTH + 1, 10**9])
def test_a_window_longer_than_the_text_is_plain_causal_attention(k: int) -> None:
    assert torch.equal(causal_window(LENGTH, k), torch.ones(LENGTH, LENGTH).tril().bool())


def test_a_text_of_one_token_sees_itself() -> None:
    assert causal_window(1, 2).tolist() == [[True]]


def test_blind_rows_see_key_zero_and_the_others_stay() -> None:
    visible = torch.tensor(
        [
            [[False, True, False], [False, False, False], [True, True, True]],
            [[False, False, False], [False, False, True], [False, False, False]],
        ]
    )
    before = visible.clone()
    opened = open_blind_rows(visible)
    assert opened.int().tolist() == [[[0, 1, 0], [1, 0, 0], [1, 1, 1]], [[1, 0, 0], [0, 0, 1], [1, 0, 0]]]
    assert torch.equal(visible, before)
