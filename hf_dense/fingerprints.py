"""Telling whether a model is the one that some work was begun with."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def weights_fingerprint(model: nn.Module) -> str:
    """SHA-256 (hexadecimal) of the names, types, shapes and values of a model's weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"\0{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
