"""A Hub that cannot be reached is noticed once: huggingface_hub asks again for a minute and more, for every file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # for those who build on it, by its own word

_CONNECTING = 3.0  # seconds in which the Hub takes up a connection, or is not there


class HubUnreachable(OfflineModeIsEnabled):
    """The Hub cannot be reached; what is in its cache is used, as when `HF_HUB_OFFLINE` says so."""


class _Sending:
    """Asks the Hub nothing more when its first connection fails; one that fails later is the library's to repeat."""

    endpoint, reached, reason = "", False, ""

    def __init__(self, client: Any) -> None:
        self._send = client.send

    def __call__(self, request: Any, **how: Any) -> Any:
        """Send a request, or raise `HubUnreachable`."""
        if self.endpoint != constants.ENDPOINT:  # what was found is true of one Hub
            self.endpoint, self.reached, self.reason = constants.ENDPOINT, False, ""
        if self.reached or request.url.host != urlsplit(constants.ENDPOINT).hostname:
            return self._send(request, **how)
        if self.reason:
            raise HubUnreachable(self.reason)
        limits = request.extensions.get("timeout", {})
        request.extensions["timeout"] = {**limits, "connect": min(limits.get("connect") or _CONNECTING, _CONNECTING)}
        try:
            answer = self._send(request, **how)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            self.reason = str(error) or "it takes up no connection"
            raise HubUnreachable(self.reason) from error
        self.reached = True
        return answer


@contextmanager
def noticing_offline() -> Iterator[None]:
    """Let all that asks the Hub in this process notice at once when it cannot be reached.

    The client stays the caller's, with its proxies and certificates, and is afterwards as it was.
    """
    known = vars(client := huggingface_hub.get_session())  # to make one takes 40 ms: it reads the certificates
    if "send" in known:  # a call in another one
        yield
        return
    known["send"] = _Sending(client)
    try:
        yield
    finally:
        known.pop("send", None)
