"""Asking an OpenAI-compatible endpoint (a hosted one, or vLLM or Ollama on one's own machine) for short texts."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any, Final
from urllib.parse import urlsplit

from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError, OfflineModeIsEnabled
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # for those who build on it, by its own word

from hf_dense.data.queries.answers import Answer
from hf_dense.errors import InputError
from hf_dense.storage.fingerprints import fingerprint_values
from hf_dense.storage.places import Source

_TRIES: Final = 6  # of a request
_PAUSE: Final = 1.0  # seconds before the second try; twice as long before every further one
_LONGEST: Final = 60.0  # seconds of a pause that the endpoint asks for
_TIMEOUT: Final = 300.0  # seconds that an answer may take
_HUGGING_FACE: Final = ("huggingface.co", "huggingface.cloud")
_SHOWN: Final = 200  # characters of what an endpoint says of an error
_MILLION: Final = 1_000_000


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible endpoint.

    Its key is read from the environment alone and written nowhere: `HF_TOKEN` for those of Hugging Face,
    `OPENAI_API_KEY` for all others.

    Args:
        url: its address, such as `http://localhost:8000/v1`.
        model: the name by which it knows the model.
        parallel: requests at once.
        price_in: of a million tokens read, in any currency.
        price_out: of a million tokens written.

    Raises:
        InputError: a value outside its range, or an address that is none or holds a password.
    """

    url: str
    model: str
    parallel: int = 8
    price_in: float = 0.0
    price_out: float = 0.0

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # of a port, or of brackets
            good = False
        if not good:
            raise InputError(
                "The endpoint has no address that begins with http:// or https://; give one with --endpoint."
            )
        if parts.username or parts.password or parts.query:
            raise InputError(
                "The address of the endpoint holds a name, a password or a query, and it is written down; give the "
                "address alone, and a key in OPENAI_API_KEY."
            )
        if self.parallel < 1:
            raise InputError(f"parallel is {self.parallel}; send one request at a time at least.")
        for name in ("price_in", "price_out"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} is {getattr(self, name)}; it is at least 0.")

    @property
    def source(self) -> Source:
        """The endpoint by address and name: what weights answer there cannot be known."""
        return Source(f"{self.model} at {self.url}", fingerprint_values({"url": self.url, "model": self.model}))

    def cost(self, read: int, written: int) -> float:
        """What so many tokens cost."""
        return (read * self.price_in + written * self.price_out) / _MILLION

    def key(self) -> str | None:
        """The key in the environment."""
        host = urlsplit(self.url).hostname or ""
        hugging_face = any(host == name or host.endswith(f".{name}") for name in _HUGGING_FACE)
        return os.environ.get("HF_TOKEN" if hugging_face else "OPENAI_API_KEY", "").strip() or None


class ChatClient:
    """Asks an endpoint, from several threads, and asks again where it is busy or fails for the moment.

    Args:
        endpoint: that is asked.
        length: greatest number of tokens of an answer.
        temperature: of the draws.

    Attributes:
        stopped: set when no more is to be asked; pauses end then.
    """

    def __init__(self, endpoint: Endpoint, length: int, temperature: float) -> None:
        self.endpoint = endpoint
        self.length = length
        self.temperature = temperature
        self.stopped = Event()
        # Without a key of its own the client would send the one that `hf auth login` keeps, to whoever is asked.
        self.client = InferenceClient(base_url=endpoint.url, api_key=endpoint.key() or "none", timeout=_TIMEOUT)

    def ask(self, prompt: str, seed: int) -> Answer:
        """The answer to a prompt.

        Raises:
            InputError: there is none after several tries, or what is asked is refused, or no more is to be asked.
        """
        if self.stopped.is_set():
            raise InputError(f"The endpoint {self.endpoint.url} is asked no more.")
        said = ""
        for number in range(_TRIES):
            try:
                return self._ask(prompt, seed)
            except OfflineModeIsEnabled as error:
                raise InputError(f"HF_HUB_OFFLINE is set, and forbids asking {self.endpoint.url}; unset it.") from error
            except HfHubHTTPError as error:
                if error.response.status_code not in (408, 409, 425, 429) and error.response.status_code < 500:
                    raise self._refusal(error) from error
                said, pause = self._said(error), _asked_pause(error.response.headers)
            except InferenceTimeoutError:
                said, pause = f"no answer within {_TIMEOUT:g} seconds", 0.0
            except httpx.HTTPError as error:
                said, pause = f"it cannot be reached ({type(error).__name__})", 0.0
            except (ValueError, TypeError, LookupError, AttributeError):
                said, pause = "its answer is no chat completion", 0.0
            drawn = _PAUSE * 2**number * random.uniform(0.5, 1.5)  # so that not all ask again at once
            if number + 1 < _TRIES and self.stopped.wait(max(pause, drawn)):
                break
        raise InputError(
            f"The endpoint {self.endpoint.url} failed {_TRIES} times for one request: {said}. What was written is "
            "kept; start the same command again to go on."
        )

    def _ask(self, prompt: str, seed: int) -> Answer:
        found = self.client.chat_completion(
            [{"role": "user", "content": prompt}],
            model=self.endpoint.model,
            max_tokens=self.length,
            temperature=self.temperature,
            seed=seed,
        )
        text, usage = found.choices[0].message.content, found.usage
        if not isinstance(text, str | None):
            raise TypeError("no text")
        if usage is None:
            return Answer(text or "")
        return Answer(text or "", int(usage.prompt_tokens or 0), int(usage.completion_tokens or 0))

    def _refusal(self, error: HfHubHTTPError) -> InputError:
        """Why asking again would not help."""
        if error.response.status_code in (401, 403):
            return InputError(
                f"The endpoint {self.endpoint.url} wants a key, or another one; put it into OPENAI_API_KEY (HF_TOKEN "
                "for those of Hugging Face)."
            )
        return InputError(f"The endpoint {self.endpoint.url} refuses what it is asked: {self._said(error)}.")

    def _said(self, error: HfHubHTTPError) -> str:
        """What an endpoint says of an error, in one line, without the key."""
        said = " ".join((error.server_message or error.response.reason_phrase or "").split())
        if key := self.endpoint.key():
            said = said.replace(key, "...")
        return f"{error.response.status_code} {said[:_SHOWN]}".strip()


def _asked_pause(headers: Mapping[str, Any]) -> float:
    """The seconds that an endpoint asks to be left alone."""
    try:
        return min(max(float(headers.get("retry-after", 0)), 0.0), _LONGEST)
    except ValueError:  # a date
        return 0.0
