"""Where a number comes from: the code, the machine, the packages, the data, the seed, the day."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "hf_dense",
    "torch",
    "transformers",
    "sentence-transformers",
    "datasets",
    "accelerate",
    "mteb",
    "bm25s",
    "faiss-cpu",
    "numpy",
)


def provenance(seed: int, data: str | Path, content_hash: str) -> dict[str, Any]:
    """Describe the run that is under way, ready for JSON.

    Args:
        seed: of the run.
        data: its dataset directory.
        content_hash: of that (see `hf_dense.data.collections`).

    Returns:
        `commit` (id and whether the tree differs from it; None outside git), `seed`, `hardware`, `versions`
        (None where not installed), `data` (path and content hash), `date` (UTC, ISO 8601).
    """
    return {
        **describe_run(),
        "seed": seed,
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "data": {"path": str(data), "content_hash": content_hash},
    }


def describe_run() -> dict[str, Any]:
    """Commit, hardware and date of the run that is under way, ready for JSON."""
    return {
        "commit": _own_commit(),
        "hardware": describe_hardware(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _own_commit() -> dict[str, Any] | None:
    """The commit of hf_dense; None where it is installed, perhaps within the git tree of another project."""
    here = Path(__file__)
    return describe_commit(here.parent) if _git(here.parent, "ls-files", "--error-unmatch", here.name) else None


def describe_commit(directory: Path) -> dict[str, Any] | None:
    """Give the commit of the git tree around `directory` as `id` and `dirty`; None outside git."""
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"id": commit, "dirty": bool(_git(directory, "status", "--porcelain", "--untracked-files=no"))}


def commit_in_words(commit: object) -> str | None:
    """The head of a commit, and whether there were changes; None where that is no record of one."""
    if not isinstance(commit, Mapping) or not commit.get("id"):
        return None
    return f"{str(commit['id'])[:10]}{', with changes' if commit.get('dirty') else ''}"


def hardware_in_words(hardware: object) -> str | None:
    """Processor, memory and accelerator; None where that is no record of them."""
    if not isinstance(hardware, Mapping) or not hardware:
        return None
    cores, processor, memory = (hardware.get(name, "?") for name in ("cores", "cpu", "memory_gib"))
    named = "core" if cores == 1 else "cores"
    return f"{cores} {named} of {processor}, {memory} GiB, {hardware.get('cuda') or 'no GPU'}"


def describe_hardware() -> dict[str, Any]:
    """Give `cpu` (model), `cores` usable by this process, `memory_gib` of the machine, `cuda` (device name or None)."""
    import torch  # which takes seconds, and is not needed to know what an output is

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(directory: Path, *command: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(directory), *command], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
