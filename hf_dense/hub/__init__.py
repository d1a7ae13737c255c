"""Checkpoints in forms that others can use."""

from __future__ import annotations

from hf_dense.hub.export import export_sentence_transformer

__all__ = ["export_sentence_transformer"]
