"""The encoder alone, and what a pre-training model takes of a published encoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_backbones import BACKBONES, HIDDEN
from transformers import AutoModelForMaskedLM
from transformers.utils import logging

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
    with pytest.raises(ValueError, match="a backbone with is_decoder=True"):
        RetroMAEForPreTraining.from_backbone(str(tmp_path))


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("tied", [True, False])
def test_a_vocabulary_matrix_that_is_left_out_is_named(
    name: str, tied: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backbone = BACKBONES[name](0.0)
    backbone.tie_word_embeddings = tied
    source = AutoModelForMaskedLM.from_config(backbone)
    source.save_pretrained(tmp_path)
    logging.enable_propagation()
    model = RetroMAEForPreTraining.from_backbone(str(tmp_path))
    logging.disable_propagation()
    said = " ".join(record.getMessage() for record in caplog.records)
    assert (f"{tmp_path} scores tokens by a matrix of its own, which is left out" in said) is not tied
    taken = model.head.dense.weight
    assert torch.equal(taken, source.state_dict()[model.family.head["dense.weight"]])


def test_a_head_without_bias_is_taken(tmp_path: Path) -> None:
    backbone = BACKBONES["modernbert"](0.0)
    backbone.decoder_bias = False
    source = AutoModelForMaskedLM.from_config(backbone)
    source.save_pretrained(tmp_path)
    head = RetroMAEForPreTraining.from_backbone(str(tmp_path)).head
    assert torch.equal(head.dense.weight, source.head.dense.weight)
    assert not head.bias.any()
