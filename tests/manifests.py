"""What a directory was made from, as tests look at it."""

from __future__ import annotations

from pathlib import Path

from hf_dense.storage.manifest import Manifest


def manifest_of(directory: str | Path) -> Manifest:
    """The manifest of a directory, which has one."""
    manifest = Manifest.load(directory)
    assert manifest is not None
    return manifest
