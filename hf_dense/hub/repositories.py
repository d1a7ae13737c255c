"""Repositories of the Hub that we write: complete in one commit, and nothing of anybody else's is touched."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, RepoCard, RepoFile, constants
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from hf_dense.errors import InputError, first_line
from hf_dense.hub.reach import HubUnreachable
from hf_dense.storage.manifest import MANIFEST, Manifest, sha256_of

logger = logging.getLogger(__name__)

_CARD: Final = "README.md"
_OF_THE_HUB: Final = {".gitattributes", _CARD}  # in a repository that a person has just made
_BUSY: Final = (429, 500, 502, 503, 504)  # statuses of a Hub that may soon be well again
_MOVED: Final = 412  # status where there has been a commit since we looked
# Names that Git takes for a branch, and nothing takes for a commit or another reference.
_BRANCH: Final = re.compile(r"(?!refs/|[0-9a-f]{40}$|.*\.\.)\w[\w.+-]*(/\w[\w.+-]*)*(?<!\.)(?<!\.lock)")
_PAUSES: Final = (1, 4, 8)  # seconds between two tries; of what only reads, the client makes more
# What the client raises where no answer comes: errors of its HTTP library, and of the system.
_UNREACHABLE: Final[tuple[type[Exception], ...]] = HfHubHTTPError.__bases__

T = TypeVar("T")


@dataclass(frozen=True)
class Repository:
    """A place on the Hub.

    Args:
        name: `me/name`, or `name` of the account that is logged in.
        kind: `model` or `dataset`.
        token: of the account; by default the one that is logged in.
        private: whether it is private when it is made, by default as the account has it; one that is there and public
            is refused then.
        revision: branch that is written to, made where it is not there.
    """

    name: str
    kind: str = "model"
    token: str | None = None
    private: bool | None = None
    revision: str | None = None

    def check(self) -> str:
        """The full name, when the name is one and the token's account may have it.

        Raises:
            InputError: it is none, nor is the branch's, there is no token, none that may write there, or no Hub.
        """
        if self.revision is not None and not _BRANCH.fullmatch(self.revision):
            raise InputError(f"{self.revision!r} is no name of a branch; write to one such as 'main' or 'v2'.")
        api = HfApi(token=self.token)
        with self._sentences():
            _patiently(lambda: api.repo_exists(self.name, repo_type=self.kind))  # raises where it is no name
            account: dict[str, Any] = _patiently(api.whoami)
        name = self.name if "/" in self.name else f"{account['name']}/{self.name}"
        role = account.get("auth", {}).get("accessToken", {}).get("role")  # others say what they may when they write
        owners = [account["name"], *(each["name"] for each in account.get("orgs", []))]
        if role == "read" or (role == "write" and name.partition("/")[0] not in owners):
            raise InputError(self._not_allowed(name))
        return name

    def check_room(self, kind: str | None = None) -> None:
        """Pass when an output may be written there, as far as that is known before it is made.

        Args:
            kind: of the output, as its manifest names it; None where that is not known yet.

        Raises:
            InputError: as `write`, for all but the card and files of ours that were edited there.
        """
        place: dict[str, Any] = {"repo_type": self.kind, "repo_id": self.check()}
        with self._sentences():
            _patiently(lambda: self._room(HfApi(token=self.token), place, kind))

    def manifest(self) -> Manifest | None:
        """Of what we published there before; None where nothing is there that we did.

        Raises:
            InputError: as `check`.
        """
        api = HfApi(token=self.token)
        place: dict[str, Any] = {"repo_type": self.kind, "repo_id": self.check()}
        with self._sentences():
            there, commit = _patiently(lambda: self._files(api, place))
            if MANIFEST not in there:
                return None
            return Manifest.load(Path(api.hf_hub_download(**place, filename=MANIFEST, revision=commit)).parent)

    def write(self, manifest: Manifest, files: Mapping[str, Path | bytes], message: str) -> str:
        """Make the repository where it is not there, and write files in one commit.

        Files that we published there before and that are none of these are removed.

        Args:
            manifest: of what is written; a repository that holds anything else is refused.
            files: what is written, by the path in the repository; a path stands for the file there.
            message: of the commit.

        Returns:
            The address of the repository.

        Raises:
            InputError: it may not be written, holds something that hf_dense did not publish, the Hub does not take the
                card, or is not reached.
        """
        place: dict[str, Any] = {"repo_type": self.kind, "repo_id": self.check()}
        with self._sentences():
            self._check_card(files.get(_CARD))
            return _patiently(lambda: self._write(place, manifest, files, message))

    def _check_card(self, card: Path | bytes | None) -> None:
        """Raise `InputError` where the Hub would not take a card, a licence that it does not know for instance."""
        if card is None:
            return
        text = card.decode() if isinstance(card, bytes) else card.read_text(encoding="utf-8")
        try:
            _patiently(lambda: RepoCard(text, ignore_metadata_errors=True).validate(repo_type=self.kind))
        except ValueError as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise InputError(f"The Hub does not take the card of {self.name}: {reason}.") from error

    def _write(self, place: dict[str, Any], manifest: Manifest, files: Mapping[str, Path | bytes], message: str) -> str:
        """See `write`; done twice, it is as done once. The Hub does not take it where somebody wrote in between."""
        api = HfApi(token=self.token)
        ours, commit = self._ours(api, place, manifest, files)
        stale = ours - files.keys()
        address = api.create_repo(**place, private=self.private, exist_ok=True)
        if self.revision is not None:
            api.create_branch(**place, branch=self.revision, revision=commit, exist_ok=True)
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            *(CommitOperationAdd(path, content) for path, content in files.items()),
            *(CommitOperationDelete(path) for path in sorted(stale)),
        ]
        api.create_commit(
            **place, operations=operations, commit_message=message, revision=self.revision, parent_commit=commit
        )
        return str(address)

    def _is_public(self, api: HfApi, place: dict[str, Any]) -> bool:
        """Whether it is there, for everybody to read."""
        try:
            return not api.repo_info(**place).private
        except RepositoryNotFoundError:
            return False

    def _room(
        self, api: HfApi, place: dict[str, Any], kind: str | None
    ) -> tuple[dict[str, RepoFile], str | None, Callable[[str], Path]]:
        """As `_files` of where an output would go, and what fetches them; raises where it may not go there."""
        if self.private and self._is_public(api, place):
            raise InputError(
                f"The repository {place['repo_id']} is public, and so would be what is written there; make it private "
                "on the Hub, or name another one."
            )
        if self.revision is not None and self._is_tag(api, place):
            raise InputError(
                f"{self.revision!r} is a tag of {place['repo_id']}, which stands for what it was given to; write to a "
                "branch, and move the tag on the Hub."
            )
        there, commit = self._files(api, place)

        @cache
        def fetch(path: str) -> Path:
            return Path(api.hf_hub_download(**place, filename=path, revision=commit))

        foreign = there.keys() - _OF_THE_HUB
        if not foreign:
            if _CARD not in there or not _says_something(fetch(_CARD)):
                return {}, commit, fetch
            foreign = {_CARD}
        known = Manifest.load(fetch(MANIFEST).parent) if MANIFEST in there else None
        if known is None:
            raise InputError(
                f"The repository {place['repo_id']} holds {min(foreign)!r}, which hf_dense did not "
                "publish; name another one."
            )
        if kind not in (None, known.kind):
            raise InputError(
                f"The repository {place['repo_id']} holds another kind of output ({known.kind}, not {kind}); "
                "name another one."
            )
        return there, commit, fetch

    def _is_tag(self, api: HfApi, place: dict[str, Any]) -> bool:
        """Whether what is to be written to is a tag there."""
        try:
            return self.revision in {tag.name for tag in api.list_repo_refs(**place).tags}
        except RepositoryNotFoundError:
            return False

    def _ours(
        self, api: HfApi, place: dict[str, Any], manifest: Manifest, files: Mapping[str, Path | bytes]
    ) -> tuple[set[str], str | None]:
        """The files there that we published, by their manifests, and the commit that has them; raises where one that
        is not ours would go.
        """
        there, commit, fetch = self._room(api, place, manifest.kind)

        def is_unchanged(path: str) -> bool:
            """As it was published, or as it is now to be: by its bytes and, where that is known, by its content."""
            entry, new = there[path], files.get(path)
            if entry.size != listed.get(path):
                return False
            if path not in hashes or (new is not None and _is_blob(entry, new)):
                return True
            return (entry.lfs.sha256 if entry.lfs else sha256_of(fetch(path))) == hashes[path]

        listed, hashes = dict[str, int](), dict[str, str]()
        for path in (path for path in there if path.rpartition("/")[2] == MANIFEST):
            found = Manifest.load(fetch(path).parent)
            folder = path.removesuffix(MANIFEST)
            listed |= {f"{folder}{name}": size for name, size in (found.files if found else {}).items()}
            hashes |= {f"{folder}{name}": digest for name, digest in (found.hashes if found else {}).items()}
            listed[path] = there[path].size
        for path in sorted(there.keys() & {*files, *listed}):
            if not is_unchanged(path):
                raise InputError(
                    f"The repository {place['repo_id']} holds {path!r}, which is not as hf_dense published it; move it "
                    "away there, or name another repository."
                )
        return there.keys() & listed.keys(), commit

    def _files(self, api: HfApi, place: dict[str, Any]) -> tuple[dict[str, RepoFile], str | None]:
        """All files by their paths, and the commit that has them; none where there is no repository."""
        for revision in dict.fromkeys([self.revision, None]):  # a branch that is not there begins as the main one
            try:
                commit = api.repo_info(**place, revision=revision).sha
                tree = api.list_repo_tree(**place, revision=commit, recursive=True)
                return {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}, commit
            except RevisionNotFoundError:
                continue
            except RepositoryNotFoundError:
                break
        return {}, None

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Say in a sentence why the Hub cannot be written."""
        try:
            yield
        except InputError:
            raise
        except HFValidationError as error:
            raise InputError(
                f"{self.name!r} is no name of a repository; it is me/name, of letters, digits, '-', '_' and '.'."
            ) from error
        except HubUnreachable as error:
            raise InputError(f"The Hub ({constants.ENDPOINT}) cannot be reached: {error}; try again later.") from error
        except OfflineModeIsEnabled as error:
            raise InputError("The Hub is not to be asked (HF_HUB_OFFLINE is set); unset that to publish.") from error
        except LocalTokenNotFoundError as error:
            raise InputError(
                "There is no token of the Hub; log in with 'hf auth login', or set HF_TOKEN, to publish."
            ) from error
        except HfHubHTTPError as error:
            raise InputError(self._refusal(error)) from error
        except _UNREACHABLE as error:
            reason = first_line(error).rstrip(".")
            raise InputError(f"The Hub ({constants.ENDPOINT}) cannot be reached: {reason}; try again later.") from error
        except Exception as error:  # whatever the client comes to over an answer that is none
            reason = first_line(error).rstrip(".")
            raise InputError(
                f"The Hub ({constants.ENDPOINT}) does not answer as it should: {reason}; try again later."
            ) from error

    def _not_allowed(self, name: str) -> str:
        return f"The token may not write to {name}; name a repository of yours, or take a token that may."

    def _refusal(self, error: HfHubHTTPError) -> str:
        if error.response.status_code == 401:
            return "The Hub does not accept the token; log in anew with 'hf auth login', or set another HF_TOKEN."
        if error.response.status_code in (403, 404):
            return self._not_allowed(self.name)
        if error.response.status_code == _MOVED:
            return f"Somebody else writes to {self.name} at the same time; try again later."
        if error.response.status_code in _BUSY:
            status = f"{error.response.status_code} {error.response.reason_phrase}"
            return f"The Hub is too busy to publish {self.name} ({status}); try again later."
        reason = (error.server_message or str(error)).strip().partition("\n")[0].rstrip(".")
        return f"The Hub refuses to publish {self.name}: {reason}."


def _says_something(card: Path) -> bool:
    """Whether a card has words; the one that the Hub writes for a new repository has a licence at most."""
    return bool(RepoCard.load(card, ignore_metadata_errors=True).text.strip())


def _is_blob(entry: RepoFile, content: Path | bytes) -> bool:
    """Whether a file of a repository holds just that, by Git's name for it; not told of a large one."""
    if entry.lfs:
        return False
    data = content if isinstance(content, bytes) else content.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest() == entry.blob_id


def _patiently(ask: Callable[[], T]) -> T:
    """What the Hub answers, perhaps only after some tries while it is busy, or written to by others."""
    for pause in _PAUSES:
        try:
            return ask()
        except HfHubHTTPError as error:
            if error.response.status_code not in (*_BUSY, _MOVED):
                raise
            why = "was written to meanwhile" if error.response.status_code == _MOVED else "is busy"
            logger.warning("The Hub %s (%d); trying again in %d s", why, error.response.status_code, pause)
            time.sleep(pause)
    return ask()
