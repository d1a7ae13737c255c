"""A small OpenAI-compatible endpoint on this machine that fails as it is told to, then answers."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Failure:
    """What is answered in place of a completion: a status, a body, headers, after some seconds."""

    status: int = 200
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0


@dataclass
class ChatServer:
    """What the endpoint was asked, and how it fails.

    Attributes:
        url: its address.
        failures: what the next requests get, in their order.
        good: how many requests are answered before `then` is what all get; None for no end.
        asked: the body of every request, and `authorization` of its headers.
        most: requests that were answered at the same time.
    """

    url: str = ""
    failures: list[Failure] = field(default_factory=list)
    good: int | None = None
    then: Failure = Failure(500, "out of order")
    asked: list[dict[str, Any]] = field(default_factory=list)
    most: int = 0
    pause: float = 0.0
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, body: dict[str, Any], authorization: str) -> Failure | None:
        """Note a request; what it gets in place of an answer."""
        with self._lock:
            self.asked.append({**body, "authorization": authorization})
            if self.failures:
                return self.failures.pop(0)
            if self.good is None:
                return None
            self.good -= 1
            return self.then if self.good < 0 else None

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what is answered at the same time."""
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            yield
        finally:
            with self._lock:
                self._now -= 1


def question_about(prompt: str) -> str:
    """What the endpoint answers."""
    return f"What is number {zlib.crc32(prompt.encode())}?"


def completion(text: str | None, usage: bool = True) -> dict[str, Any]:
    """An answer as vLLM gives it."""
    message = {"role": "assistant", "content": text}
    counted = {"usage": {"prompt_tokens": 30, "completion_tokens": 5, "total_tokens": 35}} if usage else {}
    return {"id": "1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **counted}


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """Run an endpoint: it answers with a question, another one for every prompt, in quotes."""
    server = ChatServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with server.counted():
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                failure = server.take(body, self.headers.get("authorization", ""))
                time.sleep(failure.seconds if failure else server.pause)
            # Outside: who has its answer may ask again before this thread goes on.
            prompt = body["messages"][0]["content"]
            self.answer(failure or Failure(200, json.dumps(completion(f'"{question_about(prompt)}"'))))

        def answer(self, given: Failure) -> None:
            data = given.body.encode()
            self.send_response(given.status)
            for name, value in (("content-length", str(len(data))), *given.headers):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that waits no longer
    server.url = f"http://127.0.0.1:{http.server_port}/v1"
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
