"""Results on MTEB's tasks in the layout of its results repository, with what MTEB wants to know of the model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import mteb
from mteb.models.model_meta import ModelMeta
from mteb.results import TaskResult
from sentence_transformers import CrossEncoder

from hf_dense.errors import InputError, as_sentence
from hf_dense.evaluation.measured import own_evaluations, two_results
from hf_dense.evaluation.retrieval import SCORES_FILE
from hf_dense.hub.fingerprints import retriever_fingerprint
from hf_dense.hub.lineage import licence_of
from hf_dense.hub.precision import Reading
from hf_dense.hub.retriever_settings import length_of
from hf_dense.search.candidates import load_ranker
from hf_dense.storage.manifest import Manifest
from hf_dense.storage.output import Output
from hf_dense.storage.places import Source

KIND: Final = "MTEB results"
_HUB: Final = "https://huggingface.co"


def write_mteb_results(
    model: str | Path,
    evaluations: str | os.PathLike[str],
    out: str | os.PathLike[str] | Output,
    *,
    name: str,
    revision: str,
    trained_on: Sequence[str] | None = None,
) -> Path:
    """Write `results/<name>/<revision>/<task>.json` and `model_meta.json` beside them, as MTEB's own cache does.

    Args:
        model: directory of a retriever.
        evaluations: what `hf-dense evaluate` wrote; results of this very model on public tasks are taken, whole vectors
            in float32.
        out: receives them, complete or not at all.
        name: of the model on the Hub, `me/name`.
        revision: commit that it has there.
        trained_on: MTEB's names of the data that it was trained on; an empty list says none, None that it is not known.

    Returns:
        The directory; its `results` is what goes into https://github.com/embeddings-benchmark/results.

    Raises:
        InputError: no result on a public task of MTEB is there, a name that MTEB does not know, or no retriever.
    """
    found, meta = _public_results(model, evaluations), describe(model, name, revision, trained_on)
    sources = {"model": Source(str(model), retriever_fingerprint(load_ranker(model)))}
    settings: dict[str, Any] = {"name": name, "revision": revision, "trained on": trained_on, "tasks": sorted(found)}
    settings["scores"] = {task: [result.mteb_version, result.dataset_revision] for task, result in found.items()}
    with Output.of(out).stage(KIND, settings, sources) as work:
        if not work.done:
            cache = mteb.ResultCache(work.result)
            for result in found.values():
                cache.save_to_cache(result, meta)
    return work.path


def check_mteb_results(
    model: str | Path,
    evaluations: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    name: str,
    trained_on: Sequence[str] | None = None,
) -> Output:
    """Find before a model is published, when it has no commit yet, what would keep its results from being written.

    Returns:
        Where `write_mteb_results` writes them then, in place of those of an earlier commit.

    Raises:
        InputError: as `write_mteb_results` does, or results of another model are there.
    """
    _public_results(model, evaluations)
    describe(model, name, "main", trained_on)
    there = Manifest.load(Path(out))
    if there is not None and there.kind == KIND and there.made_from.get("name") != name:
        raise InputError(
            f"{out} holds results of {there.made_from.get('name')}, not of {name}; name another directory."
        )
    output = Output(Path(out), overwrite=True)
    output.check(KIND, {"model": Source(str(model), ""), "directory of evaluations": Source(str(evaluations), "")})
    return output


def describe(model: str | Path, name: str, revision: str, trained_on: Sequence[str] | None = None) -> ModelMeta:
    """What MTEB wants to know of a retriever; arguments are those of `write_mteb_results`.

    Raises:
        InputError: nothing to load, a cross-encoder, or a name in `trained_on` that MTEB does not know.
    """
    if unknown := [task for task in trained_on or () if not _is_task(task)]:
        raise InputError(f"MTEB has no task {unknown[0]!r} that a model could be trained on; name it as MTEB does.")
    loaded: Any = load_ranker(model)
    if isinstance(loaded, CrossEncoder):
        raise InputError(f"{model} is a cross-encoder; MTEB's results of retrieval are those of retrievers.")
    manifest = Manifest.load(Path(model))
    licence = licence_of(manifest)[0] if manifest is not None else None
    known: dict[str, Any] = {
        **dict(ModelMeta.create_empty()),
        "name": name,
        "revision": revision,
        "framework": ["Sentence Transformers", "PyTorch", "safetensors"],
        "embed_dim": loaded.get_embedding_dimension(),
        "max_tokens": length_of(loaded),
        "similarity_fn_name": loaded.similarity_fn_name,
        "n_parameters": sum(weight.numel() for _, weight in loaded.named_parameters()),
        "reference": f"{_HUB}/{name}",
        "open_weights": True,
        "use_instructions": any(loaded.prompts.values()),
        "training_datasets": None if trained_on is None else set(trained_on),
    }
    try:
        return ModelMeta(**{**known, **({"license": licence.lower()} if licence else {})})
    except ValueError:  # a licence that MTEB does not list
        with as_sentence(f"MTEB does not take what is known of {name}"):
            return ModelMeta(**known)


def _public_results(model: str | Path, evaluations: str | os.PathLike[str]) -> dict[str, TaskResult]:
    """The results of a model on MTEB's tasks, by their names; raises where there is none, or two of one differ."""
    found: dict[str, TaskResult] = {}
    places: dict[str, Path] = {}
    for path, manifest in own_evaluations(model, evaluations).items():
        whole = "dimensions" not in manifest.made_from and not Reading.of(manifest.made_from).in_words
        if whole and (path / SCORES_FILE).is_file():
            result = TaskResult.from_disk(path / SCORES_FILE)
            if _is_task(result.task_name):
                first = found.setdefault(result.task_name, result)
                if str(first.scores) != str(result.scores):  # where NaN is as good as NaN
                    raise two_results(places[result.task_name], path)
                places.setdefault(result.task_name, path)
    if not found:
        raise InputError(f"{evaluations} holds no result of {model} on a task of MTEB by its name; measure it on one.")
    return found


def _is_task(name: str) -> bool:
    try:
        mteb.get_task(name)
    except (KeyError, ValueError):
        return False
    return True
