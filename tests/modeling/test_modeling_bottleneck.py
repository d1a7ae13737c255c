"""The encoder alone, and what a pre-training model takes of a published encoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_backbones import BACKBONES, HIDDEN
from transformers import AutoModelForMaskedLM

from hf_dense import RetroMAEConfig, RetroMAEForPreTraining, RetroMAEModel


def test_an_encoder_gives_its_bottleneck_whatever_the_backbone_would_return() -> None:
    backbone = BACKBONES["bert"](0.0)
    backbone.return_dict = False
    model, ids = RetroMAEModel(RetroMAEConfig(backbone_config=backbone)).eval(), torch.full((2, 5), 7)
    for given in ({}, {"return_dict": False}):
        assert model(ids, **given).pooler_output.shape == (2, HIDDEN)


def test_a_decoder_is_no_published_encoder(tmp_path: Path) -> None:
    backbone = BACKBONES["roberta"](0.0)
    backbone.is_decoder = True
    AutoModelForMaskedLM.from_config(backbone).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is_decoder=True does not; set it to False"):
        RetroMAEForPreTraining.from_backbone(str(tmp_path))
