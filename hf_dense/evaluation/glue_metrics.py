"""GLUE's metrics as a metric of the library `evaluate`, computed here: nothing is fetched from the Hub and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import evaluate
from datasets import Features, Value
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

_METRICS: Final[Mapping[str, tuple[str, ...]]] = {
    "cola": ("matthews_correlation",),
    "stsb": ("pearson", "spearmanr"),
    "mrpc": ("accuracy", "f1"),
    "qqp": ("accuracy", "f1"),
}


class GlueMetrics(evaluate.Metric):  # type: ignore[misc]
    """The metrics of one task, by `compute`; the first of them is the one that a learning rate is chosen by.

    Args:
        config_name: the task. CoLA has Matthews' correlation, MRPC and QQP accuracy and F1, STS-B the correlations of
            Pearson and Spearman, the others accuracy.

    Source: Wang et al. (2018), GLUE; the functions of scikit-learn and SciPy that the library's own metric `glue`
    calls.
    """

    def _info(self) -> evaluate.MetricInfo:
        number = Value("float64" if self.config_name == "stsb" else "int64")
        features = Features({"predictions": number, "references": number})
        return evaluate.MetricInfo(description=__doc__ or "", citation="", features=features)

    def _compute(self, predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
        scores: dict[str, Any] = {
            "accuracy": lambda: accuracy_score(references, predictions),
            "f1": lambda: f1_score(references, predictions),
            "matthews_correlation": lambda: matthews_corrcoef(references, predictions),
            "pearson": lambda: pearsonr(predictions, references).statistic,
            "spearmanr": lambda: spearmanr(predictions, references).statistic,
        }
        return {name: float(scores[name]()) for name in _METRICS.get(self.config_name or "", ("accuracy",))}


def score_task(task: str, predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """GLUE's metrics of a task.

    Args:
        task: its name.
        predictions: classes, or numbers where the task has one for each example.
        references: labels.

    Returns:
        By name; see `GlueMetrics`.
    """
    metric = GlueMetrics(config_name=task, keep_in_memory=True)
    found: dict[str, float] = metric.compute(predictions=predictions, references=references)
    return found
