"""The steps that made a model, as the manifests of its directory and of those before it have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from huggingface_hub import hf_hub_download, metadata_load
from yaml import YAMLError

from hf_dense.data.hub_names import divided
from hf_dense.storage.manifest import UNSAID, Manifest
from hf_dense.storage.provenance import commit_in_words, hardware_in_words

FROM_HUB: Final = "model of the Hub"  # the kind of the step before the first of ours
FOREIGN: Final = "directory of somebody else's"  # the same
_UNNAMED: Final = (None, UNSAID, "unknown")  # licences that are none
_KINDS: Final[Mapping[str, type]] = {"steps": int, "seed": int, "languages": list}  # of what is no text in a step
_STARTS: Final = ("checkpoint", "encoder", "backbone", "model", "retriever", "reranker", "base")


@dataclass(frozen=True)
class Step:
    """One step of a model's making; what is None was not recorded.

    Attributes:
        kind: of the output that it wrote.
        method: of pre-training, by its name in `METHODS`.
        start: the model that it started from, as it was named.
        data: what it read beside that, as it was named.
        steps: of optimisation.
        seed: of its draws.
        commit: of the code.
        hardware: it ran on, in words.
        date: of its beginning, ISO 8601.
        licence: of what it wrote.
        command: that wrote it.
        languages: of its texts, as the card of a model that is not ours names them.
    """

    kind: str
    method: str | None = None
    start: str | None = None
    data: str | None = None
    steps: int | None = None
    seed: int | None = None
    commit: str | None = None
    hardware: str | None = None
    date: str | None = None
    licence: str | None = None
    command: str | None = None
    languages: list[str] | None = None

    @classmethod
    def of(cls, manifest: Manifest, steps: int | None = None) -> Step:
        """The step that a manifest tells of; `steps` of optimisation where they are known better than it says."""
        made, run = manifest.made_from, manifest.run
        made_steps = manifest.facts.get("steps") if steps is None else steps
        method = made.get("method", manifest.facts.get("method"))
        starts = [manifest.sources[role] for role in _STARTS if role in manifest.sources]
        data = [f"{role} {name}" for role, name in manifest.sources.items() if role not in _STARTS]
        return cls(
            manifest.kind,
            method=method if isinstance(method, str) else None,
            start=starts[0] if starts else None,
            data=", ".join(data) or None,
            steps=made_steps if isinstance(made_steps, int) else None,
            seed=manifest.seed,
            commit=commit_in_words(run.get("commit")),
            hardware=hardware_in_words(run.get("hardware")),
            date=run.get("date"),
            licence=manifest.licence,
            command=manifest.command or None,
        )


def lineage_of(model: str | Path) -> list[dict[str, Any]]:
    """The steps that made a model, the first one first, as a manifest keeps them (`facts["lineage"]`).

    Args:
        model: a directory (of a model, or of a checkpoint in a training) or Hub id.

    Returns:
        Of a directory of ours, its steps; of a Hub id and of another directory, that it is one, with the licence and
        the languages that its card names.
    """
    directory = Path(model)
    if not directory.is_dir():
        return [asdict(Step(FROM_HUB, start=str(model), **_said_by(str(model))))]
    manifest = _manifest_of(directory)
    if manifest is None:
        return [asdict(Step(FOREIGN, start=str(model), **_said_by(directory / "README.md")))]
    steps = [*_steps_before(manifest), Step.of(manifest, _steps_of_training(directory))]
    return [asdict(step) for step in steps]


def joined(*lineages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The steps of models that are merged, each once, and their licences.

    Where there are several licences, or a model names none and another does, the steps name none, so that what comes of
    them inherits none.
    """
    steps = [dict(step) for step in {json.dumps(step): step for lineage in lineages for step in lineage}.values()]
    named = [{str(step["licence"]) for step in one if step.get("licence") not in _UNNAMED} for one in lineages]
    licences = sorted(set().union(*named))
    if licences and not all(named):
        licences.append("one that is not named")
    return [{**step, "licence": None} if len(licences) > 1 else step for step in steps], licences


def licence_of(manifest: Manifest) -> tuple[str, str | None]:
    """The licence of what a manifest speaks of, as the Hub names it, and whose it is.

    Returns:
        Its own, and None; or, where none was given, that of the last step or model before it that has one, and the name
        of that; `other` where none has.
    """
    *before, own = steps_of(manifest)
    if own.licence not in _UNNAMED:
        return str(own.licence), None
    for step in reversed(before):
        if step.licence not in _UNNAMED:
            return str(step.licence), step.start if step.kind in (FROM_HUB, FOREIGN) else step.kind
    return UNSAID, None


def languages_of(manifest: Manifest) -> list[str]:
    """The languages that the models before what a manifest speaks of are for, each once."""
    return list(dict.fromkeys(language for step in steps_of(manifest) for language in step.languages or ()))


def steps_of(manifest: Manifest) -> list[Step]:
    """The steps that made what a manifest speaks of, the first one first and its own last."""
    return [*_steps_before(manifest), Step.of(manifest)]


def _steps_before(manifest: Manifest) -> list[Step]:
    """Those that a manifest keeps; what is no record of a step is left out."""
    kept = manifest.facts.get("lineage")
    return [_step_of(record) for record in kept if isinstance(record, Mapping)] if isinstance(kept, list) else []


def _step_of(record: Mapping[str, Any]) -> Step:
    """What `asdict` made of a step, as far as it is that."""
    kinds = {field.name: _KINDS.get(field.name, str) for field in fields(Step)}
    known: dict[str, Any] = {name: record[name] for name, kind in kinds.items() if isinstance(record.get(name), kind)}
    return Step(**{"kind": FOREIGN, **known})


def _said_by(card: str | Path) -> dict[str, Any]:
    """What a card says for those that come of its model: a file, or the card of a model of the Hub."""
    try:
        name, revision = divided(str(card))
        path = card if isinstance(card, Path) else hf_hub_download(name, "README.md", revision=revision)
        said = metadata_load(path) or {}
    except (OSError, ValueError, YAMLError):  # no card, or none that can be read
        return {}
    licence, languages = said.get("license"), said.get("language")
    named = [languages] if isinstance(languages, str) else languages if isinstance(languages, list) else []
    return {
        "licence": licence if isinstance(licence, str) and licence not in _UNNAMED else None,
        "languages": [language for language in named if isinstance(language, str)] or None,
    }


def _manifest_of(directory: Path) -> Manifest | None:
    """Of a directory, or of the work that it is a part of."""
    if found := Manifest.load(directory):
        return found
    above = Manifest.load(directory.parent)
    if above is None:
        return None
    claimed = any(Path(directory.name).match(claim) for claim in above.claims)
    return above if claimed or any(file.startswith(f"{directory.name}/") for file in above.files) else None


def _steps_of_training(directory: Path) -> int | None:
    """Steps of optimisation, of the state that a Trainer leaves beside its weights."""
    try:
        steps: int = json.loads((directory / "trainer_state.json").read_text(encoding="utf-8"))["global_step"]
    except (OSError, ValueError, KeyError):
        return None
    return steps
