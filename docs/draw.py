"""Draw the methods' declarations into their pages: python docs/draw.py"""

from __future__ import annotations

import re
from pathlib import Path

from diagram import diagram

from hf_dense import METHODS

_FIGURE = re.compile(r"<!-- diagram: (\w+) -->\n(?:```mermaid\n.*?```\n)?", re.DOTALL)


def drawn(page: str) -> str:
    """A page with the figure of every method that it names."""
    return _FIGURE.sub(
        lambda found: f"<!-- diagram: {found[1]} -->\n```mermaid\n{diagram(METHODS[found[1]].config())}\n```\n", page
    )


if __name__ == "__main__":
    for path in sorted((Path(__file__).parent / "methods").glob("*.md")):
        path.write_text(drawn(path.read_text(encoding="utf-8")), encoding="utf-8")
