"""A headless browser that is told what to do over a pipe, in the words of its DevTools."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final, Self

CHROMIUM: Final = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
_OPTIONS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")
_NOWHERE: Final = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"  # nothing outside is found
_LONGEST: Final = 90  # seconds


class Browser:
    """One tab, which finds this machine alone; used in a `with` statement.

    Args:
        profile: directory for its files.
        address: of the page.
    """

    def __init__(self, profile: Path, address: str) -> None:
        self.said: list[str] = []
        self.requests: list[str] = []
        theirs, self._to = os.pipe()
        self._from, answers = os.pipe()
        command = [CHROMIUM, *_OPTIONS, _NOWHERE, f"--user-data-dir={profile}", "--window-size=1400,1500"]
        script = f'exec "$@" 3<&{theirs} 4>&{answers} 2>/dev/null'
        self._process = subprocess.Popen(["bash", "-c", script, "bash", *command], pass_fds=(theirs, answers))
        os.close(theirs)
        os.close(answers)
        self._number, self._rest, self._session = 0, b"", ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait(self, expression: str) -> Any:
        """The value of an expression, as soon as there is one that counts."""
        end = time.monotonic() + _LONGEST
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, f"{expression} never came; the console: {self.said}"
            time.sleep(0.2)
        return value

    def picture(self, file: Path) -> None:
        """Save what is seen."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What a method of the DevTools answers; what happens in between is noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._note(answer.get("method"), answer.get("params", {}))
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            self._rest += (more := os.read(self._from, 1 << 20))
            assert more, "the browser ended"
        first, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        return message

    def _note(self, event: str | None, values: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.said.append(values["exceptionDetails"]["text"])
        elif event == "Runtime.consoleAPICalled" and values["type"] == "error":
            self.said.append(str(values["args"]))
        elif event == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.said.append(values["entry"]["text"])
        elif event == "Page.javascriptDialogOpening":
            self.said.append(f"dialog: {values['message']}")
