"""What an endpoint has answered, kept in a file as it comes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock


@dataclass(frozen=True)
class Answer:
    """What an endpoint wrote, and the tokens that it counted (0 where it counts none)."""

    text: str
    read: int = 0
    written: int = 0


class Answers:
    """Answers in a file, each written when it comes, so that a run that is killed pays for none of them twice.

    Args:
        file: one JSON object a line; a line that was cut off is dropped.

    Attributes:
        found: by what was asked.
        tokens: read and written, of all answers.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: dict[str, Answer] = {}
        self.tokens = (0, 0)
        self._lock = Lock()
        if file.exists():
            whole = file.read_bytes()
            whole = whole[: whole.rfind(b"\n") + 1]
            file.write_bytes(whole)
            for line in whole.decode("utf-8").splitlines():
                row = json.loads(line)
                self._add(row.pop("key"), Answer(**row))

    def keep(self, key: str, answer: Answer) -> None:
        """Write an answer down."""
        line = json.dumps({"key": key, **asdict(answer)}) + "\n"
        with self._lock:
            with self.file.open("a", encoding="utf-8") as stream:
                stream.write(line)
            self._add(key, answer)

    def _add(self, key: str, answer: Answer) -> None:
        self.found[key] = answer
        self.tokens = self.tokens[0] + answer.read, self.tokens[1] + answer.written
