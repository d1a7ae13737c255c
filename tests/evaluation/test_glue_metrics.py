"""GLUE's metrics by hand, and without the Hub."""

from __future__ import annotations

import pytest

from hf_dense.evaluation.glue_metrics import score_task


def test_scores_by_hand() -> None:
    predictions, references = (
        [1, 1, 1, 0, 0, 0, 0, 1],
        [1, 1, 0, 0, 0, 1, 0, 0],
    )  # 2 true and 2 false of 1, 3 and 1 of 0
    assert score_task("sst2", predictions, references) == {"accuracy": 5 / 8}
    for task in ("mrpc", "qqp"):
        assert score_task(task, predictions, references) == pytest.approx({"accuracy": 5 / 8, "f1": 4 / 7})
    matthews = (2 * 3 - 2 * 1) / ((2 + 2) * (2 + 1) * (3 + 2) * (3 + 1)) ** 0.5
    assert score_task("cola", predictions, references) == pytest.approx({"matthews_correlation": matthews})
    assert score_task("mnli", [0, 1, 2, 2], [0, 2, 2, 1]) == {"accuracy": 0.5}
    assert score_task("qnli", [0], [1]) == {"accuracy": 0}
    # Deviations (-1.5, -0.5, -0.5, 2.5) and (-1.25, -1.25, 0.75, 1.75); ranks (1, 2.5, 2.5, 4) and (1.5, 1.5, 3, 4).
    pearson = (1.875 + 0.625 - 0.375 + 4.375) / ((2.25 + 0.25 + 0.25 + 6.25) * (1.5625 * 2 + 0.5625 + 3.0625)) ** 0.5
    spearman = (1.5 + 0 + 0 + 1.5 * 1.5) / ((2.25 + 2.25) * (1 + 1 + 0.25 + 2.25)) ** 0.5
    found = score_task("stsb", [1.0, 2.0, 2.0, 5.0], [1.0, 1.0, 3.0, 4.0])
    assert found == pytest.approx({"pearson": pearson, "spearmanr": spearman})


def test_nothing_is_asked_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*names: str, **options: object) -> None:
        raise AssertionError("code of the Hub was asked for")

    monkeypatch.setattr("evaluate.load", load)
    assert score_task("sst2", [1, 0], [1, 1]) == {"accuracy": 0.5}
