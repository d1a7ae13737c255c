"""Models on the Hub."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import create_repo, upload_folder

from hf_dense.errors import InputError
from hf_dense.hub.cards import write_model_card
from hf_dense.storage.manifest import COMPLETE, MANIFEST, Manifest


def publish_model(
    directory: str | Path,
    repo: str,
    *,
    token: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
) -> None:
    """Upload a model that hf_dense wrote: the files that its manifest lists, and that; its card then names `repo`.

    Checkpoints of its training stay here.

    Args:
        directory: of the model.
        repo: on the Hub, made where it is not there.
        token: of the account; by default the one that is logged in.
        private: whether a repository that is made is private; by default as the account has it.
        revision: branch that is written to.

    Raises:
        InputError: no complete output of hf_dense is there.
    """
    place = Path(directory)
    manifest = Manifest.load(place)
    if manifest is None or manifest.state != COMPLETE:
        raise InputError(f"{place} is no complete output of hf_dense; export the model first.")
    name = create_repo(repo, token=token, private=private, exist_ok=True).repo_id
    card = place / "README.md"
    if card.is_file() and card.stat().st_size == manifest.files.get("README.md"):  # else somebody has written one
        write_model_card(place, manifest, name=name)
    upload_folder(
        repo_id=name,
        folder_path=place,
        token=token,
        revision=revision,
        allow_patterns=[MANIFEST, *manifest.files],
        ignore_patterns="checkpoint-*",
        commit_message="Upload the model",
    )
