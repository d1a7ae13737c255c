"""What an evaluation costs is its own, whatever was measured before it."""

from __future__ import annotations

import resource
import sys

import pytest

from hf_dense.evaluation.costs import CostMeter


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the greatest memory is not counted anew")
def test_memory_that_was_needed_before_is_not_counted() -> None:
    much = bytearray(b"x" * 2**29)
    del much
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with CostMeter("bm25") as meter:
        pass
    assert 0 < meter.describe(0, [])["peak_memory"] < before - 2**28
