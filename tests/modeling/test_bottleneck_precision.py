from __future__ import annotations

import pytest
import torch

from hf_dense.modeling.bottleneck_precision import filled, projection_dtype, single_dtype, unfilled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_as_they_were_in_other_precisions(dtype: torch.dtype) -> None:
    rows = torch.ones(13, 2, dtype=dtype)
    assert filled(rows) is rows
    assert unfilled(rows, 13) is rows, "no slice, which would sum gradients in another order"


@pytest.mark.parametrize("autocast", [True, False])
def test_rows_of_zeros_are_behind_them_in_16_bits(autocast: bool) -> None:
    rows = torch.ones(13, 2, 3, dtype=torch.float32 if autocast else torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        more = filled(rows)
    assert more.dtype == rows.dtype
    assert more.shape == (16, 2, 3)
    assert torch.equal(more[:13], rows)
    assert not more[13:].any()
    more.sum().backward()
    assert torch.equal(rows.grad, torch.ones_like(rows))


def test_there_are_few_numbers_of_rows_and_hardly_more_rows() -> None:
    numbers = [len(filled(torch.empty(count, 1, dtype=torch.bfloat16))) for count in range(1, 2049)]
    assert all(count <= number < count + max(8, count / 16) for count, number in enumerate(numbers, start=1))
    assert len({*numbers}) <= 16 * 5  # 32 up to 256, and 16 from each power of two to the next
    assert all(len(filled(torch.empty(number, 1, dtype=torch.bfloat16))) == number for number in {*numbers})


def test_no_row_stays_none() -> None:
    assert filled(torch.empty(0, 4, dtype=torch.bfloat16)).shape == (0, 4)


def test_float64_is_projected_as_it_is_and_all_else_as_autocast_says() -> None:
    single, double = torch.ones(1), torch.ones(1, dtype=torch.float64)
    assert projection_dtype(single) == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert projection_dtype(single) == torch.bfloat16
        assert projection_dtype(double) == torch.float64
    assert single_dtype(torch.bfloat16) == torch.float32
    assert single_dtype(torch.float64) == torch.float64
