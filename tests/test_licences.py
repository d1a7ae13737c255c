"""Whatever is installed with the package, extras for users included, may be used wherever the package may."""

from __future__ import annotations

import re
from importlib.metadata import PackageMetadata, PackageNotFoundError, distribution

from packaging.requirements import Requirement

EXTRAS = ("cluster", "documents", "onnx", "serve")
ALLOWED = re.compile(
    r"Apache|\bMIT\b|BSD|\bISC\b|Python Software Foundation|\bPSF\b|Mozilla|\bMPL-2.0\b|Public Domain|Zlib|Unlicense"
)
FORBIDDEN = re.compile(r"\bA?L?GPL|General Public|Commercial|Proprietary", re.IGNORECASE)
OF_CUDA = ("nvidia-", "cuda-")  # NVIDIA's own libraries, which torch brings where it is not the build for CPUs
PARTLY = {"docutils": "public domain and BSD, but for a mode of Emacs, which is not installed"}


def licence_of(about: PackageMetadata) -> str:
    """As a package says it, in one of the three places where packages do."""
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    named = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License ::")]
    return "; ".join(named) or str(about.get("License") or "").partition("\n")[0]


def installed_with(first: str) -> dict[str, str]:
    """Package -> licence, of all that a requirement brings and that is installed here."""
    found, waiting = dict[str, str](), [Requirement(first)]
    seen = set[str]()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        try:
            package = distribution(wanted.name)
        except PackageNotFoundError:  # an extra that was left out
            continue
        found[wanted.name.lower().replace("_", "-")] = licence_of(package.metadata)
        for needed in map(Requirement, package.requires or []):
            if needed.marker is None or any(needed.marker.evaluate({"extra": name}) for name in ("", *wanted.extras)):
                waiting.append(needed)
    return found


def test_every_dependency_may_be_used_where_the_package_may() -> None:
    found = installed_with(f"hf_dense[{','.join(EXTRAS)}]")
    found = {name: licence for name, licence in found.items() if not name.startswith(OF_CUDA)}
    assert {"torch", "numpy", "transformers", "huggingface-hub"} <= found.keys(), "dependencies of dependencies too"
    unknown = {name: licence for name, licence in found.items() if not ALLOWED.search(licence)}
    bound = {name: licence for name, licence in found.items() if FORBIDDEN.search(licence) and name not in PARTLY}
    assert (unknown, bound) == ({}, {})
