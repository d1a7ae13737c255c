"""Evaluations that no longer go with the others of their directory: what they were measured on is there no more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hf_dense.evaluation.reranking import FirstPassages
from hf_dense.evaluation.result import RANKINGS_FILE
from hf_dense.evaluation.retrieval import IDENTICAL_IDS, Passages
from hf_dense.evaluation.tasks import drops_queries
from hf_dense.storage.fingerprints import fingerprint_path
from hf_dense.storage.manifest import Manifest


def outdated(place: Path, manifest: Manifest, collections: Mapping[str, str]) -> str | None:
    """Why an evaluation is to be measured again, as "was measured" goes on; None where it is not.

    Args:
        place: its directory, `ROW/TASK` in that of all.
        manifest: of it.
        collections: the fingerprint of each task's collection as it was read last, by the name of the task.
    """
    title = place.resolve().name
    if collections.get(title) not in (None, manifest.made_from["collection"]):
        return "on another collection"
    if _is_of_other_rankings(place, manifest):
        return "on other first passages"
    if _has_own_hits(title, manifest):
        return "with queries among their own hits"
    return None


def _is_of_other_rankings(place: Path, manifest: Manifest) -> bool:
    """Whether the first stage of a re-ranking, in the same folder wherever that was then, was measured anew since."""
    if "first stage" not in manifest.sources:
        return False
    first, own = Path(manifest.sources["first stage"]), place.resolve()
    # ROW/TASK, as its own directory, where hf-dense evaluate made both; else a stage's, beside it
    there = own.parent.parent / first.parent.name if first.name == own.name else own.parent
    rankings = there / first.name / RANKINGS_FILE
    return rankings.is_file() and fingerprint_path(rankings) != manifest.made_from["first stage"]


def _has_own_hits(title: str, manifest: Manifest) -> bool:
    """Whether queries were left among the passages found, or ordered anew, where they are dropped now."""
    made = manifest.made_from
    finds_passages = made.get("protocol") in (Passages.name, FirstPassages.name) and "of" not in made
    return finds_passages and IDENTICAL_IDS not in made and drops_queries(title)
