"""A Hub that cannot be reached is noticed once, and at once."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import HfApi
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]
from tiny_retriever import write_dataset

import hf_dense
from hf_dense.commands.main import main
from hf_dense.errors import InputError
from hf_dense.hub.reach import HubUnreachable, noticing_offline
from hf_dense.search.index import build_index


@pytest.fixture
def nowhere(hub_at: Callable[[str], HfApi]) -> Iterator[str]:
    """An address that takes up no connection, in place of the Hub's."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        hub_at(url)
        yield url


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were really asked, until the end of the test."""
    asked, connect = list[str](), httpx.HTTPTransport.handle_request

    def counted(transport: object, request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return connect(transport, request)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", counted)
    return asked


def test_it_is_asked_once(nowhere: str, tried: list[str]) -> None:
    with noticing_offline():
        for _ in range(3):
            with noticing_offline(), pytest.raises(HubUnreachable):
                huggingface_hub.get_session().get(f"{nowhere}/api/models/nobody/nothing")
    assert len(tried) == 1


def test_the_client_stays_the_callers(nowhere: str, tried: list[str]) -> None:
    before = huggingface_hub.get_session()
    with noticing_offline(), pytest.raises(HubUnreachable):
        huggingface_hub.get_session().get(nowhere)
    assert huggingface_hub.get_session() is before
    with pytest.raises(httpx.ConnectError):
        before.get(nowhere)
    assert len(tried) == 2


def test_another_hub_of_the_same_machine_is_asked_anew(
    nowhere: str, hub_at: Callable[[str], HfApi], hub_url: str
) -> None:
    with noticing_offline():
        with pytest.raises(HubUnreachable):
            huggingface_hub.get_session().get(f"{nowhere}/api/models/nobody/nothing")
        hub_at(hub_url)
        assert huggingface_hub.get_session().get(f"{hub_url}/api/models/nobody/nothing").status_code == 404


def test_the_next_command_asks_anew(nowhere: str, tried: list[str]) -> None:
    for _ in range(2):
        with noticing_offline(), pytest.raises(HubUnreachable):
            huggingface_hub.get_session().get(f"{nowhere}/api/models/nobody/nothing")
    assert len(tried) == 2


def test_other_places_are_asked_as_before(nowhere: str, tried: list[str]) -> None:
    other = nowhere.replace("127.0.0.1", "localhost")
    for _ in range(2):
        with noticing_offline(), pytest.raises(httpx.ConnectError):
            huggingface_hub.get_session().get(other)
    assert len(tried) == 2


def test_a_command_asks_once(
    nowhere: str, tried: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["export", "nobody/nothing", "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert "Cannot load a tokenizer from nobody/nothing" in capsys.readouterr().err
    assert len([url for url in tried if url.startswith(nowhere)]) == 1, "libraries that were imported know the old Hub"


CALLS: dict[str, Callable[[], Any]] = {
    "export": lambda: hf_dense.export("nobody/nothing", out="out"),
    "evaluate": lambda: hf_dense.evaluate("nobody/nothing", "data", out="out"),
    "build_index": lambda: build_index("nobody/nothing", "data", "out"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_function_asks_once(
    call: Callable[[], Any], nowhere: str, tried: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="nobody/nothing"):
        call()
    assert len([url for url in tried if url.startswith(nowhere)]) == 1


def test_publishing_says_so(nowhere: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], tried: list[str]) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "title": "a", "text": "one two three four five six"}\n')
    main(["data", "passages", str(tmp_path / "corpus.jsonl"), "--processes", "1", "--out", str(tmp_path / "data")])
    with pytest.raises(SystemExit):
        main(["publish", str(tmp_path / "data"), "me/data"])
    assert f"The Hub ({nowhere}) cannot be reached: " in capsys.readouterr().err
