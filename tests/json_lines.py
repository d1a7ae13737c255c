"""Files with a line of JSON for each row, as tests write their data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path


def write_lines(path: Path, rows: Iterable[object]) -> Path:
    """Write rows to a file, and give its path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
