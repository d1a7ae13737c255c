"""The manifest: what a directory that we wrote is, what it was made from, and which files in it are ours.

It answers, for every directory: may this be replaced, is it done, may it go on, where does this figure come from. No
other file marks a directory as ours.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from hf_dense.storage.files import write_text

logger = logging.getLogger(__name__)

MANIFEST: Final = "hf_dense.json"
OWN_PREFIX: Final = ".hf_dense"  # of the names of locks and of files that are being written

RUNNING, COMPLETE = "running", "complete"
_SMALL: Final = 2**24  # bytes; of larger files, which may take minutes to read, some blocks are hashed
_BLOCKS, _BLOCK = 4096, 4096  # of them, and bytes of each
_SAMPLED: Final = "blocks "  # before the hash of these
_DEEPEST: Final = 100  # tables in one another: ours have a few, and what copies and writes them reaches no thousand
UNSAID: Final = "other"  # the licence of what nobody gave one


@dataclass(frozen=True)
class Manifest:
    """What `hf_dense.json` says of its directory.

    Attributes:
        kind: of output: `corpus`, `retriever`, `evaluation`, ...
        state: `running` or `complete`.
        made_from: all that the result depends on, by name: fingerprints of what was read, settings, our version.
        sources: the names (paths, Hub ids) of what was read, for people; they do not decide anything.
        files: paths from the directory, and bytes, of the files that are ours.
        hashes: SHA-256 of those of them that are small, and of blocks of the others; of what is published, of all.
        claims: names in the directory that work has to itself while it runs, with all below them; `*` is any text.
        command: what wrote it.
        licence: of the content.
        seed: of all draws.
        run: commit, hardware and date.
        facts: what is worth knowing of the result: counts, seconds.
    """

    kind: str
    state: str
    made_from: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    command: str = ""
    licence: str = UNSAID
    seed: int | None = None
    run: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def save(self, directory: Path) -> None:
        """Write it into its directory."""
        write_text(directory / MANIFEST, self.as_text())

    def as_text(self) -> str:
        """What its file holds."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Manifest | None:
        """The manifest of a directory; None where there is none that can be read."""
        file = Path(directory) / MANIFEST
        try:
            values = json.loads(file.read_text(encoding="utf-8") if file.is_file() else "")  # no pipe
            found = cls(**{**values, "claims": tuple(values.get("claims", ()))})
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return None
        if _depth(values) > _DEEPEST:
            return None
        tables = (found.made_from, found.sources, found.files, found.hashes, found.run, found.facts)
        words = (found.kind, *found.claims)
        sound = all(isinstance(table, dict) for table in tables) and all(
            isinstance(word, str) and word for word in words
        )
        return found if sound else None

    def listing(self, directory: Path, files: Mapping[str, int]) -> Manifest:
        """This one of some files in its directory (see `list_files`), as they are."""
        own = {name: directory / name for name in files if not (directory / name).is_symlink()}
        hashes = {name: (sha256_of if files[name] <= _SMALL else _sampled)(file) for name, file in own.items()}
        return replace(self, files=dict(files), hashes=hashes)

    def is_unchanged(self, directory: Path, name: str) -> bool:
        """Whether a file of the directory is one that is listed, as it was written, as far as is known of it."""
        file, digest = directory / name, self.hashes.get(name)
        same = file.lstat().st_size == self.files.get(name)
        if not same or digest is None:
            return same
        found = _sampled if str(digest).startswith(_SAMPLED) else sha256_of
        return not file.is_symlink() and found(file) == digest


def _depth(values: Any) -> int:
    """How deep tables and lists of JSON lie in one another."""
    depth, level = 0, [values]
    while level:
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        depth, level = depth + 1, [value for values in inner for value in values]
    return depth


def seconds_of(made: str | os.PathLike[str]) -> float:
    """How long the making of a directory took, such as a training; 0 where its manifest does not say."""
    manifest = Manifest.load(made)
    return float(manifest.facts.get("seconds", 0.0)) if manifest else 0.0


def sha256_of(content: Path | bytes) -> str:
    """The SHA-256 of a file, or of what one is to hold, as the Hub has it of large ones."""
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sampled(file: Path) -> str:
    """The SHA-256 of blocks from the first to the last bytes of a large file, at equal distances: all that was changed
    in one piece is seen where the piece reaches from one block to the next.
    """
    last, digest = file.stat().st_size - _BLOCK, hashlib.sha256()
    with file.open("rb") as stream:
        for number in range(_BLOCKS):
            stream.seek(number * last // (_BLOCKS - 1))
            digest.update(stream.read(_BLOCK))
    return _SAMPLED + digest.hexdigest()


def difference(
    before: Mapping[str, Any], now: Mapping[str, Any], names: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
) -> str | None:
    """The first thing in which two `made_from` differ, as a sentence has it; None where nothing does.

    Args:
        before: of an output that is there.
        now: of the one that is wanted.
        names: of the sources of both, which are shown in place of fingerprints.

    >>> difference({"corpus": "aa", "length": 128}, {"corpus": "aa", "length": 64})
    'another length (128, now 64)'
    >>> difference({"documents": "old"}, {"documents": "new"})
    'other documents (old, now new)'
    """
    for name in dict.fromkeys([*now, *before]):
        old, new = before.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            if inner := difference(_named(old, name), _named(new, name)):
                return inner
        elif old != new and name in names[0] and names[0][name] == names[1].get(name):
            return f"{_other(name)} ({names[0][name]}, whose content has changed)"
        elif old != new:
            shown = [sources.get(name) or _shown(value) for sources, value in zip(names, (old, new), strict=True)]
            return f"{_other(name)} ({shown[0]}, now {shown[1]})"
    return None


def _named(part: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of a `made_from`; what has no name in it has that of the part."""
    return {key or name: value for key, value in part.items()}


def _other(name: str) -> str:
    """Of a setting or a source, in the number that its name is in."""
    several = name.isalpha() and name.endswith("s") and not name.endswith(("ss", "us"))
    return f"{'other' if several else 'another'} {name}"


def _shown(value: Any) -> str:
    """A value in a few characters; of a fingerprint the first ones."""
    text = "none" if value is None else str(value)
    longest, kept = (60, 60) if " " in text else (24, 12)
    return text if len(text) <= longest else f"{text[:kept]}..."


def list_files(directory: Path) -> dict[str, int]:
    """Paths from `directory` and bytes of its files, but for those below another manifest, and for locks."""
    found = {}
    for path in _walk(directory):
        name = path.relative_to(directory).as_posix()
        if name != MANIFEST and not path.name.startswith(OWN_PREFIX) and _owner(path, directory) == directory:
            found[name] = path.lstat().st_size
    return found


def missing_file(directory: Path, spare: Iterable[str] = ()) -> str | None:
    """A file that the manifest of a directory lists and that is gone; None where all are there.

    Args:
        directory: of ours.
        spare: names in it, `*` is any text, that may go, with all below them.
    """
    found = Manifest.load(directory)
    names = [MANIFEST] if found is None else [name for name in found.files if not _is_below(name, spare)]
    return next((name for name in names if not (directory / name).is_file()), None)


def foreign_file(directory: Path) -> Path | None:
    """A file in one of our directories that we did not write, or that was changed since; None where all are ours."""
    manifests = {}
    for path in _walk(directory):
        owner = _owner(path, directory)
        if owner not in manifests:
            manifests[owner] = Manifest.load(owner)
        if not _is_ours(path, owner, manifests[owner]):
            return path
    return None


def remove_ours(directory: Path) -> None:
    """Delete what our manifests in `directory` list, and the directories that are empty then; its own lock stays.

    Its own manifest goes last, so that what a killed run leaves is known as ours.
    """
    ours = [path for path in _walk(directory) if _is_ours(path, owner := _owner(path, directory), Manifest.load(owner))]
    ours = [path for path in ours if not (path.parent == directory and path.name.startswith(OWN_PREFIX))]
    own = directory / MANIFEST
    for path in sorted(ours, key=lambda path: (path.name == MANIFEST, -len(path.parts))):
        if path != own:
            path.unlink()
    for place, _, _ in os.walk(directory, topdown=False):
        if place == str(directory) and own in ours:
            own.unlink()
        if not any(Path(place).iterdir()):
            Path(place).rmdir()


def inner_outputs(directory: Path) -> list[Path]:
    """Outputs of other commands inside of one, from it: the index in a model, for instance."""
    return sorted(file.parent.relative_to(directory) for file in directory.glob(f"*/**/{MANIFEST}"))


def warn_of_inner(directory: Path) -> None:
    """Say what else goes where an output is replaced: outputs inside that another command wrote, as far as is known."""
    outer = Manifest.load(directory)
    own = outer.command if outer else ""
    found = {place: Manifest.load(directory / place) for place in inner_outputs(directory)}
    others = [str(place) for place, inner in found.items() if not own or inner is None or inner.command != own]
    if others:
        logger.warning("%s is replaced, and with it what lies in it: %s.", directory, ", ".join(others))


def is_claimed(name: str, manifest: Manifest) -> bool:
    """Whether a file, by its path from the directory, is below a name that the manifest claims."""
    return _is_below(name, manifest.claims)


def _is_below(name: str, claims: Iterable[str]) -> bool:
    return any(Path(Path(name).parts[0]).match(claim) for claim in claims)


def _is_ours(path: Path, owner: Path, manifest: Manifest | None) -> bool:
    if manifest is None:
        return False
    if path.name.startswith(OWN_PREFIX):
        return True  # also in a directory below, of a run that was killed before it wrote the manifest there
    if path.name == MANIFEST:
        return path.parent == owner
    name = path.relative_to(owner)
    if manifest.state == RUNNING and is_claimed(name.as_posix(), manifest):
        return True
    running = manifest.state == RUNNING and name.as_posix() in manifest.files
    return running or manifest.is_unchanged(owner, name.as_posix())


def _owner(path: Path, root: Path) -> Path:
    """The directory, `root` or one below it, whose manifest speaks of a file."""
    return next((place for place in path.parents if place == root or (place / MANIFEST).is_file()), root)


def _walk(directory: Path) -> Iterator[Path]:
    """All files below a directory; symbolic links are files, whatever they lead to."""
    for place, folders, files in os.walk(directory, followlinks=False):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        yield from (Path(place) / name for name in sorted([*files, *links]))
