"""What the house promises of its own code, and no linter checks."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST = 60  # lines of a function


def test_no_function_is_longer_than_a_page() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {node.name}"
        for folder in ("hf_dense", "benchmarks", "examples", "dataset_scripts", "model_cards", "docs", "tests")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= LONGEST
    ]
    assert not found
