"""Threads that share a model take turns."""

from __future__ import annotations

from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from torch import nn

_READING: Final[WeakKeyDictionary[nn.Module, Lock]] = WeakKeyDictionary()


def reading(model: nn.Module) -> Lock:
    """Held while a model reads: its tokenizer cuts as it was told last, be it by a thread that only counts tokens."""
    return _READING.setdefault(model, Lock())
