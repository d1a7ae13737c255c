"""Endpoints are asked again where they fail for the moment, and given up with one sentence where they go on failing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from tiny_chat_server import ChatServer, Failure, chat_server, completion, question_about

from hf_dense.data.queries import endpoint
from hf_dense.data.queries.answers import Answer, Answers
from hf_dense.data.queries.endpoint import ChatClient, Endpoint
from hf_dense.errors import InputError

KEY = "sk-secret"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(endpoint, "_PAUSE", 0.001)
    monkeypatch.setattr(endpoint, "_TIMEOUT", 0.3)
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_hub")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with chat_server() as running:
        yield running


def client(server: ChatServer) -> ChatClient:
    return ChatClient(Endpoint(server.url, "small"), 20, 0.3)


def test_what_is_asked_and_answered(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client(server).ask("about a b c", seed=7) == Answer(f'"{question_about("about a b c")}"', 30, 5)
    server.failures = [Failure(body=json.dumps(completion(None, usage=False)))]
    assert client(server).ask("about", seed=7) == Answer("", 0, 0)
    assert server.asked[0] == {
        "model": "small",
        "messages": [{"role": "user", "content": "about a b c"}],
        "max_tokens": 20,
        "temperature": 0.3,
        "seed": 7,
        "stream": False,
        "authorization": "Bearer none",
    }
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    client(server).ask("about", seed=7)
    assert server.asked[-1]["authorization"] == f"Bearer {KEY}"


def test_whose_key_is_sent_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    hosts = ("router.huggingface.co", "a.endpoints.huggingface.cloud", "huggingface.co.evil.com", "localhost:8000")
    assert [Endpoint(f"http://{host}/v1", "m").key() for host in hosts] == ["hf_1", "hf_1", "sk-1", "sk-1"]


FAILURES = {
    "too many requests": (Failure(429, '{"error": "slow down"}', (("retry-after", "0"),)), "429 slow down"),
    "broken": (Failure(500, "no worker"), "500"),
    "no JSON": (Failure(200, "<html>"), "no chat completion"),
    "no choices": (Failure(200, "{}"), "no chat completion"),
    "another JSON": (Failure(200, '[{"choices": 3}]'), "no chat completion"),
    "parts": (Failure(200, json.dumps(completion([1]))), "no chat completion"),  # type: ignore[arg-type]
    "too late": (Failure(200, "{}", seconds=0.6), "no answer within 0.3 seconds"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_passes_is_asked_for_again(server: ChatServer, name: str) -> None:
    server.failures = [FAILURES[name][0]]
    assert client(server).ask("about a b c", seed=7).text == f'"{question_about("about a b c")}"'
    assert len(server.asked) == 2


@pytest.mark.parametrize("name", [name for name in FAILURES if name != "too late"])
def test_what_does_not_pass_ends_in_a_sentence(server: ChatServer, name: str) -> None:
    failure, said = FAILURES[name]
    server.failures = [failure] * 10
    with pytest.raises(InputError, match=rf"127.0.0.1.* failed 6 times for one request: .*{said}.*start the same"):
        client(server).ask("about", seed=7)
    assert len(server.asked) == 6


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (Failure(401, f"bad key {KEY}"), "wants a key, or another one; put it into OPENAI_API_KEY"),
        (
            Failure(404, json.dumps({"error": f"no model small, {KEY}"})),
            "refuses what it is asked: 404 no model small, ",
        ),
    ],
)
def test_a_refusal_is_final_and_does_not_tell_the_key(
    server: ChatServer, failure: Failure, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.failures = [failure]
    with pytest.raises(InputError, match=said) as caught:
        client(server).ask("about", seed=7)
    assert KEY not in str(caught.value)
    assert len(server.asked) == 1


def test_nobody_listens_and_offline(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"it cannot be reached \(ConnectError\)"):
        ChatClient(Endpoint("http://127.0.0.1:9/v1", "m"), 5, 0.0).ask("about", seed=7)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set, and forbids asking"):
        client(server).ask("about", seed=7)


def test_a_client_that_is_stopped_does_not_wait(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_PAUSE", 1000.0)
    server.failures = [Failure(500)] * 10
    asking = client(server)
    threading.Timer(0.2, asking.stopped.set).start()
    with pytest.raises(InputError, match="500"):
        asking.ask("about", seed=7)
    with pytest.raises(InputError, match="is asked no more"):
        asking.ask("about", seed=7)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"url": "localhost:8000"}, "no address that begins with http://"),
        ({"url": "http://a:b"}, "no address that begins with http://"),
        ({"url": "http://me:secret@localhost/v1"}, "holds a name, a password or a query"),
        ({"url": "http://localhost/v1?key=secret"}, "holds a name, a password or a query"),
        ({"parallel": 0}, "parallel is 0; send one request at a time at least"),
        ({"price_out": -1.0}, "price_out is -1.0; it is at least 0"),
        ({"price_in": float("nan")}, "price_in is nan; it is at least 0"),
    ],
)
def test_bad_values(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        Endpoint(**{"url": "http://localhost/v1", "model": "m", **changes})
    assert "secret" not in str(caught.value)


def test_answers_outlive_a_run_that_is_killed(tmp_path: Path) -> None:
    answers = Answers(tmp_path / "answers.jsonl")
    answers.keep("a", Answer("one\ntwo", 3, 4))
    answers.keep("b", Answer("ü", 1, 1))
    with answers.file.open("a") as stream:
        stream.write('{"key": "c", "te')  # the power fails
    again = Answers(answers.file)
    assert again.found == {"a": Answer("one\ntwo", 3, 4), "b": Answer("ü", 1, 1)}
    assert again.tokens == (4, 5)
    again.keep("c", Answer("three"))
    assert list(Answers(answers.file).found) == ["a", "b", "c"]
