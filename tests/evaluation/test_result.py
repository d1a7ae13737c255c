"""Results of evaluations, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hf_dense.errors import InputError
from hf_dense.evaluation.result import RESULT_FILE, RetrievalResult


@pytest.mark.parametrize(
    "changes",
    [
        {"per_query": {"mrr@10": {"q1": [], "q2": 1.0}}},
        {"per_query": {"mrr@10": [1.0]}},
        {"metrics": {"mrr@10": "much"}},
        {"seconds": None},
        {"unheard": 1},
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    found = RetrievalResult("a", "dev", {"mrr@10": 0.5}, {"mrr@10": {"q1": 0.0, "q2": 1.0}}, 1.0)
    found.save(tmp_path)
    assert RetrievalResult.load(tmp_path) == found
    file = tmp_path / RESULT_FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(InputError, match=r"result\.json is not an evaluation result: "):
        RetrievalResult.load(tmp_path)
