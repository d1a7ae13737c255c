"""What was measured of a very model, among the evaluations of a directory."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from hf_dense.errors import InputError
from hf_dense.evaluation.outdated import outdated
from hf_dense.evaluation.result import RetrievalResult
from hf_dense.evaluation.runner import KIND
from hf_dense.hub.cards import Measured
from hf_dense.hub.output_cards import WITH_PARTS
from hf_dense.hub.precision import Reading
from hf_dense.search.candidates import load_ranker
from hf_dense.search.fingerprints import model_source
from hf_dense.storage.manifest import COMPLETE, MANIFEST, Manifest

logger = logging.getLogger(__name__)


def measured_of(model: str | Path, evaluations: str | Path) -> list[Measured]:
    """The results of a model, known by its content, whatever name it had when it was measured.

    Args:
        model: directory of a retriever or a cross-encoder.
        evaluations: what `hf-dense evaluate` wrote, or one evaluation.

    Returns:
        Name of the task, split and metrics; of another protocol than `passages`, and of first passages that were
        ordered anew, the name says so. What was measured twice, to the same figures, is given once.

    Raises:
        InputError: nothing to load, no evaluation there, all are of other models or outdated, or two of one task and
            split differ.
    """
    found: dict[tuple[str, str], tuple[Path, Mapping[str, float]]] = {}
    for path, manifest in own_evaluations(model, evaluations).items():
        result = RetrievalResult.load(path)
        first, metrics = found.setdefault((_name(path, manifest), result.split), (path, result.metrics))
        if metrics != result.metrics:
            raise two_results(first, path)
    return [(name, split, metrics) for (name, split), (_, metrics) in found.items()]


def two_results(first: Path, second: Path) -> InputError:
    """The error of two evaluations of one task that differ."""
    return InputError(f"{first} and {second} are results of one task, and differ; name a directory with one of them.")


def own_evaluations(model: str | Path, evaluations: str | os.PathLike[str]) -> dict[Path, Manifest]:
    """The directories of the evaluations of a model, with their manifests; see `measured_of`."""
    place = Path(evaluations)
    found = {file.parent: Manifest.load(file.parent) for file in sorted(place.rglob(MANIFEST))}
    evaluated = {
        path: manifest for path, manifest in found.items() if manifest and manifest.kind == KIND and _is_done(manifest)
    }
    if not evaluated:
        raise InputError(f"{place} holds no evaluation; measure the model with hf-dense evaluate.")
    fingerprint = model_source(load_ranker(model), model).fingerprint
    own = {path: manifest for path, manifest in evaluated.items() if manifest.made_from["model"] == fingerprint}
    if not own:
        others = ", ".join(sorted({manifest.sources["model"] for manifest in evaluated.values()}))
        raise InputError(
            f"{place} holds no evaluation of {model}, but of others ({others}); measure it with hf-dense evaluate."
        )
    return _up_to_date(own)


def _up_to_date(own: Mapping[Path, Manifest]) -> dict[Path, Manifest]:
    """Evaluations without those that the table of their directory leaves out, which is said."""
    old = {path: reason for path, manifest in own.items() if (reason := outdated(path, manifest, _collections(path)))}
    said = "; ".join(f"{path} was measured {reason}" for path, reason in old.items())
    if len(old) == len(own):
        raise InputError(f"{said}; measure it again with hf-dense evaluate.")
    if old:
        logger.warning("%s: left out; measure again what is to be on the card.", said)
    return {path: manifest for path, manifest in own.items() if path not in old}


def _collections(evaluation: Path) -> dict[str, str]:
    """The collections of the directory of evaluations that one lies in, as they were read last; see `outdated`."""
    above = Manifest.load(evaluation.resolve().parent.parent)
    return above.facts.get("collections", {}) if above is not None and above.kind == WITH_PARTS else {}


def _is_done(manifest: Manifest) -> bool:
    return manifest.state == COMPLETE and "model" in manifest.made_from


def _name(place: Path, manifest: Manifest) -> str:
    """The name of the task, without the split, which stands beside it: as its directory has it where that is called
    after a task, as `hf-dense evaluate` does; else that of the collection, as stages of a pipeline have other ones.
    """
    folder, end = place.resolve().name, f"-{manifest.made_from['split']}"
    collection = manifest.sources.get("collection", folder)
    name = folder.removesuffix(end) if folder.endswith(end) else Path(collection).resolve().name
    read = Reading.of(manifest.made_from)
    name += f", {read.in_words}" if read.in_words else ""
    protocol = manifest.made_from["protocol"]
    if first := manifest.sources.get("first stage"):
        before = Path(first)  # ROW/TASK, as its own directory, where hf-dense evaluate made both; else a stage's
        row = before.parent.name if before.name == folder else before.name
        name += f", the first {manifest.made_from['depth']} of {row}"
        protocol = manifest.made_from.get("of", "passages")
    return name if protocol == "passages" else f"{name}, {protocol}"
