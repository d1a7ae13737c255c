"""Models, data and reports on the Hub: all that their manifests list, with a card."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from hf_dense.errors import InputError
from hf_dense.hub.cards import Measured, form_of, render_model_card
from hf_dense.hub.lineage import steps_of
from hf_dense.hub.output_cards import WITH_PARTS, render_output_card
from hf_dense.hub.repositories import Repository
from hf_dense.storage.manifest import COMPLETE, MANIFEST, Manifest, sha256_of
from hf_dense.storage.process_group import decide_together

if TYPE_CHECKING:
    from transformers import TrainingArguments

logger = logging.getLogger(__name__)

_CARD: Final = "README.md"
_ABSOLUTE: Final = re.compile(r"""(?:^|[\s=,'"])(/[^\s:,'"]+)""")  # a path, in a name or a command
_PLACES: Final = 3  # that are named
_ADAPTER: Final = "adapter_config.json"  # of PEFT, beside weights that are added to those of another model
_OF_TRAINING: Final = ("checkpoint-", "runs/", "training_args.bin")  # of a run; the last may hold a token


def publish(
    directory: str | Path,
    repo: str,
    *,
    results: Sequence[Measured] = (),
    token: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
) -> str:
    """Publish what hf_dense wrote: the files that its manifest lists, and that, in one commit, with a card.

    The card of a model is rendered for its new name; data have their own; of anything else one is made. Nothing is
    written here, and what a training keeps to go on with stays here.

    Args:
        directory: of a model, of a fine-tuning (whose model is published), of data, of evaluations, of a report, ...
        repo: on the Hub, made where it is not there: of models for a model, else of datasets.
        results: what was measured of a model, for its card and the Hub's `model-index`; where none is given and the
            same model is there already, those on its card stay.
        token: of the account; by default the one that is logged in.
        private: whether a repository that is made is private, by default as the account has it; a public one is
            refused then.
        revision: branch that is written to, made where it is not there.

    Returns:
        The address of the repository.

    Raises:
        InputError: no complete output of hf_dense is there, or it was changed since; results of what is no model; an
            adapter without its model; or it may not be published under that name (see `Repository.write`).
    """
    place, manifest = published_part(directory)
    form = _form(place)
    if results and form is None:
        raise InputError(f"{place} holds no model that results could be of; leave them out.")
    repository = Repository(repo, "dataset" if form is None else "model", token, private, revision)
    files = _files(place, manifest)
    _check_adapters(place, files)
    has_card = _CARD in manifest.files
    if has_card and not manifest.is_unchanged(place, _CARD):
        if results:
            raise InputError(f"{place / _CARD} was changed by hand, so results cannot be put into it; remove it first.")
    elif form is not None or not has_card:
        name = repository.check()
        if form:
            known = list(results) or manifest.facts.get("results") or _results_there(repository, manifest, files)
            manifest = replace(manifest, facts={**manifest.facts, **({"results": known} if known else {})})
            text = render_model_card(name, manifest, form, revision)
        else:
            text = render_output_card(name, manifest, place, revision)
        files[_CARD] = text.encode()
    _warn_of_places(manifest, *(part for _, part in _parts(place, manifest)))
    manifest = _published(manifest, files)
    files[MANIFEST] = manifest.as_text().encode()
    return repository.write(manifest, files, f"Publish the {manifest.kind}")


@dataclass(frozen=True)
class Publication:
    """Where the result of a training is to be published."""

    repo: str
    token: str | None
    private: bool | None
    revision: str | None

    @classmethod
    def of(cls, arguments: TrainingArguments, default: str, kind: str) -> Publication | None:
        """What a Trainer's arguments say of it; the Trainer, which would make an empty repository, is kept from it.

        Args:
            arguments: `push_to_hub`, which is false afterwards, `hub_model_id`, `hub_token`, `hub_private_repo` and
                `hub_revision`.
            default: name of the repository where none is given.
            kind: of the output that is published, as its manifest names it.

        Raises:
            InputError: it cannot be published, as far as that is known before it is made, or checkpoints are to be.
        """
        if not arguments.push_to_hub:
            return None
        if str(arguments.hub_strategy).rpartition(".")[2].lower() in ("checkpoint", "all_checkpoints"):
            raise InputError(
                "A training is published when it is complete, its checkpoints are not; leave hub_strategy."
            )
        arguments.push_to_hub = False
        own = cls(
            arguments.hub_model_id or default, arguments.hub_token, arguments.hub_private_repo, arguments.hub_revision
        )
        repository = Repository(own.repo, "model", own.token, own.private, own.revision)
        decide_together(lambda: repository.check_room(kind))
        return own

    def publish(self, directory: Path) -> None:
        """Publish the result, and say where; see `publish`."""
        address = publish(directory, self.repo, token=self.token, private=self.private, revision=self.revision)
        logger.warning("Published as %s", address)


def published_part(directory: str | Path) -> tuple[Path, Manifest]:
    """The directory itself, or the model of a fine-tuning, with its manifest.

    Raises:
        InputError: nothing complete of ours is there, or several models.
    """
    place = Path(directory)
    manifest = Manifest.load(place)
    if not place.is_dir():
        raise InputError(f"There is no directory {place}; name what hf_dense wrote, and then the repository.")
    if manifest is None:
        inner = [file.parent for below in ("*", "*/*") for file in sorted(place.glob(f"{below}/{MANIFEST}"))]
        within = f", but {inner[0]} in it was, and can be published" if inner else ""  # of a pipeline's evaluations
        raise InputError(
            f"{place} was not written by hf_dense{within}; a model becomes publishable by hf-dense export."
        )
    if manifest.state != COMPLETE:
        raise InputError(f"{place} is not complete; give the command that writes it again, and publish it then.")
    if (place / "model" / MANIFEST).is_file() and _form(place) is None:
        return published_part(place / "model")
    if models := sorted(str(file.parent) for file in place.glob(f"*/model/{MANIFEST}")):
        raise InputError(f"{place} holds several models; publish one of them: {', '.join(models)}.")
    return place, manifest


def _warn_of_places(*manifests: Manifest) -> None:
    """Say which places of this machine the card and manifests name, as sources and commands are kept as typed."""
    steps = [step for manifest in manifests for step in steps_of(manifest)]
    said = [text for step in steps for text in (step.start, step.data, step.command) if text]
    if places := list(dict.fromkeys(place for text in said for place in _ABSOLUTE.findall(text))):
        more = f" and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
        logger.warning(
            "Whoever reads what is published sees places of this machine: %s%s. What is made from relative paths names "
            "none.",
            ", ".join(places[:_PLACES]),
            more,
        )


def _form(place: Path) -> str | None:
    """The form of the model in a directory, if it holds one."""
    try:
        return form_of(place)
    except InputError:
        return None


def _results_there(repository: Repository, manifest: Manifest, files: Mapping[str, Path | bytes]) -> list[Any]:
    """The results that the card on the Hub has, where the model there is this one; else it is said that they go."""
    there = repository.manifest()
    results = there.facts.get("results") if there else None
    if not there or there.kind != manifest.kind or not isinstance(results, list):  # another kind is refused later
        return []
    hashes = {name: value for name, value in _published(manifest, files).hashes.items() if name != _CARD}
    if hashes == {name: value for name, value in there.hashes.items() if name != _CARD}:
        return results
    logger.warning("The results on the card of %s are of another model, and are left out", repository.name)
    return []


def _files(place: Path, manifest: Manifest) -> dict[str, Path | bytes]:
    """The files that are published, by their path in the repository; raises where one is not as it was written."""
    listed = [name for name in manifest.files if not name.startswith(_OF_TRAINING)]
    for name in listed:
        file = place / name
        if not _is_inside(file, place) or not (name == _CARD or manifest.is_unchanged(place, name)):
            raise InputError(f"{file} is not as hf_dense wrote it; give the command that writes {place} again.")
    files: dict[str, Path | bytes] = {name: place / name for name in listed}
    for part, inner in _parts(place, manifest):
        prefix, own = part.relative_to(place).as_posix(), _files(part, inner)
        files |= {f"{prefix}/{name}": path for name, path in own.items()}
        files[f"{prefix}/{MANIFEST}"] = _published(inner, own).as_text().encode()
    return files


def _parts(place: Path, manifest: Manifest) -> list[tuple[Path, Manifest]]:
    """The directories that are published with evaluations, and their manifests."""
    found = sorted(place.glob(f"*/*/{MANIFEST}")) if manifest.kind == WITH_PARTS else []
    return [published_part(file.parent) for file in found]


def _check_adapters(place: Path, files: Mapping[str, Path | bytes]) -> None:
    """Raise `InputError` for an adapter of a model that lies on this machine: what is published would load nowhere."""
    for name, content in files.items():
        if PurePath(name).name == _ADAPTER and isinstance(content, Path):
            base = json.loads(content.read_text(encoding="utf-8")).get("base_model_name_or_path")
            if base is None or Path(base).is_absolute() or Path(base).is_dir():
                raise InputError(
                    f"{place} holds an adapter of {base}, which only this machine has, and not the whole model; merge "
                    "both (merge_and_unload of PEFT) and publish what comes of it."
                )


def _published(manifest: Manifest, files: Mapping[str, Path | bytes]) -> Manifest:
    """A manifest that knows the content of all its files, and of the card, as they are published."""
    own = {name: content for name, content in files.items() if name in (*manifest.files, _CARD)}
    sizes = {
        name: len(content) if isinstance(content, bytes) else content.stat().st_size for name, content in own.items()
    }
    hashes = {name: sha256_of(content) for name, content in own.items()}
    return replace(manifest, files={**manifest.files, **sizes}, hashes={**manifest.hashes, **hashes})


def _is_inside(file: Path, place: Path) -> bool:
    """Whether a file is there, below `place`: a manifest that somebody else wrote may name any file of this machine."""
    return file.is_file() and file.resolve().is_relative_to(place.resolve())
