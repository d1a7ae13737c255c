"""Evaluate, export and publish, as functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from hf_dense.api.calls import Place, as_list, as_path, check_filled, checked, read_call
from hf_dense.api.results import Evaluation, Result
from hf_dense.errors import InputError

Models = Place | Sequence[Place] | Mapping[str, Place]  # with names, or without


@checked
def evaluate(
    models: Models,
    tasks: Place | Sequence[Place],
    *,
    out: Place,
    protocol: str | None = None,
    rerank: Models | None = None,
    rerank_depth: int | None = None,
    dimensions: Sequence[int] | None = None,
    batch_size: int | None = None,
    precision: str | None = None,
    max_length: int | None = None,
    ray: str | None = None,
    no_bm25: bool = False,
    overwrite: bool = False,
) -> Evaluation:
    """Measure retrievers on tasks: `hf-dense evaluate`, whose flags the arguments are.

    Args:
        models: one, several, or several by their names; `bm25` is one.
        tasks: one or several: names of MTEB's retrieval tasks, `beir`, `web`, or DIRECTORY[:SPLIT].
        out: receives the evaluations; those that are there are not made again.
        protocol: of directories: `passages`, `documents`, `answers` or `candidates`; None is the flag's default.
        rerank: cross-encoders or retrievers that order the first passages anew.
        rerank_depth: how many.
        dimensions: numbers of dimensions that vectors are also cut to.
        batch_size: texts encoded at once.
        precision: that models compute in: `fp32`, `bf16` or `fp16`.
        max_length: longest text of retrievers in tokens; None is their own.
        ray: address of a Ray cluster whose machines encode passages.
        no_bm25: leaves BM25 out.
        overwrite: whether what was made from other inputs or settings is replaced.

    Returns:
        All that was measured in the directory: `table`, and `figures` by model, task and metric.

    Raises:
        InputError: see `hf_dense.evaluation.benchmark.evaluate_tasks`.
    """
    options = {name: value for name, value in locals().items() if name not in ("models", "tasks", "rerank")}
    from hf_dense.commands.evaluate import measure
    from hf_dense.commands.output import encoding_of
    from hf_dense.evaluation.benchmark import FACTS_FILE

    models = models if isinstance(models, Mapping) else as_list(models)
    asked = as_list(tasks)
    check_filled(models=models, tasks=asked)
    named = {"tasks": [*map(as_path, asked)], "rerank": _named(() if rerank is None else rerank)}
    arguments = read_call("evaluate", _named(models), {**named, **options})
    with encoding_of(arguments):
        table = measure(arguments)
    facts = json.loads((arguments.out / FACTS_FILE).read_text(encoding="utf-8"))["models"]
    return Evaluation(arguments.out, "evaluations", {name: of["tasks"] for name, of in facts.items()}, table)


@checked
def export(
    model: Place,
    *,
    out: Place,
    kind: str | None = None,
    max_length: int | None = None,
    dense: int | None = None,
    sparse: int | None = None,
    pooling: str | None = None,
    similarity: str | None = None,
    normalize: bool | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    query_length: int | None = None,
    overwrite: bool = False,
    license: str | None = None,
) -> Result:
    """Write a model in the form others load: `hf-dense export`, whose flags the arguments are.

    Args:
        model: what is exported.
        out: receives it.
        kind: `retriever` (the default), `encoder`, `cross-encoder`, `hybrid` or `onnx`.
        max_length: longest input in tokens.
        dense: numbers of the dense part of `hybrid`.
        sparse: words that a document keeps in `hybrid`.
        pooling: `cls` or `mean`; None is the model's own here and below.
        similarity: `dot` or `cosine`.
        normalize: whether vectors are of length 1.
        query_prompt: put before every query.
        document_prompt: put before every document.
        query_length: longest query in tokens; None is `max_length`, or the model's own.
        overwrite: whether what was made from other inputs or settings is replaced.
        license: of the model, for the card.

    Raises:
        InputError: an option that the kind does not take, or nothing to load, or something else is in `out`.
    """
    options = {name: value for name, value in locals().items() if name != "model"}
    from hf_dense.commands.export import export

    return Result.of(export(read_call("export", [model], options)))


@checked
def publish(
    directory: Place,
    repo: str,
    *,
    results: Place | None = None,
    mteb: Place | None = None,
    trained_on: Sequence[str] | None = None,
    private: bool = False,
    revision: str | None = None,
) -> Result:
    """Put a model, data or a report on the Hub, with its card: `hf-dense publish`.

    Args:
        directory: what hf_dense wrote.
        repo: name on the Hub: me/name.
        results: evaluations, of which those of this very model go into its card.
        mteb: receives those on MTEB's tasks, in the layout of its results repository.
        trained_on: MTEB's names of the data that the model was trained on; None: not known.
        private: whether a repository that is new is private; else as the account has it.
        revision: branch that is written to.

    Returns:
        What was published, with the `address` of the repository among its figures.

    Raises:
        InputError: what is there cannot be published, or evaluations are of another model.
    """
    options = {name: value for name, value in locals().items() if name not in ("directory", "repo")}
    from hf_dense.commands.publish import put_on_hub

    arguments = read_call("publish", [directory, repo], options)
    return Result(Path(directory), "publication", {"address": put_on_hub(arguments)})


def _named(models: Models) -> list[str]:
    """As the command line has them: MODEL, or NAME=MODEL.

    Raises:
        InputError: a name could not be told from its model, or a model is not at a place.
    """
    if isinstance(models, Mapping):
        if strange := [name for name in models if not isinstance(name, str) or not name or "=" in name or "/" in name]:
            raise InputError(f"A model is called {strange[0]!r}; name it without = and /.")
        return [f"{name}={as_path(model)}" for name, model in models.items()]
    return [*map(as_path, as_list(models))]
