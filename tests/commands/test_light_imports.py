"""`hf-dense VERB --help` answers at once: a verb's module imports nothing heavy before it runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "datasets", "numpy", "pyarrow", "matplotlib", "sentence_transformers", "mteb"}
SCRIPT = """
import argparse, importlib, json, sys
importlib.import_module("hf_dense.commands." + sys.argv[1]).add_arguments(argparse.ArgumentParser())
print(json.dumps(sorted(name for name in sys.modules if "." not in name)))
"""


@pytest.mark.parametrize("verb", ["analyse", "evaluate", "glue", "merge", "report", "search", "serve"])
def test_nothing_heavy_is_imported(verb: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, verb], capture_output=True, text=True, check=True)
    assert not HEAVY & {*json.loads(done.stdout)}
