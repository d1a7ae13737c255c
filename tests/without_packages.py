"""Code that makes packages missing, as on a machine that has torch and transformers and little else."""

from __future__ import annotations

MISSING = ("bm25s", "datasets", "evaluate", "faiss", "mteb", "pytrec_eval", "sentencex", "Stemmer")

BLOCK = f"""
from importlib.machinery import PathFinder

def find_spec(name, path=None, target=None, found=PathFinder.find_spec):
    return None if name.partition(".")[0] in {MISSING} else found(name, path, target)

PathFinder.find_spec = staticmethod(find_spec)
"""
