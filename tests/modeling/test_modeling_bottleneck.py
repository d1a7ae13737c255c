"""The encoder alone, and what a pre-training model takes of a published encoder."""

from __future__ import annotations

import torch
from tiny_backbones import BACKBONES, HIDDEN

from hf_dense import RetroMAEConfig, RetroMAEModel


def test_an_encoder_gives_its_bottleneck_whatever_the_backbone_would_return() -> None:
    backbone = BACKBONES["bert"](0.0)
    backbone.return_dict = False
    model, ids = RetroMAEModel(RetroMAEConfig(backbone_config=backbone)).eval(), torch.full((2, 5), 7)
    for given in ({}, {"return_dict": False}):
        assert model(ids, **given).pooler_output.shape == (2, HIDDEN)
