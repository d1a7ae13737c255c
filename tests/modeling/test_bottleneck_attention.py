from __future__ import annotations

import pytest
import torch

from hf_dense.modeling.bottleneck_attention import causal_window, near, open_blind_rows

LENGTH = 7


def window(length: int, k: int) -> torch.Tensor:
    positions = torch.arange(length)
    return causal_window(positions, positions, k)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_causal_window_sees_the_last_k_inputs_and_the_first(k: int) -> None:
    expected = [[j == 0 or i - k < j <= i for j in range(LENGTH)] for i in range(LENGTH)]
    assert window(LENGTH, k).tolist() == expected


def test_window_of_three_spelled_out() -> None:
    assert window(5, 3).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 0, 1, 1, 1],
    ]


@pytest.mark.parametrize("k", [LENGTH, LENGTH + 1, 10**9])
def test_a_window_longer_than_the_text_is_plain_causal_attention(k: int) -> None:
    assert torch.equal(window(LENGTH, k), torch.ones(LENGTH, LENGTH).tril().bool())


def test_some_queries_see_what_they_see_among_all() -> None:
    queries = torch.tensor([[4, 2], [0, 6]])
    assert torch.equal(causal_window(queries, torch.arange(LENGTH), 3), window(LENGTH, 3)[queries])
    assert torch.equal(
        near(queries, torch.arange(LENGTH), 2), near(torch.arange(LENGTH), torch.arange(LENGTH), 2)[queries]
    )


def test_a_text_of_one_token_sees_itself() -> None:
    assert window(1, 2).tolist() == [[True]]


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
