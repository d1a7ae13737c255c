"""What decides on a vector or a score is part of the fingerprint; what does not is none."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_retriever import change_json, write_cross_encoder, write_retriever

from hf_dense.search.fingerprints import cross_encoder_source, retriever_source

WRITERS: dict[str, Any] = {"retriever": (write_retriever, retriever_source)}
WRITERS["cross-encoder"] = (write_cross_encoder, cross_encoder_source)
WITHOUT_PARTS = ["input_ids", "attention_mask"]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("retriever", {"truncation_side": "left"}),
        ("retriever", {"padding_side": "left"}),
        ("cross-encoder", {"truncation_side": "left"}),
        ("cross-encoder", {"padding_side": "left"}),
        ("cross-encoder", {"model_input_names": WITHOUT_PARTS}),
    ],
)
def test_how_a_tokenizer_cuts_and_pads_and_tells_pairs_makes_another_model(
    tmp_path: Path, kind: str, settings: dict[str, Any]
) -> None:
    write, source = WRITERS[kind]
    model = write(tmp_path / "model")
    before = source(model).fingerprint
    change_json(model / "tokenizer_config.json", **settings)
    assert source(model).fingerprint != before


@pytest.mark.parametrize("kind", WRITERS)
def test_a_copy_and_what_nobody_reads_make_none(tmp_path: Path, kind: str) -> None:
    write, source = WRITERS[kind]
    model = write(tmp_path / "model")
    copy = shutil.copytree(model, tmp_path / "copy")
    change_json(copy / "tokenizer_config.json", clean_up_tokenization_spaces=True, somebody="said")
    (copy / "notes.txt").write_text("mine")
    assert source(copy).fingerprint == source(model).fingerprint
