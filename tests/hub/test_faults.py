"""A Hub that answers nonsense, refuses or breaks off, at every request of a publication: all is there, or nothing."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
from hub_server import Handler, Hub, make_server
from huggingface_hub import HfApi
from tiny_retriever import write_retriever

from hf_dense import InputError, export
from hf_dense.data import hub_names
from hf_dense.hub.loading import load_retriever
from hf_dense.hub.publish import publish
from hf_dense.storage.manifest import MANIFEST, Manifest

REPO: Final = "someone/retriever"


class Faults:
    """What goes wrong from which request on, and how often; and how many there were. A `file` is never given.

    To whom has no right to `gated` files none is.
    """

    def __init__(self) -> None:
        self.kind, self.first, self.times, self.seen = "", 0, 0, 0
        self.file, self.gated = "", False

    def plan(self, kind: str, first: int, times: int) -> None:
        """Begin to count anew."""
        self.kind, self.first, self.times, self.seen = kind, first, times, 0

    def next(self) -> str:
        """What happens to this request; "" for nothing."""
        self.seen += 1
        return self.kind if self.first < self.seen <= self.first + self.times else ""


class FaultyHandler(Handler):
    """A Hub that has faults."""

    faults: Faults

    def answer(self) -> None:
        kind = self.faults.next()
        if self.faults.gated and "/resolve/" in self.path:
            self.refuse("GatedRepo", "Access is restricted", 403)
        elif self.faults.file and self.path.endswith(self.faults.file):
            self.send(b"Busy", 503)
        elif kind == "":
            super().answer()
        elif kind == "no answer":
            self.close_connection = True
        elif kind == "an answer that is lost":  # what was asked for is done
            self.wfile = open("/dev/null", "wb")  # noqa: SIM115
            super().answer()
            self.close_connection = True
        elif kind == "a page":
            self.read()
            self.send(b"<html><body>Sign in to this network</body></html>", headers={"Content-Type": "text/html"})
        else:
            self.read()
            self.send(b"<html><body>Busy</body></html>", int(kind), {"Content-Type": "text/html"})

    do_GET = do_POST = do_PUT = do_HEAD = answer


KINDS: Final = ("429", "503", "no answer", "an answer that is lost", "a page")


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch, hub_at: Callable[[str], HfApi]) -> Iterator[tuple[Faults, Hub]]:
    """A Hub of this process alone, with its faults."""
    faults, hub = Faults(), Hub()
    server = make_server(handler=FaultyHandler, hub=hub, faults=faults)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub_at(f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the client's pauses between two tries
    yield faults, hub
    server.shutdown()
    server.server_close()


def there(hub: Hub) -> dict[str, bytes]:
    """The files of the repository; none where it is not there."""
    repository = hub.repositories.get(REPO)
    return (repository.files("main") if repository else None) or {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_publication_is_complete_or_absent(faults: tuple[Faults, Hub], kind: str, tmp_path: Path) -> None:
    plan, hub = faults
    place = export(write_retriever(tmp_path / "made"), out=tmp_path / "retriever").path
    publish(place, REPO)
    whole, requests = there(hub), plan.seen
    assert whole.keys() == {MANIFEST, *Manifest.load(place).files}
    said = []
    for first in range(requests):
        for times in (1, 10**6):
            hub.repositories.clear()
            hub.large.clear()
            plan.plan(kind, first, times)
            try:
                publish(place, REPO)
            except InputError as error:
                said.append((first, times, str(error)))
                assert there(hub) in ({}, whole), "half of it is there"
            else:
                assert there(hub) == whole
            plan.plan("", 0, 0)
            publish(place, REPO)  # nothing that is left stands in the way
            assert there(hub) == whole
    assert {first for first, times, _ in said if times > 1} >= {*range(requests - 1)}, "a fault that stays is said"
    if kind.isdigit():  # one that does not stay goes by, but at the check of the card, which the client does not repeat
        assert len([first for first, times, _ in said if times == 1]) <= 1
    assert all("\n" not in sentence and len(sentence) < 400 for *_, sentence in said)


def test_a_file_that_a_busy_hub_does_not_give_is_not_taken_for_one_that_is_not_there(
    faults: tuple[Faults, Hub], tmp_path: Path
) -> None:
    plan, _ = faults
    place = export(write_retriever(tmp_path / "made"), out=tmp_path / "retriever", query_prompt="ask: ").path
    publish(place, "someone/asked")
    hub_names._fetch_settings.cache_clear()
    plan.file = "config_sentence_transformers.json"
    with pytest.raises(InputError, match="too busy to give all files of someone/asked, or was lost; try again later"):
        load_retriever("someone/asked")
    plan.file = ""
    assert load_retriever("someone/asked").prompts["query"] == "ask: "


def test_a_model_that_one_has_no_right_to_is_no_busy_hub(faults: tuple[Faults, Hub], tmp_path: Path) -> None:
    plan, _ = faults
    publish(export(write_retriever(tmp_path / "made"), out=tmp_path / "retriever").path, "someone/gated")
    hub_names._fetch_settings.cache_clear()
    plan.gated = True
    with pytest.raises(InputError, match="someone/gated") as refused:
        load_retriever("someone/gated")
    assert "busy" not in str(refused.value)


def test_a_cache_that_cannot_be_written_is_no_busy_hub(
    faults: tuple[Faults, Hub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    publish(export(write_retriever(tmp_path / "made"), out=tmp_path / "retriever").path, "someone/kept")
    hub_names._fetch_settings.cache_clear()
    monkeypatch.setattr(hub_names, "snapshot_download", refuse)
    assert hub_names.model_folder("someone/kept") == "someone/kept", "its loaders say what they lack"
