"""Cards of published models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from hf_dense.errors import InputError
from hf_dense.storage.files import write_text

if TYPE_CHECKING:
    from hf_dense.evaluation.result import RetrievalResult

CARD_TEMPLATE: Final = """---
{metadata}
---

# {name}

{about}

## Use

{use}

## Training

| | |
|---|---|
| method | {method} |
| starts from | {base_model} |
| data | {data} |
| steps | {steps} |
| seed | {seed} |
| commit | {commit} |
| hardware | {hardware} |

```bash
{command}
```

```yaml
{settings}
```

## Results

{results}

## Limitations

{limitations}

## Licence

{licence}
"""

_USE: Final = """```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{model}")
queries = model.encode_query(["what is a bottleneck"])
passages = model.encode_document(["A bottleneck squeezes a text into one vector."])
print(model.similarity(queries, passages))
```"""
_NOT_MEASURED, _NOT_RECORDED = "not measured", "not recorded"


@dataclass(frozen=True)
class ModelFacts:
    """What a card says of a model beside its results; what is None is said to be unknown.

    Attributes:
        name: of the model, its Hub id where it has one.
        about: what it is, in a few sentences.
        method: of its training, and where that is described.
        data: what it was trained on, in words.
        command: what trained it.
        settings: of the training, YAML.
        limitations: one sentence each.
        license: an identifier of the Hub (`apache-2.0`), or `other`.
        licence: the same in words.
        use: how it is used, Markdown; by default `retriever_use` of its name.
        base_model: Hub id of what it starts from; None from scratch.
        datasets: Hub ids of the data.
        tags: beside those of every model of this package.
        steps: of optimisation, all stages together.
        seed: of the training.
        commit: of the code.
        hardware: that it was trained on.
    """

    name: str
    about: str
    method: str
    data: str
    command: str
    settings: str
    limitations: Sequence[str]
    license: str
    licence: str
    use: str | None = None
    base_model: str | None = None
    datasets: Sequence[str] = ()
    tags: Sequence[str] = ()
    steps: int | None = None
    seed: int | None = None
    commit: str | None = None
    hardware: str | None = None


def retriever_use(model: str) -> str:
    """How a retriever is used, Markdown; `model` is its directory or Hub id."""
    return _USE.format(model=model)


def write_model_card(
    model_dir: str | Path,
    facts: ModelFacts,
    results: Sequence[tuple[str, RetrievalResult]] = (),
    published: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write a model's `README.md`; one that is there, as an export leaves it, is replaced.

    Args:
        model_dir: directory of the model.
        facts: what is known of it.
        results: what was measured, with the names of the tasks; `model-index` holds these alone.
        published: figures of papers to show beside them, rows of `load_published`.

    Returns:
        The path of the card.

    Raises:
        InputError: there is no such directory, or a task is given twice.
    """
    directory = Path(model_dir)
    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory; write the model first, then its card.")
    path = directory / "README.md"
    write_text(path, render_model_card(facts, results, published))
    return path


def render_model_card(
    facts: ModelFacts,
    results: Sequence[tuple[str, RetrievalResult]] = (),
    published: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The text of a card; see `write_model_card`.

    Raises:
        InputError: a task is given twice.
    """
    if len({task for task, _ in results}) < len(results):
        raise InputError("Two results are of the same task; give each task once.")
    return str(
        ModelCard(
            CARD_TEMPLATE.format(
                metadata=_metadata(facts, results).to_yaml(),
                name=facts.name,
                about=facts.about,
                use=facts.use or retriever_use(facts.name),
                method=facts.method,
                base_model=facts.base_model or "random weights",
                data=facts.data,
                steps=_NOT_MEASURED if facts.steps is None else f"{facts.steps:,}",
                seed=_NOT_RECORDED if facts.seed is None else facts.seed,
                commit=facts.commit or _NOT_RECORDED,
                hardware=facts.hardware or _NOT_RECORDED,
                command=facts.command,
                settings=facts.settings.strip(),
                results=_results(results, published),
                limitations="\n".join(f"- {sentence}" for sentence in facts.limitations),
                licence=facts.licence,
            )
        )
    )


def _metadata(facts: ModelFacts, results: Sequence[tuple[str, RetrievalResult]]) -> ModelCardData:
    return ModelCardData(
        license=facts.license,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "hf_dense", "dense-retrieval", *facts.tags],
        datasets=list(facts.datasets) or None,
        base_model=facts.base_model,
        model_name=facts.name if results else None,
        eval_results=[
            EvalResult(
                task_type="information-retrieval",
                dataset_type=task,  # the Hub's index tells results apart by this, not by the name
                dataset_name=task,
                dataset_split=result.split,
                metric_type=metric,
                metric_value=value,
            )
            for task, result in results
            for metric, value in result.metrics.items()
        ]
        or None,
    )


def _results(results: Sequence[tuple[str, RetrievalResult]], published: Sequence[Mapping[str, Any]]) -> str:
    """One row for each task and metric that was measured here or published."""
    ours = {(task, metric): value for task, result in results for metric, value in result.metrics.items()}
    theirs: dict[tuple[str, str], list[str]] = {}
    for row in published:
        for task, values in row["values"].items():
            for metric, value in values.items():
                said = f"{value:.3f} ({row['name']}, published: {row['source']})"
                theirs.setdefault((task, metric), []).append(said)
    if not ours and not theirs:
        return f"This model: {_NOT_MEASURED}."
    head = "| task | metric | this model | published by papers, not results of this model |\n|---|---|---:|---|"
    rows = [
        f"| {task} | {metric} | {f'{ours[task, metric]:.4f}' if (task, metric) in ours else _NOT_MEASURED} "
        f"| {'; '.join(theirs.get((task, metric), ['-']))} |"
        for task, metric in dict.fromkeys([*ours, *theirs])
    ]
    return "\n".join([head, *rows])
